"""What is withheld of own logs, for how long, and what lets it go: a session against a script."""

import pytest

from bymux import Role
from logstore import WriteScope
from peer import Scope
from peer.planner.silence import Silences
from tests.bymux.factory import PONG, packet
from tests.conformance.histories import Library
from tests.conformance.memory import CONFIG, MemoryLink
from tests.conformance.script import CREDIT_GIVEN, Speaker
from tests.records import replace
from wire import Adjust, Cancel, CancelReason, Eagerness, Propose

COUNT = 12
SILENCE_S = CONFIG.silence_s
MOMENT_S = 0.01


class Meeting:
    """A session that has an own log nobody else has, and whoever met it."""

    def __init__(self, *, proactive: bool, answers_pings: bool = True) -> None:
        library = Library()
        self.link = MemoryLink(Role.PROACTIVE if proactive else Role.REACTIVE, library)
        self.other = Speaker(self.link, library, proactive=not proactive)
        self.other.answers_pings = answers_pings
        self.other.begin()
        self.log = library.fresh_own()
        self.link.author(self.log, COUNT)
        self.other.on_proposal = self._refuse_offers
        self.other.grant(CREDIT_GIVEN)

    def _refuse_offers(self, proposal: Propose) -> None:
        """What goes on behind what the session has; what is asked of the log goes to the inbox."""
        if proposal.log == self.log.log and (proposal.sparse or proposal.end is not None):
            self.other.inbox.append(proposal)
        else:
            self.other.refuse(proposal)

    def next_proposal(self, **fields: object) -> Propose:
        """A proposal of this log."""

        def fits(found: Propose) -> bool:
            same = all(getattr(found, name) == value for name, value in fields.items())
            return found.log == self.log.log and same

        return self.other.expect(Propose, fits)

    def ask(self) -> tuple[int, Propose]:
        """Asks for all of the log as a closed range; the question that comes of it."""
        number = self.other.open(self.log, 1, end=COUNT)
        return number, self.next_proposal(sparse=True)

    def refuse_from_now_on(self) -> None:
        """Whatever else the session asks."""
        self.other.on_proposal = self.other.refuse

    def is_served(self, number: int) -> None:
        self.other.expect_switch(number)
        self.other.expect_entries(self.log, range(1, COUNT + 1))


@pytest.fixture(params=[False, True], ids=["reactive", "proactive"])
def proactive(request: pytest.FixtureRequest) -> bool:
    """Whether the session that withholds is."""
    return bool(request.param)


def test_a_refused_question_lets_go_at_once(proactive: bool) -> None:
    met = Meeting(proactive=proactive)
    number, question = met.ask()
    met.other.nothing_came()
    met.other.refuse(question)
    met.is_served(number)


def test_silence_lets_go_after_three_seconds(proactive: bool) -> None:
    met = Meeting(proactive=proactive)
    number, _ = met.ask()
    met.other.wait(SILENCE_S - MOMENT_S)
    met.other.nothing_came()
    met.other.wait(2 * MOMENT_S)
    met.is_served(number)


def test_a_slow_link_lets_nothing_go(proactive: bool) -> None:
    """Time counts from the pong on, however late that comes."""
    met = Meeting(proactive=proactive, answers_pings=False)
    number, _ = met.ask()
    met.other.wait(10 * SILENCE_S)
    met.other.nothing_came()
    met.other.mux(packet(PONG, None))
    met.other.wait(SILENCE_S - MOMENT_S)
    met.other.nothing_came()
    met.other.wait(2 * MOMENT_S)
    met.is_served(number)


def test_the_answer_to_an_earlier_ping_says_nothing_of_the_question(proactive: bool) -> None:
    """Whether the other side is alive was asked before: that pong comes first."""
    met = Meeting(proactive=proactive, answers_pings=False)
    met.other.nothing_came()
    met.other.wait(CONFIG.ping_after_s)
    met.other.nothing_came()
    assert met.other.pings == 1
    # What comes in shows that the other side is alive, but does not answer that ping.
    number, _ = met.ask()
    met.other.nothing_came()
    assert met.other.pings == 2
    met.other.mux(packet(PONG, None))
    met.other.wait(2 * SILENCE_S)
    met.other.nothing_came()
    met.other.mux(packet(PONG, None))
    met.other.wait(SILENCE_S)
    met.is_served(number)


def test_an_unanswered_question_does_not_end_the_connection(proactive: bool) -> None:
    met = Meeting(proactive=proactive)
    number, _ = met.ask()
    met.other.wait(SILENCE_S)
    met.is_served(number)
    met.refuse_from_now_on()
    for _ in range(4):
        met.other.wait(CONFIG.unanswered_timeout_s / 2)
        met.other.mux_ping()
    met.other.alive()


def test_an_answer_that_comes_after_all_is_heard(proactive: bool) -> None:
    """A second machine that took its time: what it was taken for was a guess."""
    met = Meeting(proactive=proactive)
    number, question = met.ask()
    met.other.wait(SILENCE_S)
    met.is_served(number)
    met.other.control(Adjust(question.request, eagerness=Eagerness.NOTIFY, end=COUNT))
    met.next_proposal(start=COUNT, end=COUNT)
    met.other.expect_end(number)
    again = met.other.open(met.log, 1, end=COUNT)
    met.other.nothing_came()
    # Its proposal gave way to ours, and is made once more.
    met.other.refuse(met.next_proposal(start=COUNT, end=COUNT))
    met.is_served(again)


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_question_outlasts_a_scope_in_which_nothing_is_taken(
    proactive: bool, is_answered: bool
) -> None:
    """Ended from here it would count as silence, or as an answer, and show nothing."""
    met = Meeting(proactive=proactive)
    number, question = met.ask()
    met.other.control(Adjust(question.request, eagerness=Eagerness.NOTIFY, end=COUNT))
    question = met.next_proposal(start=COUNT, end=COUNT)
    if is_answered:
        met.other.control(Adjust(question.request, eagerness=Eagerness.NOTIFY))
    met.other.nothing_came()
    met.link.narrow(Scope(None, WriteScope.NONE, bytes(32)))
    met.other.silent(Cancel, lambda found: found.request == question.request)
    met.other.nothing_came()
    met.other.refuse(question)
    met.is_served(number)


def test_a_refused_offer_shows_nothing(proactive: bool) -> None:
    """A second machine, behind and on another branch, refuses it to ask for what it lacks."""
    met = Meeting(proactive=proactive)
    met.other.nothing_came()
    wrong = replace(met.log.propose(0, 7), starting_hash=met.log.hash(1)).starting_hash
    number = met.other.propose(met.log, 7, starting_hash=wrong)
    assert met.other.expect_cancel(number, CancelReason.NOT_WANTED).entries == ()
    met.other.end(number)
    met.other.nothing_came()


def test_silences_count_from_the_pong_of_a_ping_behind_the_question() -> None:
    silences = Silences[str](3.0)
    silences.begin("first")
    assert silences.wants_ping
    silences.ping_sent()
    silences.begin("second")
    assert silences.next_at() is None
    silences.pong_came(10.0)
    assert silences.next_at() == 13.0
    assert list(silences.take_due(12.9)) == []
    assert list(silences.take_due(13.0)) == ["first"]
    assert silences.wants_ping
    silences.ping_sent()
    silences.end("second")
    silences.pong_came(20.0)
    assert silences.next_at() is None


def test_a_question_that_is_asked_again_waits_anew() -> None:
    silences = Silences[str](3.0)
    for now in (0.0, 2.0):
        silences.begin("it")
        silences.ping_sent()
        silences.pong_came(now)
    assert list(silences.take_due(4.9)) == []
    assert list(silences.take_due(5.0)) == ["it"]
