"""What is remembered of payloads that were asked for is bounded, and nothing is lost by that."""

from collections.abc import Iterable

import pytest

from peer.planner import peer_log, rests
from peer.planner.rests import Kind
from wire import (
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    Propose,
    encode_payload_header,
    encode_request_cancelled,
    encode_switch,
)

from .impolite import LOG, Impolite, log_of, propose
from .rig import Held

RANGES_MAX = 48
"""For these tests: what is remembered grows with it, and the time that it takes with its square."""
FORGOTTEN = 20
LACKED = range(2, 2 * (RANGES_MAX + FORGOTTEN + 1) + 1, 2)
"""No two of them are neighbours, so that each is asked for alone."""
WHOLE = log_of(LACKED[-1] + 3, lambda seq: b"%d" % seq)


@pytest.fixture(autouse=True)
def _small_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rests, peer_log):
        monkeypatch.setattr(module, "RANGES_MAX", RANGES_MAX)


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


def test_payloads_that_were_refused_rest_until_the_other_side_proposes_something() -> None:
    """point2point.md 6; what was only skipped is asked for again before that."""
    peer = Refusing()
    skipped = LACKED[FORGOTTEN + 7]
    assert peer.answer(skipped=[skipped]) == list(LACKED)
    assert peer.next_try(skipped=[skipped]) == [skipped]
    assert peer.next_try(given=[skipped]) == [skipped]
    assert peer.next_try() == []
    refused = peer.engine._planner._rests.refused(LOG, Kind.PAYLOAD)
    assert len(refused) == RANGES_MAX
    assert set(LACKED) - {skipped} <= {n for first, last in refused for n in range(first, last + 1)}
    peer.control(propose(1, LACKED[-1] + 5))
    given = [seq for seq in LACKED if seq != skipped]
    asked: list[int] = []
    while starts := peer.next_try(given):
        asked += starts
    assert sorted(asked) == given
    assert all(held.payload for held in peer.store.logs[LOG].values())
