"""The server's side of all streams of one peer (spec section 3.1).

Offers are hashes, and the client answers with which of them it wants and what it wants next; that
answer is what lets the next offer out. So a client that is slow is offered nothing, and one that
answers without reading is held by the two rules that nothing is offered while its level has no
room, or while chunks of two batches are still being read for it.

A subscription divides a stream at the newest index of its moment: up to there is history, which
ends, and behind it is live, which does not. Each side is a stream of its own, with offers of its
own, so that what is new does not wait for what is old.

Messages and times come in, commands go out. Times are seconds of any clock that only goes forward.
Where a peer that keeps to our rules is owed more, an empty first offer and proofs, is in `_offer`.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gateways.reading import CodecError
from gateways.swarm.codec import (
    OPEN_END,
    PRIORITIES,
    RETRIEVE_REQUEST,
    TEXT_BYTES_MAX,
    TOP,
    OfferedHashes,
    Quit,
    Range,
    RetrieveDelivery,
    RetrieveRequest,
    Stream,
    StreamDelivery,
    Subscribe,
    SubscribeError,
    Unsubscribe,
    WantedHashes,
    decode_bits,
)
from gateways.swarm.commands import Read, Search, Send, ServerCommand
from gateways.swarm.devp2p import breach
from gateways.swarm.ended import JustEnded
from gateways.swarm.sources import ANSWERS_MAX, Answers, Opener, Source, UnavailableError

BATCH_ITEMS_MAX: Final = 128
BATCH_S: Final = 0.1
"""So long an unfinished batch waits for more, from its first item on."""
SERVERS_MAX: Final = 512
HOPS_MAX: Final = 20
"""A request that has come so far is not passed on (spec section 3.6)."""
_READS_MAX: Final = 2
"""Batches of a stream whose chunks are being read while another is offered."""
_PEER_READS_MAX: Final = 128
"""Of all streams together, those that are unsubscribed by now too: nothing is offered beyond it."""

ServerMessage = Subscribe | WantedHashes | Unsubscribe | RetrieveRequest


@dataclass(slots=True)
class _Served:
    """One stream, live or history."""

    stream: Stream
    source: Source
    priority: int
    session: int
    """The newest index when it began: where history ends."""
    wanted: Range | None
    """What the client wants next, from an index on to another; None: no more."""
    at: int = 0
    """The next index that is looked at: behind the start of `wanted` where chunks are gone."""
    offered: list[bytes] | None = None
    """The addresses of the offer that is not answered."""
    batch_due: float | None = None
    """When an unfinished batch is offered as it is."""
    reads: int = 0

    def want(self, start: int, end: int) -> None:
        """Takes what a client wants next, as `Range` names it; history has an end."""
        if start == end == 0:
            self.wanted = None
            return
        last = OPEN_END if self.stream.live else self.session
        if not self.stream.live and end:
            last = min(last, end)
        self.wanted, self.at = Range(start, last), max(1, start)


@dataclass(slots=True)
class _Wanted:
    """Chunks that are being read: for a stream, or for a retrieval."""

    addresses: list[bytes]
    priority: int
    served: _Served | None = None


class Server:
    """What one peer is served.

    `openers`: the kinds of streams there are, by name; `RETRIEVE_REQUEST` is not among them.
    `holds`: whether the chunk of an address can be read here, be it stored or passed through.
    `has_room`: whether a level of the sending queue takes more. `serves_retrieval`: whether
    requests for a chunk are answered at all.
    """

    def __init__(
        self,
        openers: Mapping[str, Opener],
        holds: Callable[[bytes], bool],
        has_room: Callable[[int], bool],
        *,
        serves_retrieval: bool = True,
    ) -> None:
        self._openers = dict(openers)
        self._holds = holds
        self._has_room = has_room
        self._answers = Answers(holds)
        # Of a peer that asks and does not read, the oldest are forgotten.
        self._found: deque[bytes] = deque(maxlen=ANSWERS_MAX)
        self._is_reading_found = False
        self._serves_retrieval = serves_retrieval
        if serves_retrieval:
            self._openers[RETRIEVE_REQUEST] = self._open_answers
        self._streams: dict[Stream, _Served] = {}
        self._ended = JustEnded()
        self._reading: dict[int, _Wanted] = {}
        self._number = 0
        self._commands: list[ServerCommand] = []

    def commands(self) -> list[ServerCommand]:
        """What is to be done since the last call, in this order."""
        commands, self._commands = self._commands, []
        return commands

    @property
    def streams(self) -> list[Stream]:
        """Those that are served."""
        return [*self._streams]

    # Messages ------------------------------------------------------------------------------------

    def receive(self, message: ServerMessage, now: float) -> None:
        """Takes a message. Raises RefusedError, which ends the connection (spec section 7)."""
        match message:
            case Subscribe():
                self._subscribe(message, now)
            case WantedHashes():
                self._take_wanted(message, now)
            case Unsubscribe():
                self._unsubscribe(message.stream, now)
            case RetrieveRequest():
                self._retrieve(message, now)

    def _subscribe(self, message: Subscribe, now: float) -> None:
        try:
            self._install(message)
        except UnavailableError as error:
            # A name of the peer's is in it, and may take all the bytes that a text has.
            text = str(error).encode()[:TEXT_BYTES_MAX].decode(errors="ignore")
            self._commands.append(Send(TOP, SubscribeError(text)))
            # Its client may think better of it before it hears that.
            self._ended.note(message.stream, now)
        self.advance(now)

    def _install(self, message: Subscribe) -> None:
        """Installs a stream, and its history beside a live one, or nothing."""
        stream, range_, priority = message
        opener = self._openers.get(stream.name)
        if opener is None:
            raise UnavailableError(f"stream {stream.name} not registered")
        if priority not in PRIORITIES:
            raise UnavailableError("bad priority")
        asked = [(stream, priority)]
        if stream.live and range_ is not None:
            asked.append((stream._replace(live=False), max(0, priority - 1)))
        opened = [(opener(each), each, level) for each, level in asked]
        for each, _ in asked:
            if each in self._streams:
                text = f"server {each.name}|{each.key}|{'l' if each.live else 'h'}"
                raise UnavailableError(f"{text} already registered")
        if len(self._streams) + len(asked) > SERVERS_MAX:
            raise UnavailableError("max peer servers")
        session = opened[0][0].newest
        for source, each, level in opened:
            served = _Served(each, source, level, session, None)
            if each.live:
                served.want(session + 1, 0)
            elif range_ is None or range_ == (0, 0):
                # Here, and nowhere else, it is upstream's way to say: everything.
                served.want(0, OPEN_END)
            else:
                served.want(*range_)
            self._streams[each] = served

    def _open_answers(self, stream: Stream) -> Source:
        if stream.key or not stream.live:
            raise UnavailableError(f"stream {stream.name} not registered")
        return self._answers

    def _take_wanted(self, message: WantedHashes, now: float) -> None:
        served = self._streams.get(message.stream)
        if served is None and self._ended.has(message.stream, now):
            return
        if served is None or served.offered is None:
            raise breach(f"wanted hashes of {message.stream.described}, which has no open offer")
        addresses, served.offered = served.offered, None
        try:
            bits = decode_bits(message.bits, len(addresses))
        except CodecError as error:
            raise breach(f"wanted hashes of {message.stream.described}: {error}") from error
        served.want(message.start, message.end)
        wanted = [each for each, is_wanted in zip(addresses, bits, strict=True) if is_wanted]
        if wanted:
            served.reads += 1
            self._read(_Wanted(wanted, served.priority, served))
        self.advance(now)

    def _unsubscribe(self, stream: Stream, now: float) -> None:
        if self._streams.pop(stream, None) is not None:
            self._ended.note(stream, now)
        elif not self._ended.has(stream, now):
            raise breach(f"{stream.described} is unsubscribed, and was not subscribed")

    def _retrieve(self, message: RetrieveRequest, now: float) -> None:
        address, skip_check, hops = message
        if not self._serves_retrieval:
            return
        if self._holds(address):
            self.found(address, now, skip_check=skip_check)
        elif hops < HOPS_MAX:
            self._commands.append(Search(address, skip_check, hops))

    # Events --------------------------------------------------------------------------------------

    def found(self, address: bytes, now: float, *, skip_check: bool) -> None:
        """A chunk that the peer has asked for by its address is here (spec section 3.6)."""
        if skip_check or Stream(RETRIEVE_REQUEST, "", live=True) not in self._streams:
            self._found.append(address)
            self._read_found()
        else:
            self._answers.append(address)
            self.advance(now)

    def read(self, number: int, chunks: list[bytes | None], now: float) -> None:
        """The chunks of a `Read`, in its order; None for one that is gone, which is passed over."""
        wanted = self._reading.pop(number)
        for address, chunk in zip(wanted.addresses, chunks, strict=True):
            if chunk is not None:
                message = (
                    RetrieveDelivery(address, chunk)
                    if wanted.served is None
                    else StreamDelivery(address, chunk)
                )
                self._commands.append(Send(wanted.priority, message))
        if wanted.served is None:
            self._is_reading_found = False
            self._read_found()
        else:
            wanted.served.reads -= 1
            self.advance(now)

    def _read_found(self) -> None:
        """Has chunks read that the peer has asked for by their addresses, a batch at a time."""
        if self._found and not self._is_reading_found:
            self._is_reading_found = True
            count = min(BATCH_ITEMS_MAX, len(self._found))
            self._read(_Wanted([self._found.popleft() for _ in range(count)], TOP))

    def end(self, name: str, key: str, now: float) -> None:
        """The source of a stream has ended: both twins are quit."""
        for live in (True, False):
            served = self._streams.pop(Stream(name, key, live), None)
            if served is not None:
                # Behind its own offers and chunks: nothing of it comes once it is quit.
                self._commands.append(Send(served.priority, Quit(served.stream)))
                self._ended.note(served.stream, now)

    @property
    def next_deadline(self) -> float | None:
        """When `advance` is to be called at the latest."""
        return min(
            (
                each.batch_due
                for each in self._streams.values()
                if each.batch_due is not None and self._may_offer(each)
            ),
            default=None,
        )

    def advance(self, now: float) -> None:
        """Offers what may be offered: call it when there is more, or room, or at the deadline."""
        for served in self._streams.values():
            if self._may_offer(served):
                self._offer(served, now)

    def _may_offer(self, served: _Served) -> bool:
        return (
            served.wanted is not None
            and served.offered is None
            and served.reads < _READS_MAX
            and len(self._reading) < _PEER_READS_MAX
            and self._has_room(served.priority)
        )

    # Offers --------------------------------------------------------------------------------------

    def _offer(self, served: _Served, now: float) -> None:
        """Offers the next batch if there is one: of other peers, what can be read of it."""
        assert served.wanted is not None
        start, last = served.wanted
        newest = min(last, served.source.newest)
        if served.at > newest:
            served.batch_due = None
            return
        # A batch that has all it can have does not wait: nothing more comes before it is answered.
        is_full = newest - served.at >= BATCH_ITEMS_MAX - 1 or newest == last
        if not is_full:
            if served.batch_due is None:
                served.batch_due = now + BATCH_S
            if now < served.batch_due:
                return
        items = served.source.addresses(served.at, newest, BATCH_ITEMS_MAX)
        # Both questions may fail, and then nothing of this batch was looked at.
        here = [each for each in items if served.source.holds(each)]
        served.at += len(items)
        if not here:
            # Of a million items that are gone no more are looked at in one go.
            served.batch_due = now
            return
        served.batch_due = None
        served.offered = here
        offer = OfferedHashes(served.stream, start, served.at - 1, b"".join(here))
        self._commands.append(Send(served.priority, offer))

    def _read(self, wanted: _Wanted) -> None:
        self._number += 1
        self._reading[self._number] = wanted
        self._commands.append(Read(self._number, wanted.priority, wanted.addresses))
