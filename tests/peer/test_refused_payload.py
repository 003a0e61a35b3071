"""A payload in pieces whose entry is refused."""

from tests.peer.impolite import AUTHOR, SWITCH, Impolite, entry_packets
from tests.peer.rig import Held


def test_a_payload_whose_entry_contradicts_what_is_held_is_not_kept_waiting() -> None:
    """Its file is closed: a few of them would otherwise end all reading."""
    first: dict[int, Held] = {}
    for payload in (b"one", b"two"):
        seq, entry = AUTHOR.entry(first, 0, payload)
        first[seq] = entry
    other = {1: first[1]}
    seq, entry = AUTHOR.entry(other, 0, b"x" * 100)
    other[seq] = entry
    peer = Impolite(first)
    number = peer.open_request()
    peer.data(SWITCH(number) + entry_packets(other, (1, 2)))
    assert peer.store.forks
    assert peer.engine.drained
    assert not peer.host.sinks
