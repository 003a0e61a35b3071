"""One peer of a node: the state machines that talk with it, and what is to be sent to it.

Whatever the peer says goes to the machine whose part it is: what it wants of us to the server, what
we want of it to the client. What both lead to comes out in one list, in the order in which it was
decided.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gateways.swarm.book import Book
from gateways.swarm.client import Client
from gateways.swarm.codec import (
    SYNC,
    TOP,
    Message,
    RequestSubscription,
    RetrieveRequest,
    Subscribe,
    TakeoverProof,
    Unsubscribe,
    WantedHashes,
)
from gateways.swarm.commands import Command, Ended, Refused
from gateways.swarm.intervals import Intervals
from gateways.swarm.proximity import proximity
from gateways.swarm.sending import SendingQueue
from gateways.swarm.server import Server
from gateways.swarm.sources import Opener
from gateways.swarm.wanting import QUIET_S, Wanting


@dataclass(frozen=True, slots=True)
class Known:
    """Who a peer is."""

    public: bytes
    """Its key, 64 bytes."""
    overlay: bytes
    """The address that it claims: upstream's nodes may choose."""
    enode: str
    """Where it says that it is."""
    has_bamboo: bool
    is_light: bool


class Neighbour:
    """A peer whose connection is open.

    `overlay`: ours. `intervals`: what was recorded of its bins, by their keys. `takes`, `serves`:
    whether chunks are synced from it, and whether it is answered when it looks for one.
    """

    def __init__(
        self,
        known: Known,
        overlay: bytes,
        book: Book,
        openers: Mapping[str, Opener],
        holds: Callable[[bytes], bool],
        intervals: Mapping[str, Intervals],
        *,
        now: float,
        takes: bool,
        serves: bool,
    ) -> None:
        self.since = now
        """When all was here that it has; before that, when it came."""
        self.known: Final = known
        self.proximity: Final = proximity(overlay, known.overlay)
        self.queue: Final = SendingQueue()
        self.server: Final = Server(openers, holds, self.queue.has_room, serves_retrieval=serves)
        self.client: Final = Client(book)
        self.wanting: Final = Wanting(self.client, intervals, takes=takes)
        self.sent = 0
        """Chunks that were sent to it."""
        self.is_synced = False
        """Whether that was told, and nothing came since."""
        self.due: float | None = None
        """When `advance` is to be called at the latest."""

    @property
    def overlay(self) -> bytes:
        """Its address."""
        return self.known.overlay

    @property
    def has_room(self) -> bool:
        """Whether it takes what others would have it asked: it may be slow to read."""
        return self.queue.has_room(TOP)

    def seek(self, address: bytes, hops: int) -> None:
        """Asks it for a chunk that it may have, or find."""
        self.client.seek(address, hops)

    def receive(self, message: Message, now: float) -> None:
        """Takes a message. Raises RefusedError, which ends the connection."""
        match message:
            case Subscribe() | WantedHashes() | Unsubscribe() | RetrieveRequest():
                self.server.receive(message, now)
            case RequestSubscription():
                self.wanting.request(message, now)
            case TakeoverProof():
                # Of peers that we have no proofs for it says nothing.
                pass
            case _:
                self.client.receive(message, now)

    def advance(self, now: float) -> None:
        """Does what is due. Raises RefusedError, which ends the connection."""
        self.server.advance(now)
        self.wanting.advance(now)
        self.client.advance(now)

    def commands(self, now: float) -> list[Command]:
        """What is to be done since the last call, in this order."""
        done: list[Command] = [*self.server.commands()]
        while commands := self.client.commands():
            for each in commands:
                if isinstance(each, Refused | Ended):
                    self.wanting.over(each.stream, now)
                done.append(each)
        return done

    def reckon(self, now: float) -> None:
        """Works out anew when something is due."""
        is_told = self.is_synced or not self.wanting.takes
        quiet = None if is_told else self.client.quiet_since(SYNC)
        synced = None if quiet is None else quiet + QUIET_S
        if synced is not None and synced <= now and not self.wanting.is_synced(now):
            # What it lacks besides has a time of its own, or is heard of.
            synced = None
        deadlines = [
            self.server.next_deadline,
            self.client.next_deadline,
            self.wanting.next_deadline,
            synced,
        ]
        self.due = min((each for each in deadlines if each is not None), default=None)
