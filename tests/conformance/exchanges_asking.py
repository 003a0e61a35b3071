"""Exchanges with an end that only asks: it wants one thing, and refuses whatever it is asked.

Such an end is served all the same. Of a log of the endpoint's own that nobody else has yet, a node
first asks what the other side holds (peer/planner/withholding.py): who refuses that is served at
once, who says nothing to it 3 s after it has shown that the question is there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from wire import Propose, shortest_path

from .cases import CASES, Case, Need
from .histories import SHARED_COUNT, History
from .script import CREDIT_GIVEN, Speaker

RULE = "P2P-8.26"
OWN_COUNT = 12
"""Entries of a log that nobody else has."""
END = 12
SILENCE_S = 3.0
MOMENT_S = 0.01


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for, and what then comes."""

    start: int = 1
    fields: dict[str, object] = field(default_factory=dict)

    def ask(self, p: Speaker, history: History) -> int:
        return p.open(history, self.start, **self.fields)

    def read(self, p: Speaker, history: History, newest: int) -> None:
        end = self.fields.get("end", newest)
        assert isinstance(end, int)
        for seq in range(self.start, end + 1):
            if not self.fields.get("payloads_only"):
                p.expect_metadata(history, seq, first=seq == self.start)
            p.expect_payload(history, seq)


class Path(Wish):
    """The shortest path from the end, or the newest entry, to the start."""

    def read(self, p: Speaker, history: History, newest: int) -> None:
        end = self.fields.get("end", newest)
        assert isinstance(end, int)
        for seq in sorted(shortest_path(end, self.start)):
            p.expect_metadata(history, seq, first=True)
            p.expect_payload(history, seq)


class Inside(Wish):
    """The first payload from its second byte on."""

    def read(self, p: Speaker, history: History, newest: int) -> None:
        p.expect_payload(history, self.start, offset=1)
        p.expect_metadata(history, self.start + 1, first=True)
        p.expect_payload(history, self.start + 1)


WISHES = {
    "a closed range": Wish(1, {"end": END}),
    "all": Wish(1),
    "all behind what it has": Wish(7),
    "a path": Path(1, {"end": END, "sparse": True}),
    "the path to the newest entry": Path(1, {"sparse": True}),
    "payloads alone": Wish(2, {"end": 5, "payloads_only": True}),
    "the rest of a payload": Inside(3, {"offset": 1, "end": 4}),
}


def refuse_all(p: Speaker, proposal: Propose) -> None:
    p.refuse(proposal)


def leave_questions(p: Speaker, proposal: Propose) -> None:
    """What asks for the newest entry gets no answer at all."""
    if not proposal.sparse:
        p.refuse(proposal)


MANNERS: dict[str, tuple[Callable[[Speaker, Propose], None], int, bool]] = {
    "refuses all it is asked": (refuse_all, CREDIT_GIVEN, False),
    "says nothing to questions": (leave_questions, CREDIT_GIVEN, True),
    "grants no credit to ask it": (refuse_all, 0, True),
    "grants credit that offers use up": (refuse_all, 1, True),
}
"""How it takes what it is asked, its request credit, and whether it is waited for."""


def play(wish: Wish, manner: str, own: bool, p: Speaker) -> None:
    on_proposal, credit, waits = MANNERS[manner]
    p.on_proposal = partial(on_proposal, p)
    if credit:
        p.grant(credit)
    history, newest = p.library.shared, SHARED_COUNT
    if own:
        history, newest = p.library.fresh_own(), OWN_COUNT
        p.link.author(history, OWN_COUNT)
    number = wish.ask(p, history)
    # Who asks for all of a log has none of it, and so nothing that contradicts it.
    if own and waits and wish != Wish(1):
        p.wait(SILENCE_S - MOMENT_S)
        p.nothing_came()
        p.wait(2 * MOMENT_S)
    p.expect_switch(number)
    wish.read(p, history, newest)


def _cases() -> list[Case]:
    found = []
    for own in (False, True):
        for manner, (_, _, waits) in MANNERS.items():
            for words, wish in WISHES.items():
                of = "a log of the endpoint's own" if own else "another's log"
                needs = {Need.OWN} if own else set()
                if own and waits:
                    needs.add(Need.CLOCK)
                name = f"an end that {manner} gets {words} of {of}"
                script = partial(play, wish, manner, own)
                found.append(Case(name, (RULE,), script, needs=frozenset(needs)))
    return found


CASES.extend(_cases())
