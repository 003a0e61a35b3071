"""Who only listens passes what it was notified of unseen; that may have been another history."""

import pytest

from peer.data.links import add_own_hashes, links_are_ours
from peer.protocol.commands import Ingest
from peer.protocol.errors import RemoteViolation
from peer.protocol.interest import Interest
from peer.protocol.request import Request
from tests.peer.impolite import (
    AUTHOR,
    LOG,
    SAFE,
    Impolite,
    entry_packets,
    log_of,
    metadata_packet,
    payload_packet,
)
from wire import (
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    Propose,
    encode_notify,
    encode_request_cancelled,
    encode_switch,
)

OTHER = log_of(14, lambda seq: b"other" if seq > 4 else b"p%d" % seq)


def listened(eagerness: Eagerness) -> tuple[Impolite, int]:
    """An engine that proposed what is behind entry 4, and has told the script of 5 to 9 since."""
    peer = Impolite(log_of(4), setup=SAFE)
    peer.control(Grant(9))
    (proposal,) = [message for message in peer.messages() if isinstance(message, Propose)]
    assert (proposal.start, proposal.end) == (5, None)
    peer.control(Adjust(proposal.request, eagerness))
    for seq in range(5, 10):
        peer.store.append(AUTHOR, 0, b"p%d" % seq)
    peer.sent()
    peer.data(encode_switch(proposal.request), encode_notify(10))
    return peer, proposal.request


@pytest.mark.parametrize("seq", [10, 11])
def test_an_entry_behind_what_was_passed_unseen_blames_nobody(seq: int) -> None:
    peer, number = listened(Eagerness.NOTIFY)
    peer.data(entry_packets(OTHER, range(10, seq + 1), first=10))
    messages = peer.messages()
    assert Cancel(number, CancelReason.NOT_WANTED) in messages
    (search,) = [message for message in messages if isinstance(message, Propose)]
    assert (search.start, search.end) == (9, 9)
    peer.control(Cancel(search.request, CancelReason.HASH_MISMATCH, (OTHER[8].encoded,)))
    assert peer.store.forks[LOG][0] == 8


def test_who_has_seen_what_it_passed_is_blamed() -> None:
    peer, _ = listened(Eagerness.ALL)
    with pytest.raises(RemoteViolation):
        peer.data(entry_packets(OTHER, (10,), first=10))


def test_links_to_what_was_sent_blame_the_sender() -> None:
    peer, _ = listened(Eagerness.NOTIFY)
    right = log_of(14)
    wrong = bytearray(metadata_packet(right, 11, is_first=False))
    wrong[-1] ^= 1
    with pytest.raises(RemoteViolation):
        peer.data(entry_packets(right, (10,), first=10), bytes(wrong), payload_packet(right, 11))


def test_nor_does_one_that_is_refused_after_its_request_is_over() -> None:
    peer, number = listened(Eagerness.NOTIFY)
    peer.engine.receive_data(entry_packets(OTHER, (10,), first=10))
    peer.host.collect()
    while not isinstance(peer.host.todo[0], Ingest):
        peer.host.step()
    stores = peer.host.todo.popleft()
    peer.control(Cancel(number, CancelReason.NO_RESOURCES))
    peer.sent()
    peer.data(encode_request_cancelled(number))
    assert peer.engine._table.get(number) is None
    peer.messages()
    peer.host.todo.append(stores)
    (search, *_) = [message for message in peer.messages() if isinstance(message, Propose)]
    assert (search.start, search.end) == (9, 9)


def test_a_pool_that_the_other_side_was_only_notified_of_is_not_agreed_on() -> None:
    """The starting hash vouches for what is before it: lipmaa(4) is 1."""
    proposal = Propose(0, LOG, 15, 4, 0, 100, b"h1", Eagerness.ALL)
    listens = Interest()
    listens.set_eagerness(Eagerness.NOTIFY, None)
    request = Request(0, True, proposal, Interest(), listens, 0.0)
    add_own_hashes(request, {1: b"h1", 4: b"h4", 13: b"h13"})
    assert request.incoming.own_hashes == {4, 13}
    assert links_are_ours(request, 13)
    assert links_are_ours(request, 14)
    assert not links_are_ours(request, 4)
