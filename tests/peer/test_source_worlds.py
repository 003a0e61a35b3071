"""Three stores, all linked, one source for each log in each: any order, and all end equal.

Sessions are raised and lowered by the book of sources at any moment, links are lost, and every
session judges every byte of the others: nothing that happens may break a rule of the protocol.
"""

from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from nacl.signing import SigningKey

from peer.planner.source_book import SourceBook
from peer.planner.source_records import Reads, SourceSeat
from peer.planner.sourcing import Claim
from peer.protocol.events import Interests
from wire import LogKey

from .rig import Author, Pair, Store

AUTHOR = Author(SigningKey(b"b" * 32))
LOGS = [LogKey(AUTHOR.id, n) for n in range(2)]
FOLLOWS = Interests(logs=frozenset(LOGS))
ENDS = [(0, 1), (1, 2), (2, 0)]
"""Which stores each link joins."""
LINKS = st.integers(0, 2)
SIDES = st.integers(0, 1)


class Worlds(RuleBasedStateMachine):
    """Node n has store n and book n, and a seat in it for each end of a link."""

    def __init__(self) -> None:
        super().__init__()
        self.stores = [Store() for _ in range(3)]
        self.books = [SourceBook() for _ in range(3)]
        self.links = [
            Pair(credit=900, stores=(self.stores[left], self.stores[right])) for left, right in ENDS
        ]
        self.seats: dict[tuple[int, int], SourceSeat] = {}
        self.now = 0.0

    @initialize(counts=st.tuples(st.integers(0, 12), st.integers(0, 5)), holder=st.integers(0, 2))
    def histories(self, counts: tuple[int, int], holder: int) -> None:
        for log, count in zip(LOGS, counts, strict=True):
            for n in range(count):
                self.stores[holder].append(AUTHOR, log.log_id, b"h" * n * 11)
        for number in range(3):
            self.connect(number)

    def connect(self, number: int) -> None:
        claims: list[Claim] = []
        for side, node in enumerate(ENDS[number]):
            reads = partial(self.reads, number, side)
            seat = self.seats[number, side] = self.books[node].join(f"link {number}", reads)
            claims.append(partial(self.claim, node, seat))
        self.links[number].connect((FOLLOWS, FOLLOWS), claims=(claims[0], claims[1]))

    def reads(self, number: int, side: int) -> Reads:
        return self.links[number].engine(side).reads

    def claim(self, node: int, seat: SourceSeat, log: LogKey, brought: int = 0, /) -> bool:
        return self.books[node].claim(seat, log, self.now, brought)

    def tell(self) -> None:
        """What sessions noticed goes to the books, and what these decide to the sessions."""
        for (number, side), seat in self.seats.items():
            host = self.links[number].hosts[side]
            host.collect()
            for notice in host.notices:
                self.books[ENDS[number][side]].took(seat, notice, self.now)
            host.notices.clear()
        for node, book in enumerate(self.books):
            for log in LOGS:
                book.stands(log, self.stores[node].height(log), self.now)
            for seat, change in book.take_changes():
                [place] = [place for place, each in self.seats.items() if each is seat]
                self.links[place[0]].hosts[place[1]].todo.append(change)

    @rule(payload=st.integers(0, 500).map(lambda n: b"x" * n), log=st.sampled_from(LOGS))
    def append(self, payload: bytes, log: LogKey) -> None:
        """The author writes where the log is longest."""
        store = max(self.stores, key=lambda each: each.height(log))
        if store.height(log) == max(store.logs[log], default=0):
            store.append(AUTHOR, log.log_id, payload)

    @rule(link=LINKS, side=SIDES, choices=st.lists(st.integers(0, 20), min_size=1, max_size=8))
    def carry_out(self, link: int, side: int, choices: list[int]) -> None:
        for choice in choices:
            self.links[link].hosts[side].step(choice)
        self.tell()

    @rule(link=LINKS, side=SIDES, data_max=st.integers(0, 400))
    def send(self, link: int, side: int, data_max: int) -> None:
        self.links[link].pump(side, data_max=data_max)

    @rule(link=LINKS, side=SIDES, size=st.integers(1, 300))
    def deliver_control(self, link: int, side: int, size: int) -> None:
        self.links[link].deliver_control(side, size)
        self.tell()

    @rule(link=LINKS, side=SIDES, size=st.integers(1, 500))
    def deliver_data(self, link: int, side: int, size: int) -> None:
        self.links[link].deliver_data(side, size)
        self.tell()

    @rule(seconds=st.floats(0, 4))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for link in self.links:
            link.tick(seconds)
        for book in self.books:
            book.advance(self.now)
        self.tell()

    @rule(link=LINKS)
    def lose(self, link: int) -> None:
        """A link is lost and made again; its sessions leave their books."""
        self.links[link].disconnect()
        for side in (0, 1):
            self.books[ENDS[link][side]].leave(self.seats.pop((link, side)), self.now)
        self.connect(link)
        self.tell()

    def teardown(self) -> None:
        if not self.seats:
            return
        for _ in range(80):
            for link in self.links:
                link.run()
            self.wait(0.5)
        for log in LOGS:
            views = [store.logs[log] for store in self.stores]
            assert views[0] == views[1] == views[2]
            assert all(held.payload is not None for held in views[0].values())


TestWorlds = Worlds.TestCase
TestWorlds.settings = settings(max_examples=25, stateful_step_count=50, deadline=None)
