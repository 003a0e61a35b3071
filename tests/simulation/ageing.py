"""What a process holds in memory may depend on what is stored and who is connected, not on its age.

In a life of hours the first node, the *elder*, is never killed. What each node holds is counted in
the quiet at the end of each hour: everything of the product that can be reached from the host, the
book of sources, the table of interests, the doors, the open store and the engines of connections
that are open. Of what belongs to one connection there may be no more than there are connections. At
the end the elder is started anew, and has what it needs again: its old process may not have held
much more than the new one does.
"""

import gc
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

from logstore.schema import FILE_PARTIAL, FILE_WHOLE

from .host import Pace
from .node import LOOK_FOR_PARTS_S
from .plan import HOUR_S
from .truth import Broken

if TYPE_CHECKING:
    from .node import SimNode
    from .world import World

OURS = ("peer", "logstore", "bymux", "wire")
ITEMS = "items"
"""All that containers hold together: numbers and bytes are nothing by themselves."""
PER_CONNECTION = ("Port", "SourceSeat", "Place", "Engine", "RequestTable")
STOCK_S = HOUR_S - 10.0
"""When in an hour everything is counted."""
OLDER_TIMES, OLDER_MORE = 1.5, 300
"""How much more an old process may hold than a new one: of what lasts a while something is left,
and lists have come to their sizes in other ways."""


@dataclass(frozen=True, slots=True)
class Age:
    """What came of a life of hours. `held`: the items that the elder held after each hour.

    `old` and `new`: what it held at the end, before it was started anew and after that.
    """

    hours: int
    events: int
    strangers: int
    let_in: int
    connections: int
    given_up: int
    """Parts of payloads of which nothing came any more."""
    held: tuple[int, ...]
    old: int
    new: int

    def __str__(self) -> str:
        return (
            f"{self.hours} hours, {self.events} events, {self.strangers} strangers,"
            f" {self.let_in} let in, {self.connections} connections of nodes,"
            f" {self.given_up} parts given up; held after each hour {self.held},"
            f" in the end {self.old}, started anew {self.new}"
        )


class Ageing:
    """Counts what the nodes of a world hold, as it grows old."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.given_up = 0
        """Parts of payloads that nodes have given up."""
        self._stock: list[int] = []
        self._old = self._new = 0

    @property
    def elder(self) -> "SimNode | None":
        """The node that is never killed, in a life of hours."""
        return self._world.nodes[0] if self._world.plan.hours else None

    def age(self) -> Age | None:
        """What has come of it."""
        world = self._world
        if self.elder is None:
            return None
        return Age(
            world.plan.hours,
            world.plan.events,
            world.visitors.came,
            world.visitors.let_in,
            sum(link.connections for link in world.links),
            self.given_up,
            tuple(self._stock),
            self._old,
            self._new,
        )

    def begin(self) -> None:
        """Counts at the end of each hour."""
        for hour in range(self._world.plan.hours):
            self._world.clock.after(HOUR_S * hour + STOCK_S, self._take_stock)

    def _take_stock(self) -> None:
        for node in self._world.nodes:
            if node.alive:
                held = held_by(node)
                self._check_connections(node, held)
                if node is self.elder:
                    self._stock.append(held[ITEMS])
                    self._world.note(f"{node.name} holds {held[ITEMS]} items")

    def _check_connections(self, node: "SimNode", held: Counter[str]) -> None:
        for kind in PER_CONNECTION:
            if held[kind] > len(node.ends):
                raise Broken(
                    f"{node.name} has {len(node.ends)} connections, and {held[kind]} {kind}"
                )

    def _check_parts(self, node: "SimNode") -> None:
        """Parts of payloads of which nothing came for long are gone. Raises Broken."""
        # It is looked for them once an hour, when the disk may fail.
        longest_us = (self._world.plan.partial_s + 2 * LOOK_FOR_PARTS_S) * 1_000_000
        with node.store._database.read() as db:
            states = (FILE_PARTIAL, FILE_WHOLE)
            rows = db.execute("SELECT id FROM files WHERE state IN (?, ?)", states).fetchall()
        for (id_,) in rows:
            assert isinstance(id_, bytes)
            modified_us = node.disk.modified_us(node.store._files.path_of(id_))
            if modified_us is not None and node.disk.now_us() - modified_us > longest_us:
                raise Broken(f"{node.name} keeps a part of a payload since {modified_us}")

    def check(self) -> None:
        """Looks for stale parts, and compares the elder with itself when it was young.

        Raises Broken.
        """
        elder = self.elder
        if elder is None:
            return
        for node in self._world.nodes:
            self._check_parts(node)
        old = held_by(elder)
        self._check_connections(elder, old)
        elder.crash(power=False)
        elder.start()
        self._world.settle()
        young = held_by(elder)
        self._old, self._new = old[ITEMS], young[ITEMS]
        for kind, count in sorted(old.items()):
            if count > OLDER_TIMES * young[kind] + OLDER_MORE:
                raise Broken(f"{elder.name} held {count} {kind} when it was old, {young[kind]} new")


def held_by(node: "SimNode") -> Counter[str]:
    """What the process of a node holds, by the names of classes."""
    engines = [end.engine for end in node.ends if end.engine is not None]
    waits: deque[object] = deque(
        (node.host, node.sources, node.book, node.admission, node.buckets, node.store, *engines)
    )
    known = {id(each): each for each in waits}
    found: Counter[str] = Counter()
    while waits:
        each = waits.popleft()
        if type(each).__module__.partition(".")[0] in OURS:
            found[type(each).__name__] += 1
        if isinstance(each, dict | list | set | frozenset | deque | tuple):
            found[ITEMS] += len(each)
        for other in _behind(each):
            if id(other) not in known and _is_its_own(other):
                known[id(other)] = other
                waits.append(other)
    return found


def _behind(each: object) -> Iterator[object]:
    """What an object refers to, but for the modules that functions know of."""
    if isinstance(each, FunctionType):
        yield each.__closure__ or ()
        yield each.__defaults__ or ()
    else:
        yield from gc.get_referents(each)


def _is_its_own(each: object) -> bool:
    """Whether it is of the process, and not of the world around it, or of all processes."""
    if isinstance(each, type | ModuleType | Pace):
        return False
    module = type(each).__module__
    return not module.startswith("tests.") or module == "tests.simulation.host"
