"""Three stores, two links, any policies, any order: all honest stores end equal (point2point.md 1).

A source, a relay and a sink; the author may fork, and then both histories are in the world. Host
commands are carried out in any order that commands.py allows, and each of the four byte streams of
a link delivers on its own.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from nacl.signing import SigningKey

from peer.protocol.events import Interests
from wire import LogKey

from .rig import Author, Pair, Store

AUTHOR = Author(SigningKey(b"w" * 32))
LOGS = [LogKey(AUTHOR.id, n) for n in range(2)]
LINKS = st.integers(0, 1)
SIDES = st.integers(0, 1)
PAYLOADS = st.integers(0, 300).map(lambda n: b"x" * n)
FOLLOWS = Interests(logs=frozenset(LOGS))


class Worlds(RuleBasedStateMachine):
    """Stores 0 and 1 share link 0, stores 1 and 2 share link 1."""

    def __init__(self) -> None:
        super().__init__()
        self.stores = [Store(), Store(), Store()]
        self.links = [
            Pair(credit=700, stores=(self.stores[0], self.stores[1])),
            Pair(credit=700, stores=(self.stores[1], self.stores[2])),
        ]
        self.first = self.stores[0]
        self.forked: dict[LogKey, int] = {}

    @initialize(
        counts=st.tuples(st.integers(0, 20), st.integers(0, 6)),
        fork=st.none() | st.tuples(st.integers(1, 12), st.integers(1, 12)),
        holders=st.permutations([0, 1, 2]),
    )
    def histories(
        self, counts: tuple[int, int], fork: tuple[int, int] | None, holders: list[int]
    ) -> None:
        """Log 0 has two histories if `fork` says so: from where, and how long the second one is."""
        first, second = self.stores[holders[0]], self.stores[holders[1]]
        self.first = first
        for log, count in zip(LOGS, counts, strict=True):
            for n in range(count):
                first.append(AUTHOR, log.log_id, b"h" * n * 9)
        if fork is not None and fork[0] <= counts[0]:
            at, more = fork
            held = {seq: entry for seq, entry in first.logs[LOGS[0]].items() if seq < at}
            second.logs[LOGS[0]].update(held)
            for n in range(more):
                second.append(AUTHOR, 0, b"other" * (n + 1))
            self.forked[LOGS[0]] = at
        for number in (0, 1):
            self.connect(number)

    def connect(self, number: int, policy: str = "follow", second: str = "follow") -> None:
        self.links[number].connect((FOLLOWS, FOLLOWS), policy=policy, second=second)

    @rule(payload=PAYLOADS)
    def append(self, payload: bytes) -> None:
        """The author writes where the log is longest; log 1 only, which never forks."""
        store = max(self.stores, key=lambda each: each.height(LOGS[1]))
        store.append(AUTHOR, 1, payload)

    @rule(link=LINKS, side=SIDES, choices=st.lists(st.integers(0, 20), min_size=1, max_size=6))
    def carry_out(self, link: int, side: int, choices: list[int]) -> None:
        for choice in choices:
            self.links[link].hosts[side].step(choice)

    @rule(link=LINKS, side=SIDES, data_max=st.integers(0, 400))
    def send(self, link: int, side: int, data_max: int) -> None:
        self.links[link].pump(side, data_max=data_max)

    @rule(link=LINKS, side=SIDES, size=st.integers(1, 300))
    def deliver_control(self, link: int, side: int, size: int) -> None:
        self.links[link].deliver_control(side, size)

    @rule(link=LINKS, side=SIDES, size=st.integers(1, 400))
    def deliver_data(self, link: int, side: int, size: int) -> None:
        self.links[link].deliver_data(side, size)

    @rule(link=LINKS, seconds=st.floats(0, 2))
    def wait(self, link: int, seconds: float) -> None:
        self.links[link].tick(seconds)

    @rule(link=LINKS, policies=st.tuples(*[st.sampled_from(["follow", "sync"])] * 2))
    def reconnect(self, link: int, policies: tuple[str, str]) -> None:
        self.links[link].disconnect()
        self.connect(link, *policies)

    def teardown(self) -> None:
        if not any(host.engine for link in self.links for host in link.hosts):
            return
        self.settle()
        if not any(LOGS[0] in store.forks for store in self.stores):
            # A fork of equal length shows once one history goes on: a starting hash is that of
            # one entry only.
            longest = max(store.height(LOGS[0]) for store in self.stores)
            while self.first.height(LOGS[0]) <= longest:
                self.first.append(AUTHOR, 0, b"shows")
        for number, link in enumerate(self.links):
            link.disconnect()
            self.connect(number)
        self.settle()
        self.check()
        for _ in range(2):
            for number, link in enumerate(self.links):
                link.disconnect()
                self.connect(number, "sync", "follow" if number else "sync")
            self.settle()
        self.check()
        for link in self.links:
            assert any(type(notice).__name__ == "SyncFinished" for notice in link.hosts[0].notices)

    def settle(self) -> None:
        for _ in range(12):
            for link in self.links:
                link.run(advance_s=1.0)

    def check(self) -> None:
        for log in LOGS:
            at = self.forked.get(log)
            views = [
                {seq: held for seq, held in store.logs[log].items() if at is None or seq < at}
                for store in self.stores
            ]
            assert views[0] == views[1] == views[2]
            assert all(held.payload is not None for held in views[0].values())
            for store in self.stores:
                assert (store.forks[log][0] if log in store.forks else None) == at
        for link in self.links:
            for side in (0, 1):
                assert link.engine(side).drained
                assert not link.hosts[side].sinks


TestWorlds = Worlds.TestCase
TestWorlds.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
