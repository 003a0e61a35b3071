"""A log that ends while the other side wants to be notified only."""

from peer.protocol.events import Interests, InterestsChanged
from tests.peer.impolite import AUTHOR, LOG, Impolite, log_of
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


def test_the_end_of_a_log_is_told_to_who_wants_notifications_although_we_asked() -> None:
    """The end makes our open range finite; still nobody but us has anything to tell of it."""
    peer = Impolite(log_of(3))
    peer.host.todo.append(InterestsChanged(Interests(own=frozenset((LOG,))), (LOG,)))
    peer.control(Grant(8))
    (proposal,) = [message for message in peer.messages() if isinstance(message, Propose)]
    peer.control(Adjust(proposal.request, Eagerness.NOTIFY))
    peer.store.append(AUTHOR, 0, b"the end", is_end=True)
    number = proposal.request
    told = encode_switch(number) + encode_notify(2) + encode_request_cancelled(number)
    assert peer.sent() == told
    assert Cancel(number, CancelReason.COMPLETE) in peer.messages()
