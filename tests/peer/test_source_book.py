"""One source for each log, and another one when it brings nothing (point2point.md 4 and 5)."""

from weakref import ref

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from peer.planner.source_book import BEHIND_MAX_S, GRACE_S, QUEUE_S, START_S, SourceBook
from peer.planner.source_records import HOLD_FIRST_S, HOLD_MAX_S, SILENCE_S, WINDOW_S, SourceSeat
from peer.protocol.events import SourceChanged
from peer.protocol.notices import PayloadsReceived
from wire import LogKey

from .desk import LOG, LOGS, Desk, Shown, claimed, moments


def test_the_first_one_gets_it_and_keeps_it() -> None:
    desk = Desk("a", "b")
    assert [desk.claim(0), desk.claim(1), desk.claim(0)] == [True, False, True]
    desk.wait(3600)
    assert (desk.source, desk.told, desk.book.deadline) == ("a", [], None)


def test_nothing_happens_while_nobody_holds_more_than_we_do() -> None:
    desk = claimed("a", "b")
    desk.stands(9)
    desk.peer_holds(1, 9, held=9)
    assert desk.book.deadline is None


def test_a_source_that_is_not_known_to_hold_it_loses_it_soon() -> None:
    desk = claimed("a", "b")
    desk.wait(60)
    desk.peer_holds(1, 5)
    desk.wait(GRACE_S / 2)
    assert desk.source == "a"
    desk.wait(GRACE_S)
    assert desk.told == [("a", False), ("b", True)]


def test_a_source_that_brings_it_in_time_keeps_it() -> None:
    desk = claimed("a", "b")
    desk.wait(60)
    desk.peer_holds(1, 5)
    desk.wait(GRACE_S / 2)
    desk.brings(0, 5)
    desk.wait(3600)
    assert (desk.source, desk.told) == ("a", [])


def test_what_came_and_is_not_stored_yet_is_not_missed() -> None:
    """Checking signatures may take longer than a source may be quiet."""
    desk = claimed("a", "b")
    desk.brings(0, 1000)
    desk.peer_holds(1, 900)
    desk.wait(3600)
    assert desk.source == "a"


def test_a_source_that_goes_quiet_in_the_middle_loses_it_after_two_seconds() -> None:
    desk = claimed("a", "b")
    desk.peer_holds(1, 100)
    for newest in range(1, 20):
        desk.wait(SILENCE_S / 2)
        desk.brings(0, newest, 200_000)
    assert desk.source == "a"
    desk.wait(SILENCE_S + GRACE_S)
    assert desk.source == "b"


def test_a_source_that_leaves_is_replaced_at_once_by_who_holds_more() -> None:
    desk = claimed("a", "b", "c")
    desk.peer_holds(2, 7)
    desk.leaves(0)
    assert desk.told == [("c", True)]


def test_nobody_is_told_when_a_source_leaves_a_log_that_is_in_step() -> None:
    """A thousand logs in step cost nothing when a peer hangs up; who brings news gets the log."""
    desk = claimed("a", "b")
    desk.leaves(0)
    assert (desk.source, desk.told) == (None, [])
    desk.peer_holds(1, 3)
    assert desk.told == [("b", True)]


def test_a_source_that_leaves_inside_a_large_payload_is_replaced() -> None:
    desk = claimed("a", "b")
    desk.peer_holds(1, 4)
    desk.stands(4)
    desk.brings(0, 4, inside=True)
    desk.leaves(0)
    assert desk.told == [("b", True)]
    desk.book.took(desk.seats[1], PayloadsReceived(LOG, 4, 10), desk.now)
    desk.book.leave(desk.seats[1], desk.now)
    desk.wait(10)
    assert (desk.source, desk.book.deadline) == (None, None)


def test_a_refused_source_is_replaced_and_may_come_again() -> None:
    desk = claimed("a", "b")
    desk.peer_holds(1, 4)
    desk.ends(0, listens=False)
    assert desk.told == [("b", True)]
    assert not desk.claim(0)
    desk.ends(1, listens=False)
    assert desk.claim(0)


def test_who_is_refused_while_it_listens_is_asked_for_nothing() -> None:
    """And it costs no memory: a peer may refuse ten thousand logs."""
    desk = claimed("a", "b")
    desk.peer_holds(1, 4)
    desk.ends(1, listens=False)
    desk.ends(0, listens=False)
    assert (desk.told, desk.seats[1].logs, desk.book.standing(desk.seats[1], LOG)) == ([], {}, None)


def test_a_source_that_goes_on_listening_can_be_asked_again() -> None:
    desk = claimed("a")
    desk.ends(0, listens=True)
    assert desk.source is None
    desk.peer_holds(0, 4)
    assert desk.told == [("a", True)]


def test_what_came_unasked_and_could_not_be_kept_is_lacking_again() -> None:
    """An offer was taken from who is not the source, whose peer holds nothing."""
    desk = claimed("a", "b")
    desk.peer_holds(1, 1)
    desk.brings(1, 1)
    desk.wait(60.0)
    assert desk.told == []
    desk.ends(1, listens=True)
    desk.wait(GRACE_S)
    assert desk.told == [("a", False), ("b", True)]


def test_two_quiet_peers_do_not_play_ping_pong() -> None:
    """Each loss keeps a source away twice as long."""
    desk = claimed("a", "b")
    desk.peer_holds(1, 50)
    desk.peer_holds(0, 50)
    desk.wait(600)
    assert 2 <= desk.book.switches <= 14
    before = desk.book.switches
    desk.wait(600)
    assert desk.book.switches - before <= 3


def test_who_has_ended_its_fetch_is_not_asked_again_for_the_same() -> None:
    """What nobody here wants of the log is lacking for ever."""
    desk = claimed("a", "b")
    desk.peer_holds(1, 50)
    desk.peer_holds(0, 50)
    for number in (0, 1, 0, 1):
        desk.ends(number, listens=True)
    assert (desk.told, desk.source) == ([("b", True)], None)
    desk.peer_holds(0, 51)
    assert desk.told == [("b", True), ("a", True)]


def test_who_forgets_a_log_and_wants_it_again_is_not_asked_sooner_for_that() -> None:
    """Its peer holds what it held; only more than that is a reason."""
    desk = claimed("a", "b")
    desk.peer_holds(0, 50)
    desk.peer_holds(1, 50)
    desk.ends(0, listens=False)
    assert desk.told == [("b", True)]
    assert not desk.claim(0)
    desk.peer_holds(0, 50)
    desk.ends(1, listens=True)
    assert (desk.told, desk.source) == ([("b", True)], None)
    desk.peer_holds(0, 51)
    assert desk.told == [("b", True), ("a", True)]


def test_who_could_bring_nothing_is_asked_again_after_longer_and_longer_pauses() -> None:
    desk = claimed("a", "b")
    desk.peer_holds(1, 50)
    desk.peer_holds(0, 50)
    for _ in range(60):
        for number in (0, 1):
            desk.ends(number, listens=True)
        desk.wait(10)
    assert 4 <= len(desk.told) <= 14
    desk.brings(0, 20)
    before = len(desk.told)
    desk.wait(HOLD_MAX_S)
    assert len(desk.told) > before


def test_who_comes_to_hold_it_is_asked_although_all_others_are_to_be_left_alone() -> None:
    desk = claimed("a", "b", "c")
    desk.peer_holds(0, 50)
    desk.peer_holds(1, 50)
    while desk.now < 300:
        desk.wait(1)
        if desk.source == "b":
            desk.ends(1, listens=True)
    assert desk.source == "a"
    desk.peer_holds(2, 50)
    desk.wait(SILENCE_S)
    assert desk.source == "c"


def test_what_is_noted_of_who_forgets_a_log_is_over_when_it_leaves() -> None:
    desk = claimed("a", "b")
    desk.peer_holds(0, 60)
    desk.ends(0, listens=False)
    assert desk.seats[0].spent.until(LOG, 60) > desk.now
    desk.leaves(0)
    left = ref(desk.seats.pop(0))
    assert left() is None


def test_a_slow_source_gives_way_and_a_fast_one_does_not() -> None:
    for size, expected in ((20_000, "b"), (200_000, "a")):
        desk = claimed("a", "b")
        desk.peer_holds(1, 10_000)
        for newest in range(1, 13):
            desk.wait(1)
            if desk.source == "a":
                desk.brings(0, newest, size)
        assert desk.source == expected


def test_a_source_whose_data_waits_for_our_disk_is_neither_quiet_nor_slow() -> None:
    desk = claimed("a", "b")
    desk.peer_holds(1, 10_000)
    desk.brings(0, 1, 2_000)
    desk.shown[0].is_behind = True
    desk.wait(BEHIND_MAX_S)
    for newest in range(2, 60):
        desk.wait(1)
        desk.brings(0, newest, 2_000)
    assert (desk.source, desk.told) == ("a", [])
    assert desk.claim(1) is False
    desk.wait(BEHIND_MAX_S + SILENCE_S)
    assert (desk.source, desk.told) == ("b", [("a", False), ("b", True)])


def test_between_two_slow_sources_a_log_changes_hands_once() -> None:
    """Both are measured then, and a change costs what is under way."""
    desk = claimed("a", "b")
    desk.peer_holds(1, 10_000)
    for newest in range(1, 200):
        desk.wait(1)
        source = 0 if desk.source == "a" else 1
        desk.peer_holds(1 - source, 10_000)
        desk.brings(source, newest, 2_000)
    assert (desk.source, desk.book.switches) == ("b", 1)


def test_a_source_is_slow_beside_one_that_was_much_faster() -> None:
    desk = claimed("a", "b")
    desk.seats[1].fastest = 50e6
    desk.peer_holds(1, 10_000)
    for newest in range(1, 13):
        desk.wait(1)
        desk.brings(0, newest, 200_000)
    assert desk.source == "b"


def test_small_news_tell_nothing_of_how_fast_who_brings_them_is() -> None:
    """An entry an hour is no measure: it comes when it is made."""
    desk = claimed("fast", "slow")
    for newest in range(1, 11):
        desk.wait(3600)
        desk.brings(0, newest, 300)
        desk.stands(newest)
    desk.peer_holds(1, 11, held=10)
    desk.wait(1)
    assert desk.source == "slow"
    desk.peer_holds(0, 11, held=10)
    desk.told.clear()
    for _ in range(80):
        desk.brings(
            desk.source != "fast", 11, 100 if desk.source == "slow" else 100_000, inside=True
        )
        desk.wait(0.1)
    assert desk.told == [("slow", False), ("fast", True)]


def test_who_did_not_hold_what_another_one_told_of_may_get_the_log_back_at_once() -> None:
    desk = claimed("a", "b")
    desk.peer_holds(1, 1)
    desk.wait(START_S + 2 * GRACE_S)
    assert desk.source == "b"
    desk.peer_holds(0, 1)
    desk.wait(START_S + SILENCE_S)
    assert desk.source == "a"


@pytest.mark.parametrize("speed", [10, 100_000])
def test_an_offer_that_trickles_is_left_to_the_source_if_that_holds_it_too(speed: int) -> None:
    desk = claimed("source", "other")
    desk.brings(0, 4)
    for newest in range(1, 4):
        desk.stands(newest)
    desk.peer_holds(0, 9, held=3)
    for _ in range(20):
        desk.brings(1, 5, speed // 4, inside=True)
        desk.brings(0, 6, 1_000_000)
        desk.wait(0.25)
        if desk.told:
            break
    expected = [("other", False), ("source", True)] if speed < 1000 else []
    assert desk.told == expected
    assert desk.source == "source"


def test_an_offer_that_goes_quiet_is_left_to_the_source() -> None:
    desk = claimed("source", "other")
    desk.peer_holds(0, 9)
    desk.brings(1, 5, 500_000, inside=True)
    for _ in range(10):
        desk.brings(0, 6)
        desk.wait(0.25)
    assert desk.told == [("other", False), ("source", True)]


def test_a_trickling_offer_is_all_there_is_while_nobody_else_holds_it() -> None:
    desk = claimed("source", "other")
    desk.peer_holds(0, 4)
    for _ in range(100):
        desk.brings(1, 5, 10, inside=True)
        desk.wait(0.25)
    assert ("other", False) not in desk.told


def test_logs_that_wait_for_a_busy_source_are_shared_out() -> None:
    """A new source has less to do than the old one, or the log stays."""
    desk = Desk("a", "b")
    logs = [LogKey(bytes([n]) * 32, 1) for n in range(100)]
    for log in logs:
        desk.claim(0, log)
    for log in logs:
        desk.claim(1, log)
        desk.peer_holds(1, 9, log=log)
    for step in range(40):
        desk.brings(0, step, 100_000)
        desk.wait(0.05)
    held = [seat.name for _, seat in desk.book.sources()]
    assert 40 <= held.count("b") <= 60


def test_a_log_does_not_wait_for_ever_behind_others() -> None:
    desk = Desk("a", "b")
    for log in LOGS:
        desk.claim(0, log)
        desk.claim(1, log)
    for log in LOGS[1:]:
        desk.peer_holds(0, 9, log=log)
    desk.seats[1].busy = 5
    desk.peer_holds(1, 9)
    for newest in range(60):
        desk.brings(0, newest, 300_000, log=LOGS[1])
        desk.wait(0.2)
    assert desk.source == "b"
    assert desk.now < START_S + QUEUE_S + WINDOW_S + HOLD_FIRST_S


def test_a_peer_that_is_known_to_bring_more_than_an_idle_source_gets_its_claim() -> None:
    desk = claimed("a", "b")
    desk.wait(60)
    desk.peer_holds(1, 5)
    desk.wait(GRACE_S / 2)
    assert desk.claim(1)
    desk.deliver()
    assert desk.told == [("a", False)]


def test_who_has_left_is_told_nothing() -> None:
    desk = claimed("a", "b")
    desk.book.took(desk.seats[1], desk.shown[1].tells(LOG, 5, 0), desk.now)
    desk.book.leave(desk.seats[0], desk.now)
    desk.book.leave(desk.seats[1], desk.now)
    assert desk.book.take_changes() == []
    assert list(desk.book.sources()) == []


def test_logs_that_are_in_step_are_in_no_line() -> None:
    desk = Desk(*(f"peer {n}" for n in range(50)))
    logs = [LogKey(n.to_bytes(32, "big"), 0) for n in range(1000)]
    for log in logs:
        for number in range(50):
            desk.claim(number, log)
    assert desk.book.deadline is None
    for seat in desk.seats:
        desk.book.leave(seat, desk.now)
    assert list(desk.book.sources()) == []


SEATS = st.integers(0, 3)


class Sessions(RuleBasedStateMachine):
    """Peers that hold, say, bring and leave as they like; the world is what they really do."""

    def __init__(self) -> None:
        super().__init__()
        self.book = SourceBook()
        self.now = 0.0
        self.seats: list[SourceSeat | None] = [None] * 4
        self.shown = [Shown() for _ in range(4)]
        self.fetching: list[set[LogKey]] = [set() for _ in range(4)]
        self.wanted: list[set[LogKey]] = [set() for _ in range(4)]
        self.peers = [dict.fromkeys(LOGS, 0) for _ in range(4)]
        self.told_of = [dict.fromkeys(LOGS, 0) for _ in range(4)]
        self.held = dict.fromkeys(LOGS, 0)
        self.quiet = [False] * 4

    def deliver(self) -> None:
        for seat, change in self.book.take_changes():
            assert seat in self.seats
            self.apply(self.seats.index(seat), change)

    def apply(self, number: int, change: SourceChanged) -> None:
        if change.fetch:
            assert change.log in self.wanted[number]
            self.fetching[number].add(change.log)
        else:
            self.fetching[number].discard(change.log)

    @rule(number=SEATS, log=st.sampled_from(LOGS))
    def wants(self, number: int, log: LogKey) -> None:
        seat = self.seats[number]
        if seat is None:
            shown = self.shown[number] = Shown()
            seat = self.seats[number] = self.book.join(f"peer {number}", lambda: shown)
        self.shown[number].not_wanted.discard(log)
        self.wanted[number].add(log)
        if self.book.claim(seat, log, self.now):
            self.fetching[number].add(log)
        self.deliver()

    @rule(number=SEATS, log=st.sampled_from(LOGS), more=st.integers(1, 5))
    def peer_gets(self, number: int, log: LogKey, more: int) -> None:
        self.peers[number][log] += more

    @rule(number=SEATS, log=st.sampled_from(LOGS))
    def tells(self, number: int, log: LogKey) -> None:
        seat, newest = self.seats[number], self.peers[number][log]
        if seat is None or log not in self.wanted[number] or log in self.fetching[number]:
            return
        if newest > self.held[log]:
            self.told_of[number][log] = newest
            self.book.took(seat, self.shown[number].tells(log, newest, self.held[log]), self.now)
            self.deliver()

    @rule(number=SEATS, log=st.sampled_from(LOGS))
    def brings(self, number: int, log: LogKey) -> None:
        seat, newest = self.seats[number], self.peers[number][log]
        if seat is None or log not in self.fetching[number] or self.quiet[number]:
            return
        if newest > self.held[log]:
            self.book.took(seat, self.shown[number].brings(log, 300_000, newest), self.now)
            self.held[log] = newest
            self.book.stands(log, newest, self.now)
            self.deliver()

    @rule(log=st.sampled_from(LOGS), fewer=st.integers(1, 3))
    def author_makes_it_invalid(self, log: LogKey, fewer: int) -> None:
        """What was held is dropped, and lacking again."""
        self.held[log] = max(0, self.held[log] - fewer)
        self.book.stands(log, self.held[log], self.now)
        self.deliver()

    @rule(number=SEATS, log=st.sampled_from(LOGS))
    def is_refused(self, number: int, log: LogKey) -> None:
        seat = self.seats[number]
        if seat is not None and log in self.fetching[number]:
            self.fetching[number].discard(log)
            self.wanted[number].discard(log)
            self.told_of[number][log] = 0
            self.book.took(seat, self.shown[number].ends(log, listens=False), self.now)
            self.deliver()

    @rule(number=SEATS)
    def leaves(self, number: int) -> None:
        seat, self.seats[number] = self.seats[number], None
        if seat is not None:
            self.fetching[number].clear()
            self.wanted[number].clear()
            self.told_of[number] = dict.fromkeys(LOGS, 0)
            self.book.leave(seat, self.now)
            self.deliver()

    @rule(number=SEATS, quiet=st.booleans())
    def goes_quiet(self, number: int, quiet: bool) -> None:
        self.quiet[number] = quiet

    @rule(seconds=st.floats(0.01, 8))
    def time_passes(self, seconds: float) -> None:
        until = self.now + seconds
        for _ in moments(self.book, self.now, until):
            self.deliver()
        self.now = until

    @invariant()
    def one_fetches(self) -> None:
        for log in LOGS:
            assert sum(log in each for each in self.fetching) <= 1

    @invariant()
    def somebody_fetches_what_is_offered(self) -> None:
        for log in LOGS:
            offered = any(told[log] > self.held[log] for told in self.told_of)
            if offered:
                assert any(log in each for each in self.fetching)

    def teardown(self) -> None:
        """Whoever brings something gets its turn, however many are quiet."""
        for log in LOGS:
            able = [n for n in range(4) if self.told_of[n][log] > self.held[log]]
            loud = [n for n in able if not self.quiet[n]]
            if not loud:
                continue
            for _ in range(60):
                if any(log in self.fetching[n] for n in loud):
                    break
                self.time_passes(1.0)
            else:
                pytest.fail("nobody who can bring it fetches the log")


TestSessions = Sessions.TestCase
TestSessions.settings = settings(stateful_step_count=40)
