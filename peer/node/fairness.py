"""Who has had least of late goes first (doors.md 4).

Theory. Everything that peers want of a node goes through a few narrow places: the event loop, which
is one thread, the threads that read and write the store, the signatures to be checked. Where they
are served as they come, or by turns of connections, a peer with twenty connections gets twenty
times what another one gets; and by turns of peers it still takes half from everybody who comes for
a moment, however long it has been at it.

So each peer has an **account** of what it has cost of late: seconds of this machine, of which half
are forgotten every ten. Where several want something, whoever has cost least is served, and waits
for nobody who is greedier than it is. Somebody who copies a large log for minutes gets all of the
machine while nobody else wants it, lets every newcomer pass until that one has had as much, and
then shares evenly. Every eighth turn goes to who has waited longest, so that nobody stands still.

An account is that of an allowed peer, or of an address where anybody may be: ids cost nothing to
make. Connections of one account have accounts below it, by the same rule: of all that come through
one tunnel, those that do little do not wait for the one that floods. It outlives its connections:
who goes and comes back is no newcomer.

What is not decided here: whether there is room for somebody at all (`gate.py`), and how many bytes
a second somebody may send (`rates.py`). Nothing is refused here; it comes later, and what is read
later is held back by the network, at the end of whoever sends too much.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final, Generic, TypeVar

import trio

T = TypeVar("T")

HALF_LIFE_S: Final = 10.0
"""Long enough that a flood weighs more than the second that a sync takes, and short enough that who
has done much by day is nobody's inferior at night."""
LONGEST_WAITING_EVERY: Final = 8
ACCOUNTS_MAX: Final = 4096
"""Beyond these, whoever has spent least is forgotten: strangers with a million addresses take no
memory, and forgetting a small account gives little away."""


class Account:
    """What somebody has cost of late, in seconds; times are those of the event loop."""

    __slots__ = ("_at_s", "_parent", "_spent_s")

    def __init__(self, parent: "Account | None" = None) -> None:
        """`parent`: the account of all that belongs to the same peer or address."""
        self._parent = parent
        self._spent_s = 0.0
        self._at_s = 0.0

    def charge(self, seconds: float, now: float) -> None:
        """Adds what something has cost."""
        self._spent_s = self.spent_s(now) + seconds
        self._at_s = now
        if self._parent is not None:
            self._parent.charge(seconds, now)

    def spent_s(self, now: float) -> float:
        """What is not forgotten yet."""
        if not self._spent_s:
            return 0.0
        return float(self._spent_s * 0.5 ** ((now - self._at_s) / HALF_LIFE_S))

    def rank(self, now: float) -> tuple[float, float]:
        """The smaller goes first: by the peer or address, then by the connection."""
        above = 0.0 if self._parent is None else self._parent.spent_s(now)
        return above, self.spent_s(now)


class Accounts:
    """The accounts of peers and addresses."""

    def __init__(self) -> None:
        self._accounts: dict[Hashable, Account] = {}

    def open(self, who: Hashable, now: float) -> Account:
        """An account for a connection, below that of the peer or address."""
        account = self._accounts.get(who)
        if account is None:
            if len(self._accounts) >= ACCOUNTS_MAX:
                accounts = self._accounts
                del accounts[min(accounts, key=lambda each: accounts[each].spent_s(now))]
            account = self._accounts[who] = Account()
        return Account(account)


class Line(Generic[T]):
    """What waits. Of one account in the order in which it came."""

    def __init__(self) -> None:
        self._waiting: dict[Account, deque[tuple[int, T]]] = {}
        self._count = 0
        self._came = 0
        self._served = 0

    def __len__(self) -> int:
        return self._count

    @property
    def accounts(self) -> int:
        """How many accounts there are of which something waits."""
        return len(self._waiting)

    def put(self, account: Account, item: T) -> None:
        """Has something wait behind what waits of this account."""
        self._came += 1
        self._count += 1
        items = self._waiting.get(account)
        if items is None:
            items = self._waiting[account] = deque()
        items.append((self._came, item))

    def put_behind_all(self, make: Callable[[], T]) -> int:
        """Has something wait behind what waits of each account; of how many there are."""
        for account in list(self._waiting):
            self.put(account, make())
        return len(self._waiting)

    def take(self, now: float, count: int = 1) -> tuple[Account, list[T]]:
        """Up to `count` of what waits of one account. There has to be something that waits."""
        account = self._next(now)
        items = self._waiting[account]
        taken = [items.popleft()[1] for _ in range(min(count, len(items)))]
        self._count -= len(taken)
        if not items:
            del self._waiting[account]
        return account, taken

    def _next(self, now: float) -> Account:
        if len(self._waiting) == 1:
            return next(iter(self._waiting))
        self._served += 1
        if self._served % LONGEST_WAITING_EVERY == 0:
            return min(self._waiting, key=lambda account: self._waiting[account][0][0])
        return min(self._waiting, key=lambda account: account.rank(now))


class _Waiter:
    """Who waits for a turn; `is_gone` if he does not any more."""

    __slots__ = ("is_gone", "turn")

    def __init__(self) -> None:
        self.turn = trio.Event()
        self.is_gone = False


class Turns:
    """Turns in the event loop: one for each pass of it, where several want one.

    Who comes alone is let through at once, so that a lone append waits for nothing.
    """

    def __init__(self) -> None:
        self._line = Line[_Waiter]()
        self._is_taken = False

    async def take(self, account: Account) -> None:
        """Returns when it is the turn of an account. Not a checkpoint where nobody else wants one.

        What it is taken for is to be done without one, and charged.
        """
        if not self._is_taken:
            self._is_taken = True
            self._pass_on_later()
            return
        waiter = _Waiter()
        self._line.put(account, waiter)
        try:
            await waiter.turn.wait()
        finally:
            waiter.is_gone = True

    def seat(self, account: Account) -> "Seat":
        """Whose turns an account pays for."""
        return Seat(self, account)

    def _pass_on_later(self) -> None:
        # With the next pass of the loop: whoever is ready in this one has come in by then.
        trio.lowlevel.current_trio_token().run_sync_soon(self._pass_on)

    def _pass_on(self) -> None:
        now = trio.current_time()
        while self._line:
            _, [waiter] = self._line.take(now)
            if not waiter.is_gone:
                waiter.turn.set()
                self._pass_on_later()
                return
        self._is_taken = False


class Seat:
    """The turns of one connection in the event loop, and what they cost it."""

    __slots__ = ("_turns", "account")

    def __init__(self, turns: Turns, account: Account) -> None:
        self._turns = turns
        self.account = account

    async def turn(self) -> None:
        """Returns when it is this connection's turn; not a checkpoint where it is alone."""
        await self._turns.take(self.account)

    @contextmanager
    def paid(self) -> Iterator[None]:
        """What is done inside, without a checkpoint, is charged."""
        began = perf_counter()
        try:
            yield
        finally:
            self.account.charge(perf_counter() - began, trio.current_time())
