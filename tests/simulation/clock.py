"""Virtual time: what is due next, in an order that the seed alone decides."""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush


@dataclass(slots=True)
class Life:
    """What ends with a connection or a process: events that belong to it are dropped then."""

    over: bool = False


@dataclass(order=True, slots=True)
class _Due:
    at: float
    order: int
    do: Callable[[], None] = field(compare=False)
    life: Life = field(compare=False)


_FOREVER = Life()


class Clock:
    """Events by time. Two at the same moment happen in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[_Due] = []
        self._count = 0

    def read(self) -> float:
        """The time, for who asks a function."""
        return self.now

    def after(self, delay_s: float, do: Callable[[], None], life: Life = _FOREVER) -> None:
        """Calls `do` in `delay_s` seconds, unless `life` is over by then."""
        self._count += 1
        heappush(self._due, _Due(self.now + max(0.0, delay_s), self._count, do, life))

    def step(self, until: float) -> bool:
        """Does the next thing that is due by `until`; False, and it is then, if nothing is."""
        while self._due and self._due[0].at <= until:
            due = heappop(self._due)
            self.now = max(self.now, due.at)
            if not due.life.over:
                due.do()
                return True
        self.now = max(self.now, until)
        return False
