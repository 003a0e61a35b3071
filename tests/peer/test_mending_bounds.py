"""What is remembered of payloads that were asked for is bounded, and nothing is lost by that."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import cast

from peer.planner.follow_policy import FollowPolicy
from peer.planner.log_state import RANGES_MAX
from peer.planner.mending import Mender
from peer.planner.policy import Actions
from peer.planner.settling import Settling
from peer.protocol.commands import LookUp
from peer.protocol.events import LogView
from peer.protocol.interest import Interest
from peer.protocol.request import Request
from wire import (
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    LogKey,
    Propose,
    encode_payload_header,
    encode_request_cancelled,
    encode_switch,
)

from .impolite import LOG, Impolite, log_of
from .rig import Held

FORGOTTEN = 20
LACKED = range(2, 2 * (RANGES_MAX + FORGOTTEN + 1) + 1, 2)
"""No two of them are neighbours, so that each is asked for alone."""
WHOLE = log_of(LACKED[-1] + 3, lambda seq: b"%d" % seq)


class Refusing(Impolite):
    """An engine that lacks many payloads, and a peer that gives or refuses what is asked for."""

    def __init__(self) -> None:
        lacks = {seq: Held(WHOLE[seq].encoded, WHOLE[seq].hash, None) for seq in LACKED}
        super().__init__({**WHOLE, **lacks}, proactive=True)
        self.control(Grant(1000))
        [behind] = self._asked()
        self.control(Adjust(behind.request, eagerness=Eagerness.NOTIFY, allow_skip=True))

    def _asked(self) -> list[Propose]:
        self.sent()
        return [each for each in self.messages() if isinstance(each, Propose)]

    def answer(self, given: Iterable[int] = (), skipped: Iterable[int] = ()) -> list[int]:
        """Answer all that is asked for now; returns which payloads that was."""
        starts: list[int] = []
        while asked := self._asked():
            for each in asked:
                starts.append(each.start)
                if each.start not in {*given, *skipped}:
                    self._end(each.request, CancelReason.NOT_WANTED)
                    continue
                payload = WHOLE[each.start].payload or b""
                packet = encode_payload_header(len(payload)) + payload
                self.control(Adjust(each.request, eagerness=Eagerness.NOTIFY, allow_skip=True))
                self.data(encode_switch(each.request), packet if each.start in given else b"\x06")
                self._end(each.request, CancelReason.COMPLETE)
        return starts

    def _end(self, number: int, reason: CancelReason) -> None:
        self.control(Cancel(number, reason))
        self.data(encode_switch(number), encode_request_cancelled(number))

    def next_try(self, given: Iterable[int] = (), skipped: Iterable[int] = ()) -> list[int]:
        """What is asked for when something is asked for again, in a minute or so at the latest."""
        for _ in range(62):
            self.wait(1.0)
            starts = self.answer(given, skipped)
            if starts:
                return starts
        return []


def test_the_oldest_of_many_refusals_is_forgotten_and_asked_for_again_with_patience() -> None:
    peer = Refusing()
    skipped = LACKED[FORGOTTEN + 7]
    assert peer.answer(skipped=[skipped]) == list(LACKED)
    policy = peer.engine._policy
    assert isinstance(policy, FollowPolicy)
    assert len(policy._mender._refused[LOG]) == RANGES_MAX
    oldest = list(LACKED[:FORGOTTEN])
    given = {oldest[3], oldest[5]}
    assert peer.next_try(given, skipped=[skipped]) == [*oldest, skipped]
    assert len(policy._mender._refused[LOG]) == RANGES_MAX
    # Those that were refused again now are the last ones to be forgotten.
    then = [seq for seq in LACKED[FORGOTTEN:] if seq != skipped][: FORGOTTEN - len(given)]
    assert peer.next_try(given={skipped}) == sorted([*then, skipped])
    held = peer.store.logs[LOG]
    assert all(held[seq].payload for seq in (*given, skipped))


class Idle:
    """Takes look-ups and proposals of a mender, and does nothing."""

    def __init__(self) -> None:
        self.take: Callable[[LogView], None] | None = None
        self.request_credit = 0
        self.requests: list[Request] = []

    def look_up(self, wanted: LookUp, take: Callable[[LogView], None]) -> None:
        self.take = take

    def requests_of(self, log: LogKey) -> list[Request]:
        return self.requests

    def next_number(self) -> int:
        return len(self.requests) + 1

    def may_propose(self, *_: object) -> bool:
        return True

    def propose(self, proposal: Propose, _: LogView) -> Request:
        wants = Interest(eagerness=proposal.eagerness)
        number = proposal.request
        made = Request(number, number, True, proposal, wants, Interest(), 0.0)
        self.requests.append(made)
        return made


def test_what_waited_for_its_turn_is_not_asked_for_if_something_else_brings_it_by_then() -> None:
    actions, view = Idle(), LogView(LOG, newest=4, missing_payloads=((2, 0), (4, 0)))
    mender = Mender(cast("Actions", actions), Settling())
    mender.begin(view, ((1, 4),), (0, 100))
    hashes = {2: b"h2", 4: b"h4"}
    for seen in (view, replace(view, hashes=hashes)):
        assert actions.take is not None
        actions.take(seen)
    mender.advance(others_wait=False)
    other = Propose(1, LOG, 4, None, 0, 100, b"h4", Eagerness.ALL, end=4, upper_info=4, offset=0)
    actions.propose(other, view)
    actions.request_credit = 9
    mender.advance(others_wait=False)
    assert [request.proposal.start for request in actions.requests] == [4, 2]


def test_ranges_that_were_looked_at_are_joined_if_they_are_many() -> None:
    """What lies between two of them is asked for when everything is asked for again."""
    actions = Idle()
    mender = Mender(cast("Actions", actions), Settling())
    last = 4 * RANGES_MAX
    for seq in range(1, last, 2):
        view = LogView(LOG, newest=last, missing_payloads=((seq, 0),))
        mender.begin(view, ((seq, seq),), (0, 100))
        assert actions.take is not None
        actions.take(LogView(LOG, newest=last))
    assert len(mender._begun[LOG, False]) == RANGES_MAX
    assert all(mender.has_begun(LOG, seq) for seq in range(1, last, 2))
    assert not mender.has_begun(LOG, last - 2)
    mender.ask_again(LOG)
    assert not any(mender.has_begun(LOG, seq) for seq in range(1, last))
