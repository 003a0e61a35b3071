"""Who has had least of late goes first (doors.md 4).

Theory. Everything that peers want of a node goes through a few narrow places: the event loop, which
is one thread, the threads that read and write the store, the signatures to be checked. Where they
are served as they come, or by turns of connections, a peer with twenty connections gets twenty
times what another one gets; and by turns of peers it still takes half from everybody who comes for
a moment, however long it has been at it.

So each peer has an **account** of what it has cost of late: seconds of this machine, of which half
are forgotten every ten. Where several want something, whoever has cost much less than others is
served, and waits for nobody who is greedier than it is. Those who have cost about the same take
turns. Every eighth turn goes to who has waited longest, so that nobody stands still.

Much less, and not just less: what is forgotten makes room for more. Of fifty peers each of which
has a thousand logs, those who happened to have cost 10 ms were served for 20 s and stayed at that,
while those who had cost 15 ms stood still until half of it was forgotten.

What came to something counts for a tenth: entries and payloads that were sent, or came, were
verified, and are of a log that somebody here has asked for by name. The rest is **waste**. Without
that whoever has just copied a large log would have to wait for a flood that is new, and most of
what a flood costs moves nothing: it asks and cancels, claims and does not bring, grants and
credits. What is taken in only because everything is counts as waste too: authors cost nothing to
make, and entries of theirs that are all valid would be a flood for which a node thanks. Among those
who are of use, somebody who copies for minutes lets every newcomer pass until that one has had as
much, and then shares evenly.

An account is that of an allowed peer, or of an address where anybody may be: ids cost nothing to
make. Connections of one account have accounts below it, by the same rule: of all that come through
one tunnel, those that do little do not wait for the one that floods. It outlives its connections:
who goes and comes back is no newcomer.

To be first is not enough in the event loop. Whoever is let through waits for the turn that is under
way, and on a machine with few cores what is spent on the greedy is not there for anybody else. So
while somebody is **busy** who has wasted less, those who have wasted much more rest after each
turn, twenty times as long as it took: together they take a twentieth of the loop and the threads
that read and write the store, which share the interpreter with it. Where nobody who wastes less is
busy, nobody rests: a peer that sends a little now and then slows nobody down. And nobody rests for
what came to something: before, who had copied a large log rested for each newcomer, an attack that
did little halved the rate of a copy by being new, and the machine idled.

What is not decided here: whether there is room for somebody at all (`gate.py`), and how many bytes
a second somebody may send (`rates.py`). Nothing is refused here; it comes later, and what is read
later is held back by the network, at the end of whoever sends too much.
"""

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from time import perf_counter
from typing import Final, Generic, TypeVar

import trio

from peer import EntriesReceived, EntriesSent, Interests, Notice, PayloadsReceived, RequestCancelled

T = TypeVar("T")

HALF_LIFE_S: Final = 10.0
"""Long enough that a flood weighs more than the second that a sync takes, and short enough that who
has done much by day is nobody's inferior at night."""
LONGEST_WAITING_EVERY: Final = 8
WANTED_S: Final = 0.05
TURN_PACKETS: Final = 20
"""bymux packets of a turn that others wait for. Of a flood's packets each costs up to 100 us, of
honest ones the same: but they carry up to 256 KiB. Whoever is let through first still waits for the
end of the turn that is under way."""
TURN_EVENTS: Final = 8
"""Replies of the store in such a turn; each may be a log to think about."""
USEFUL_WEIGHT: Final = 0.1
ENTRY_WORTH_S: Final = 60e-6
BYTE_WORTH_S: Final = 10e-9
"""What moving an entry, and a byte of a payload, costs at most where nothing is wasted."""
REFUSAL_WORTH_S: Final = 1e-3
"""What it costs to look up a log, to offer it, and to hear that it is not wanted. That is no fault
of who was offered it, and cannot be made a flood: offers have a pace of their own (offering.py)."""
LATELY_S: Final = 0.25
BUSY_S: Final = 0.036
"""Who has a tenth of the loop has spent so much lately, with `LATELY_S` as half-life."""
REST_TIMES: Final = 20.0
"""With ten, attacks that fill the store left an honest peer 74 to 83 % of its rate."""
MUCH_MORE_TIMES: Final = 2.0
MUCH_MORE_S: Final = 0.25
"""Nobody rests for what a connection costs that has just been set up, nor for what has been read
ahead for it: that is charged when it is read, and earns once it is sent. With a fifth of this an
honest sync stood still for a second beside an attack, in one round of five. Tried, and no better
beside any attack: a fifth of this, and a quarter of a second ahead for each account, shared by its
connections."""
AHEAD_MAX_S: Final = 0.25
"""So much may be earned before it is charged: what a turn brings is heard of inside of it, and its
cost is known behind it. Counted from 0, who had wasted nothing lost what he earned, and his work
was waste. Not without end: who is of use for a minute would flood for a minute."""
ACCOUNTS_MAX: Final = 4096
"""Beyond these, whoever has spent least is forgotten: strangers with a million addresses take no
memory, and forgetting a small account gives little away."""


class Account:
    """What somebody has cost of late, in seconds; times are those of the event loop."""

    __slots__ = (
        "_at_s",
        "_beside",
        "_lately_at_s",
        "_lately_s",
        "_parent",
        "_spent_s",
        "_wasted_s",
        "busy_below",
        "own_rest_until_s",
    )

    def __init__(
        self, parent: "Account | None" = None, beside: "dict[Account, None] | None" = None
    ) -> None:
        """`parent`: the account of all that belongs to the same peer or address.

        `beside`: those without a parent that are busy, for one of them.
        """
        self._parent = parent
        self.busy_below: dict[Account, None] = {}
        """Those below it that are busy, or were a moment ago."""
        if parent is not None:
            beside = parent.busy_below
        self._beside = {} if beside is None else beside
        self._spent_s = self._wasted_s = 0.0
        self._at_s = 0.0
        self._lately_s = self._lately_at_s = 0.0
        self.own_rest_until_s = -math.inf

    @property
    def payer(self) -> "Account":
        """The account of the peer or address."""
        return self._parent or self

    @property
    def rests_until_s(self) -> float:
        """When it may have a turn again, if somebody with less waits for one as well."""
        above = -math.inf if self._parent is None else self._parent.own_rest_until_s
        return max(above, self.own_rest_until_s)

    def charge(self, seconds: float, now: float) -> None:
        """Adds what something has cost; whoever has wasted much more than others rests after it."""
        self._fade(now)
        self._spent_s += seconds
        self._wasted_s += seconds
        self._lately_s = self._lately(now) + seconds
        self._lately_at_s = now
        if self._parent is not None:
            self._parent.charge(seconds, now)
        busy = self._beside
        if self not in busy and self._lately_s >= BUSY_S:
            for each in [each for each in busy if not each.is_busy(now)]:
                del busy[each]
            busy[self] = None
        # Most have not wasted so much that anybody else would have to be looked at, and most of
        # those that have are alone.
        is_alone = busy.keys() <= {self}
        has_wasted = self._wasted_s > MUCH_MORE_S and not is_alone
        if has_wasted and any(
            self.has_wasted_much_more(each, now) for each in busy if each.is_busy(now)
        ):
            # What was done meanwhile, in a thread or by another connection, makes the rest longer
            # and not shorter: else the least of it would end the rest for the most.
            self.own_rest_until_s = max(self.own_rest_until_s, now) + REST_TIMES * seconds

    def earn(self, seconds: float, now: float) -> None:
        """So much of what was charged came to something."""
        self._fade(now)
        self._wasted_s = max(-AHEAD_MAX_S, self._wasted_s - seconds)
        if self._parent is not None:
            self._parent.earn(seconds, now)

    def _fade(self, now: float) -> None:
        if self._at_s != now:
            left = 0.5 ** ((now - self._at_s) / HALF_LIFE_S)
            self._spent_s *= left
            self._wasted_s *= left
            self._at_s = now

    def spent_s(self, now: float) -> float:
        """What is not forgotten yet; of what came to something a tenth."""
        if not self._spent_s:
            return 0.0
        wasted_s = max(0.0, self._wasted_s)
        weighed = wasted_s + USEFUL_WEIGHT * max(0.0, self._spent_s - wasted_s)
        return float(weighed * 0.5 ** ((now - self._at_s) / HALF_LIFE_S))

    def _lately(self, now: float) -> float:
        return float(self._lately_s * 0.5 ** ((now - self._lately_at_s) / LATELY_S))

    def is_busy(self, now: float) -> bool:
        """Whether it takes a share of the loop that matters."""
        return self._lately(now) >= BUSY_S

    def has_wasted_much_more(self, other: "Account", now: float) -> bool:
        """Whether it is its turn to rest while the other one is busy."""
        return self.wasted_s(now) > MUCH_MORE_TIMES * other.wasted_s(now) + MUCH_MORE_S

    def wasted_s(self, now: float) -> float:
        """What came to nothing, and is not forgotten yet."""
        return float(max(0.0, self._wasted_s) * 0.5 ** ((now - self._at_s) / HALF_LIFE_S))

    def level(self, now: float) -> int:
        """How much it has had: of those on one level nobody has had much less than another.

        Each level is twice as high as the one below.
        """
        if self._spent_s <= MUCH_MORE_S:
            return 0
        return int(1 + self.spent_s(now) / MUCH_MORE_S).bit_length() - 1


class Accounts:
    """The accounts of peers and addresses."""

    def __init__(self) -> None:
        self._accounts: dict[Hashable, Account] = {}
        self._busy: dict[Account, None] = {}

    def open(self, who: Hashable, now: float) -> Account:
        """An account for a connection, below that of the peer or address."""
        account = self._accounts.get(who)
        if account is None:
            if len(self._accounts) >= ACCOUNTS_MAX:
                accounts = self._accounts
                del accounts[min(accounts, key=lambda each: accounts[each].spent_s(now))]
            account = self._accounts[who] = Account(beside=self._busy)
        return Account(account)


class Line(Generic[T]):
    """What waits. Of one account in the order in which it came."""

    def __init__(self, own: Account | None = None) -> None:
        """`own`: of what the node does for itself, before all others."""
        self._own = own
        self._waiting: dict[Account, dict[Account, deque[tuple[int, T]]]] = {}
        """By peer or address, then by account; who was served last stands last in both."""
        self._count = 0
        self._came = 0
        self._served = 0

    def __len__(self) -> int:
        return self._count

    @property
    def accounts(self) -> int:
        """How many accounts there are of which something waits."""
        return sum(map(len, self._waiting.values()))

    def put(self, account: Account, *items: T) -> None:
        """Has something wait behind what waits of this account."""
        if items:
            below = self._waiting.setdefault(account.payer, {})
            below.setdefault(account, deque()).extend(enumerate(items, self._came + 1))
            self._came += len(items)
            self._count += len(items)

    def put_behind_all(self, make: Callable[[], T]) -> int:
        """Has something wait behind what waits of each account; of how many there are."""
        accounts = [account for below in self._waiting.values() for account in below]
        for account in accounts:
            self.put(account, make())
        return len(accounts)

    def rests_until_s(self, now: float) -> float:
        """When something may be taken: not after `now` unless all whose things wait rest."""
        rests = (each.rests_until_s for below in self._waiting.values() for each in below)
        return min(rests, default=now)

    def rests(self, now: float) -> bool:
        """Whether all whose things wait rest."""
        return self.rests_until_s(now) > now

    def take(
        self, now: float, count: int = 1, size: Callable[[T], int] | None = None
    ) -> tuple[Account, list[T]]:
        """Up to `count` of what waits of one account. There has to be something that waits.

        With `size`: as many as have that size together, and one at least. Those who rest come
        behind all others.
        """
        account = self._next(now)
        # Out, and in again at the end if more of it waits: so those on one level take turns.
        below = self._waiting.pop(account.payer)
        items = below.pop(account)
        if size is None:
            taken = [items.popleft()[1] for _ in range(min(count, len(items)))]
        else:
            taken = [items.popleft()[1]]
            left = count - size(taken[0])
            while items and (left := left - size(items[0][1])) >= 0:
                taken.append(items.popleft()[1])
        self._count -= len(taken)
        if items:
            below[account] = items
        if below:
            self._waiting[account.payer] = below
        return account, taken

    def _next(self, now: float) -> Account:
        if self._own in self._waiting:
            return self._own
        waiting = {payer: list(below) for payer, below in self._waiting.items()}
        if len(waiting) > 1 or len(next(iter(waiting.values()))) > 1:
            self._served += 1
            waiting = _awake(waiting, now) or waiting
            if self._served % LONGEST_WAITING_EVERY == 0:
                accounts = (account for below in waiting.values() for account in below)
                return min(accounts, key=self._came_first)
        payer = _lowest(waiting, now)
        return _lowest(waiting[payer], now)

    def _came_first(self, account: Account) -> int:
        return self._waiting[account.payer][account][0][0]


def _awake(waiting: dict[Account, list[Account]], now: float) -> dict[Account, list[Account]]:
    """Those who do not rest."""
    awake = {
        payer: [account for account in below if account.rests_until_s <= now]
        for payer, below in waiting.items()
    }
    return {payer: below for payer, below in awake.items() if below}


def _lowest(accounts: Iterable[Account], now: float) -> Account:
    """The first of those on the lowest level."""
    found, lowest = None, math.inf
    for each in accounts:
        level = each.level(now)
        if level == 0:
            return each
        if level < lowest:
            found, lowest = each, level
    assert found is not None
    return found


class _Waiter:
    """Who waits for a turn; `is_gone` if he does not any more."""

    __slots__ = ("is_gone", "turn")

    def __init__(self) -> None:
        self.turn = trio.Event()
        self.is_gone = False


class _Passes(trio.abc.Instrument):
    """Counts the passes of the event loop."""

    def __init__(self) -> None:
        self.number = 0

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002 - Trio's
        self.number += 1


_PASSES: Final = trio.lowlevel.RunVar[_Passes]("passes")
"""One for all that takes turns in a run of Trio: what is hung into the loop stays there."""


def _passes() -> _Passes:
    try:
        return _PASSES.get()
    except LookupError:
        passes = _Passes()
        trio.lowlevel.add_instrument(passes)
        _PASSES.set(passes)
        return passes


class Turns:
    """Turns in the event loop: one for each pass of it, where several want one.

    Who comes alone is let through at once, so that a lone append waits for nothing. So are all
    tasks of one account in one pass where nobody else waits: what a connection reads, writes and is
    told took a pass each, and a pass takes as long as some of that.

    Whose a pass is holds for that pass and no other, by its number: nobody has to give it back. A
    task that did so, a pass later, was a twentieth of all that a large payload costs. One runs only
    where somebody waits.
    """

    def __init__(self) -> None:
        self._line = Line[_Waiter]()
        self._arrived = trio.lowlevel.ParkingLot()
        self._passes: _Passes | None = None
        """Of the one run of Trio that these are for; None: nobody has asked for a turn yet."""
        self._taken_until = -1
        """The last pass that is somebody's: this one, or the next, where he is just woken up."""
        self._holder: Account | None = None
        """Whose it is."""
        self._runs = False
        self._waited_s = -math.inf

    @property
    def are_wanted(self) -> bool:
        """Whether somebody has waited for one a moment ago: turns are to be short."""
        return self._waited_s > -math.inf and trio.current_time() - self._waited_s < WANTED_S

    def take_if_free(self, account: Account) -> bool:
        """Takes a turn that nobody else wants now; False if it has to be waited for."""
        if self._passes is None:
            self._passes = _passes()
        number = self._passes.number
        if self._line or number <= self._taken_until:
            return False
        self._taken_until, self._holder = number, account
        return True

    async def take(self, account: Account) -> None:
        """Returns when it is the turn of an account. Not a checkpoint where nobody else wants one.

        What it is taken for is to be done without one, and charged; between two turns of a task has
        to be one.
        """
        if self.take_if_free(account) or (account is self._holder and not self._line):
            return
        self._waited_s = trio.current_time()
        waiter = _Waiter()
        self._line.put(account, waiter)
        if not self._runs:
            self._runs = True
            trio.lowlevel.spawn_system_task(self._run)
        self._arrived.unpark()
        try:
            await waiter.turn.wait()
        finally:
            waiter.is_gone = True

    def seat(self, account: Account) -> "Seat":
        """Whose turns an account pays for."""
        return Seat(self, account)

    async def _run(self) -> None:
        """Passes turns on, one in each pass of the loop: who is ready in one has come in by then.

        A task of its own: a callback would wake the loop through a socket, for each turn.
        """
        while True:
            while not self._line:
                await self._arrived.park()
            await trio.lowlevel.checkpoint()
            self._pass_on()

    def _pass_on(self) -> None:
        assert self._passes is not None
        now = trio.current_time()
        while self._line:
            account, [waiter] = self._line.take(now)
            if not waiter.is_gone:
                # He goes on in the next pass.
                self._taken_until, self._holder = self._passes.number + 1, account
                waiter.turn.set()
                return


class Seat:
    """The turns of one connection in the event loop, and what they cost it."""

    __slots__ = ("_turns", "account")

    def __init__(self, turns: Turns, account: Account) -> None:
        self._turns = turns
        self.account = account

    @property
    def packets_max(self) -> int | None:
        """bymux packets that may be read in this turn; None: as many as otherwise."""
        return TURN_PACKETS if self._turns.are_wanted else None

    @property
    def events_max(self) -> int | None:
        """Replies of the store that may be taken in this turn; None: all of them."""
        return TURN_EVENTS if self._turns.are_wanted else None

    def turn_if_free(self) -> bool:
        """Whether it is this connection's turn without waiting."""
        rests = self.account.rests_until_s > trio.current_time()
        return not rests and self._turns.take_if_free(self.account)

    async def turn(self) -> None:
        """Returns when it is this connection's turn; not a checkpoint where it is alone.

        Between two turns of a task has to be one.
        """
        account = self.account
        await self._turns.take(account)
        # Asked again behind each turn: twenty connections of one peer rest together.
        while (until_s := account.rests_until_s) > -math.inf and until_s > trio.current_time():
            await trio.sleep_until(until_s)
            await self._turns.take(account)

    def earn(self, notices: Iterable[Notice], interests: Interests, now: float) -> None:
        """Something was sent, or came and was verified, which is of use if it was asked for; or an
        offer of ours was answered."""
        worth_s = sum(_worth_s(notice, interests) for notice in notices)
        if worth_s:
            self.account.earn(worth_s, now)

    def paid(self, now: float) -> "_Paid":
        """What is done inside, without a checkpoint, is charged. `now`: when that begins."""
        return _Paid(self.account, now)


def _worth_s(notice: Notice, interests: Interests) -> float:
    match notice:
        case EntriesReceived() | PayloadsReceived() if not _is_asked_for(notice, interests):
            return 0.0
        case EntriesSent() | EntriesReceived():
            return ENTRY_WORTH_S * notice.entries + BYTE_WORTH_S * notice.payload_bytes
        case PayloadsReceived():
            return BYTE_WORTH_S * notice.payload_bytes
        case RequestCancelled(ours=True, by_us=False):
            return REFUSAL_WORTH_S
        case _:
            return 0.0


class _Paid:
    """A class, as a generator for each of a thousand turns a second would take longer."""

    __slots__ = ("_account", "_began", "_now")

    def __init__(self, account: Account, now: float) -> None:
        self._account = account
        self._now = now

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, *_: object) -> None:
        self._account.charge(perf_counter() - self._began, self._now)


def _is_asked_for(came: EntriesReceived | PayloadsReceived, interests: Interests) -> bool:
    """Whether somebody here wants just this log, or this author's, and not only all there are."""
    return interests.names(came.log) or came.log in interests.own
