"""All peers of a node, and what it wants of them (spec section 3), without sockets and store.

What one peer does concerns the others: a chunk that one delivers completes the batch of another, a
peer that comes or goes moves the depth and with it every other's share, and a request for a chunk
goes on to whoever is nearer. So they are one machine, which is told what has happened, and says
what is to be done. Who carries that out must do so in the order in which it comes: what is recorded
of a peer is on disk before the message that relies on it leaves.

What is only passed through, from a peer that had it to one that has asked for it, is kept in memory
and forgotten, the oldest first.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from gateways.swarm.book import Book
from gateways.swarm.codec import Message
from gateways.swarm.commands import Command, Found, Keep, Read, Save, Search, Send
from gateways.swarm.devp2p import Reason, RefusedError
from gateways.swarm.intervals import Intervals
from gateways.swarm.neighbour import Known, Neighbour
from gateways.swarm.proximity import depth
from gateways.swarm.retrieval import Searches
from gateways.swarm.sources import FailedError, Opener
from gateways.swarm.wanting import share_of

PEERS_MAX: Final = 50
PASSING_BYTES_MAX: Final = 16 << 20
_LOCAL_HOPS: Final = 0


class Lacking(NamedTuple):
    """Somebody here waits for a chunk; `tag` says who."""

    tag: Hashable
    neighbour: None = None


class Requester(NamedTuple):
    """A peer waits for a chunk."""

    neighbour: Neighbour
    skip_check: bool


class Arrived(NamedTuple):
    """What somebody here waits for has come; None: it is not to be had."""

    tag: Hashable
    address: bytes
    chunk: bytes | None


class Dropped(NamedTuple):
    """This peer has broken a rule, at a time and not by a message: its connection is to end."""

    error: RefusedError


class Synced(NamedTuple):
    """All is here that this peer has of what is wanted of it."""


Done = Send | Read | Keep | Save | Arrived | Dropped | Synced
"""What is to be done; all but `Keep` and `Arrived` about a peer."""


class Passing:
    """Chunks that are passed through: 16 MiB of the newest."""

    def __init__(self) -> None:
        self._chunks: dict[bytes, bytes] = {}
        self._size = 0

    def put(self, address: bytes, chunk: bytes) -> None:
        """Keeps a chunk for a while."""
        self._size += len(chunk) - len(self._chunks.pop(address, b""))
        self._chunks[address] = chunk
        while self._size > PASSING_BYTES_MAX:
            self._size -= len(self._chunks.pop(next(iter(self._chunks))))

    def get(self, address: bytes) -> bytes | None:
        """A chunk, if it is still here."""
        return self._chunks.get(address)


def cannot_go_on(error: FailedError) -> RefusedError:
    """How a connection ends that cannot do without what cannot be said."""
    return RefusedError(Reason.REQUESTED, f"it cannot be served: {error}")


class Peers:
    """The peers of a node.

    `overlay`: of the node. `openers`: the kinds of streams that it serves, by name. `holds`:
    whether a chunk is on disk. `is_light`: whether it takes part in no syncing.
    """

    def __init__(
        self,
        overlay: bytes,
        openers: Mapping[str, Opener],
        holds: Callable[[bytes], bool],
        *,
        is_light: bool = False,
    ) -> None:
        self._overlay = overlay
        self._openers = {} if is_light else dict(openers)
        self._stored = holds
        self._is_light = is_light
        self._book = Book(holds)
        self._searches = Searches(self._book)
        self.passing: Final = Passing()
        self._neighbours: dict[bytes, Neighbour] = {}
        self._depth = 0
        self._is_paused = False
        # Of whom it is to be worked out anew when something is due.
        self._stirred: set[Neighbour] = set()
        self._done: list[tuple[Neighbour | None, Done]] = []

    @property
    def neighbours(self) -> list[Neighbour]:
        """Those that are connected, in the order in which they came."""
        return [*self._neighbours.values()]

    @property
    def depth(self) -> int:
        """The node's depth (spec section 2.8)."""
        return self._depth

    @property
    def is_synced(self) -> bool:
        """Whether there are full peers, and all is here that they have (spec section 3.9)."""
        full = [each for each in self._neighbours.values() if not each.known.is_light]
        return bool(full) and all(each.is_synced for each in full)

    def commands(self, now: float) -> list[tuple[Neighbour | None, Done]]:
        """What is to be done since the last call, in this order, and for which peer."""
        self._collect(now)
        done, self._done = self._done, []
        return done

    # Who is there --------------------------------------------------------------------------------

    def check(self, known: Known) -> None:
        """Raises RefusedError for who is one too many, here already, or ourselves."""
        if known.overlay == self._overlay:
            raise RefusedError(Reason.SELF, "it is this node itself")
        if known.public in self._neighbours:
            raise RefusedError(Reason.ALREADY_CONNECTED, "it is connected already")
        if len(self._neighbours) >= PEERS_MAX:
            raise RefusedError(Reason.TOO_MANY_PEERS, f"{PEERS_MAX} peers are connected")

    def join(self, known: Known, intervals: Mapping[str, Intervals], now: float) -> Neighbour:
        """A peer's connection is open. Raises RefusedError as `check` does."""
        self.check(known)
        neighbour = self._neighbours[known.public] = Neighbour(
            known,
            self._overlay,
            self._book,
            self._openers,
            self._holds,
            intervals,
            now=now,
            takes=not (self._is_light or known.is_light),
            serves=not self._is_light,
        )
        neighbour.wanting.pause(self._is_paused, now)
        if not known.is_light:
            # Before anything is looked for: v1.8.27 answers only who has subscribed to answers.
            neighbour.wanting.begin(now)
            self._searches.join(neighbour, now)
        self._share_out(now)
        self._search_on(now)
        return neighbour

    def leave(self, neighbour: Neighbour, now: float) -> None:
        """A peer's connection is over."""
        del self._neighbours[neighbour.known.public]
        self._searches.leave(neighbour, now)
        neighbour.client.close(now)
        self._share_out(now)

    def _share_out(self, now: float) -> None:
        """Who is wanted to have what, with the peers that are there now."""
        full = [each for each in self._neighbours.values() if not each.known.is_light]
        self._depth = depth(each.proximity for each in full)
        # What is wanted of them again may have to wait, which is due some time then.
        self._stirred.update(full)
        for each in full:
            each.wanting.set_share(share_of(each.proximity, self._depth), now)

    # What happens --------------------------------------------------------------------------------

    def receive(self, neighbour: Neighbour, message: Message, now: float) -> None:
        """A peer has said something. Raises RefusedError, which ends its connection."""
        self._stirred.add(neighbour)
        neighbour.receive(message, now)
        self._collect(now)

    def read(
        self, neighbour: Neighbour, number: int, chunks: list[bytes | None], now: float
    ) -> None:
        """The chunks of a `Read`, in its order; None for one that is gone."""
        self._stirred.add(neighbour)
        neighbour.server.read(number, chunks, now)

    def recorded(self, addresses: Iterable[bytes], now: float) -> None:
        """Chunks are on disk."""
        self._book.recorded(addresses, now)

    def lost(self, addresses: Iterable[bytes], now: float) -> None:
        """Chunks of a `Keep` will not be on disk."""
        self._book.lost(addresses, now)

    def grown(self, now: float) -> None:
        """There is more in streams that are served, or room to offer it."""
        for each in self.neighbours:
            self._guarded(each, each.server.advance, now)

    def pause(self, is_paused: bool, now: float) -> None:
        """Nothing more is synced to here, or again: what can be held is, or the disk is full."""
        self._is_paused = is_paused
        self._stirred.update(self._neighbours.values())
        for each in self._neighbours.values():
            each.wanting.pause(is_paused, now)

    def seek(self, address: bytes, tag: Hashable, now: float) -> None:
        """Somebody here wants a chunk that is not held: `Arrived` says what came of it."""
        self._searches.seek(address, Lacking(tag), _LOCAL_HOPS, now)

    def give_up(self, address: bytes, tag: Hashable) -> None:
        """Nobody waits for that any longer."""
        self._searches.give_up(address, Lacking(tag))

    def _holds(self, address: bytes) -> bool:
        return self.passing.get(address) is not None or self._stored(address)

    def _collect(self, now: float) -> None:
        """Carries out what concerns other machines of ours; the rest is for who asks."""
        is_over = False
        while not is_over:
            is_over = True
            for each in self.neighbours:
                if each.client.failure is not None:
                    self._done.append((each, Dropped(cannot_go_on(each.client.failure))))
                    each.client.failure = None
                for command in each.commands(now):
                    is_over = False
                    self._stirred.add(each)
                    self._carry_out(each, command, now)

    def _carry_out(self, neighbour: Neighbour, command: Command, now: float) -> None:
        match command:
            case Send() | Read() | Save():
                self._done.append((neighbour, command))
            case Keep():
                neighbour.is_synced = False
                self._done.append((neighbour, command))
            case Found(address, chunk):
                self._found(address, chunk, now)
            case Search(address, skip_check, hops):
                requester = Requester(neighbour, skip_check)
                self._searches.seek(address, requester, hops + 1, now)
            case _:
                pass

    def _found(self, address: bytes, chunk: bytes, now: float) -> None:
        for waiter in self._searches.found(address):
            if isinstance(waiter, Lacking):
                self._done.append((None, Arrived(waiter.tag, address, chunk)))
            elif isinstance(waiter, Requester):
                self.passing.put(address, chunk)
                found = partial(waiter.neighbour.server.found, skip_check=waiter.skip_check)
                self._guarded(waiter.neighbour, partial(found, address), now)

    # Time ----------------------------------------------------------------------------------------

    def next_deadline(self, now: float) -> float | None:
        """When `advance` is to be called at the latest."""
        for each in self._stirred:
            each.reckon(now)
        self._stirred.clear()
        deadlines = [each.due for each in self._neighbours.values()]
        deadlines += [self._book.next_deadline, self._searches.next_deadline]
        return min((each for each in deadlines if each is not None), default=None)

    def advance(self, now: float) -> None:
        """Does what is due."""
        # What of the book could not be looked at stays due.
        with suppress(FailedError):
            self._book.advance(now)
        self._search_on(now)
        for each in self.neighbours:
            self._guarded(each, each.advance, now)
        self._look_whether_synced(now)

    def _guarded(self, neighbour: Neighbour, work: Callable[[float], None], now: float) -> None:
        """What a peer has broken, or what fails for it, ends its connection and nothing else."""
        self._stirred.add(neighbour)
        try:
            work(now)
        except RefusedError as error:
            self._done.append((neighbour, Dropped(error)))
        except FailedError as error:
            self._done.append((neighbour, Dropped(cannot_go_on(error))))

    def _search_on(self, now: float) -> None:
        for address, waiter in self._searches.advance(now):
            if isinstance(waiter, Lacking):
                self._done.append((None, Arrived(waiter.tag, address, None)))

    def _look_whether_synced(self, now: float) -> None:
        for each in self._neighbours.values():
            is_synced = each.wanting.takes and each.wanting.is_synced(now)
            if is_synced and not each.is_synced:
                self._done.append((each, Synced()))
            each.is_synced = is_synced
            if is_synced:
                each.since = now
