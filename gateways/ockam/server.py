"""One connection of a hub, without socket, clock or store (spec section 3).

Bytes come in by `receive`; commands go out by `commands` and what became of each comes back by
its number; frames to be sent go out by `frames`. Requests take effect in the order they come:
pushes that follow each other are one run, and whatever is behind a run waits for it.
"""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final

from gateways.ockam.bare import encode_uint
from gateways.ockam.codec import (
    CREATE,
    DATA_BYTES_MAX,
    PARTITIONS_MAX,
    PULL_MESSAGES_MAX,
    SENT_BYTES_MAX,
    Create,
    Created,
    Failure,
    FrameDecoder,
    GetIndex,
    Index,
    Pull,
    Pulled,
    Push,
    Pushed,
    Request,
    Response,
    Route,
    SaveIndex,
    decode_message,
    decode_payload,
    decode_request,
    encode_frame,
    encode_message,
    encode_response,
    local,
)
from gateways.ockam.commands import (
    Append,
    Command,
    FindStream,
    GetPosition,
    MakeStream,
    Read,
    SavePosition,
    Wait,
)
from gateways.ockam.declared import ADDRESS_PREFIX, is_name
from gateways.ockam.outcomes import UNAVAILABLE, Made, Outcome
from gateways.reading import CodecError

CREATORS: Final = frozenset((b"stream", b"stream_service", b"stream_kafka"))
KEEPERS: Final = frozenset((b"stream_index", b"stream_index_service", b"stream_kafka_index"))
ERROR_WAITS_S: Final = 1.0
"""Upstream's Elixir publisher repeats a refused push at once."""
WAITING_ERRORS_MAX: Final = 64
HELD_PULLS_MAX: Final = 64
REPLIES_MAX: Final = 64
REPLIES_BYTES_MAX: Final = 1 << 20
REQUESTS_MAX: Final = 1_000
REQUESTS_BYTES_MAX: Final = 1 << 20
"""Requests taken in and not answered yet, with what they carry."""
INVALID: Final = "Invalid request"
TOO_MANY_PARTITIONS: Final = "Too many partitions"
_STREAM_ADDRESS: Final = re.compile(ADDRESS_PREFIX.encode() + rb"[0-9a-f]{16}")


class Rights(Enum):
    """What the clients of a listener may do."""

    ALL = auto()
    NO_CREATE = auto()
    READ_ONLY = auto()


@dataclass(slots=True)
class _Asked:
    """A request that has not taken effect yet."""

    address: str
    back: Route
    request: Request | Failure
    """What is asked for; what does not decode is told once it is known that somebody is there."""
    size: int


class _Look(Enum):
    """How it stands with what is read for a pull."""

    UNDER_WAY = auto()
    STALE = auto()
    """Under way, and more was stored since it began: what it finds may lack that."""
    OVER = auto()


@dataclass(slots=True)
class _Held:
    """A pull that is being read or waits for a message."""

    asked: _Asked
    pull: Pull
    is_held: bool = False
    look: _Look = _Look.UNDER_WAY


class Connection:
    """The hub's end of one connection. `hold_s`: how long an empty pull waits, 0 not at all."""

    def __init__(self, rights: Rights = Rights.ALL, *, hold_s: float = 0.0) -> None:
        self._rights = rights
        self._hold_s = hold_s
        self._frames = FrameDecoder()
        self._asked: deque[_Asked] = deque()
        self._asked_bytes = 0
        self._commands: list[Command] = []
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
        self._number = 0
        self._appending: dict[int, list[_Asked]] = {}
        self._single: dict[int, _Asked] = {}
        self._reads: dict[int, _Held] = {}
        self._waits: dict[int, bytes | int] = {}
        self._held: dict[tuple[str, Route], int] = {}
        self._errors = 0
        # Who polls asks with the same routes each time.
        self._rooms = lru_cache(maxsize=1)(_room)
        self._unknown: dict[str, int] = {}
        self._ending = False

    # Bytes in ------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Takes bytes of the client. Raises CodecError, which ends the connection."""
        self._frames.feed(data)
        self._decode()

    def _decode(self) -> None:
        # Nearly always a single request is here, and nothing behind it.
        while (
            self._frames.buffered
            and self._has_room
            and (frame := self._frames.next_frame()) is not None
        ):
            self._take(frame)
        self._advance()

    @property
    def _has_room(self) -> bool:
        return (
            self._asked_bytes < REQUESTS_BYTES_MAX
            and self._may_answer
            and self._under_way < REQUESTS_MAX
            and not self._ending
        )

    @property
    def _under_way(self) -> int:
        appending = sum(map(len, self._appending.values())) if self._appending else 0
        return len(self._asked) + appending + self._reading

    @property
    def _reading(self) -> int:
        """Pulls that are being read, and do not wait for a message."""
        return len(self._reads) - len(self._held)

    @property
    def _may_answer(self) -> bool:
        """Whether there is room for what comes of another request.

        A pull that is being read counts as what its answer may take: who sends pulls and reads
        nothing would have them all read before the first answer is there to be counted.
        """
        promised = self._reading * SENT_BYTES_MAX
        return (
            len(self._out) + self._reading < REPLIES_MAX
            and self._out_bytes + promised < REPLIES_BYTES_MAX
            and self._errors < WAITING_ERRORS_MAX
        )

    @property
    def wants_bytes(self) -> bool:
        """Whether the connection is to be read from."""
        return self._has_room

    def _take(self, frame: bytes) -> None:
        message = decode_message(frame)
        if not message.onward:
            return
        type_, worker = message.onward[0]
        address = worker.decode("utf-8", "backslashreplace") if type_ == 0 else ""
        if not self._is_known(type_, worker):
            self.note_unknown(address or f"type {type_}")
            return
        try:
            protocol, inner = decode_payload(message.payload)
            if protocol == "error":
                return
            request = self._checked(worker, decode_request(protocol, inner))
        except CodecError:
            request = Failure(INVALID)
        if not message.back and not isinstance(request, Push | SaveIndex):
            return
        size = len(frame)
        self._asked.append(_Asked(address, message.back, request, size))
        self._asked_bytes += size

    @staticmethod
    def _is_known(type_: int, worker: bytes) -> bool:
        if type_ != 0:
            return False
        # By its digits too: a reply could not name a worker that is no text.
        is_stream = _STREAM_ADDRESS.fullmatch(worker) is not None
        return is_stream or worker in CREATORS or worker in KEEPERS

    @staticmethod
    def _checked(worker: bytes, request: Request) -> Request | Failure:
        """The request, or what is said of one that this address does not speak, or cannot be."""
        is_right = False
        match request:
            case Create(name, partitions):
                is_right = worker not in KEEPERS
                is_right = is_right and (name is None or is_name(name)) and partitions != 0
                if is_right and (partitions or 0) > PARTITIONS_MAX:
                    return Failure(TOO_MANY_PARTITIONS)
            case Push() | Pull():
                is_right = worker not in KEEPERS and worker not in CREATORS
            case GetIndex(client, name, partition) | SaveIndex(client, name, _, partition):
                is_right = worker in KEEPERS and is_name(client) and is_name(name)
                is_right = is_right and (partition or 0) < PARTITIONS_MAX
        return request if is_right else Failure(INVALID)

    def note_unknown(self, address: str) -> None:
        """Counts an address that there is not."""
        if len(self._unknown) < REPLIES_MAX or address in self._unknown:
            self._unknown[address] = self._unknown.get(address, 0) + 1

    @property
    def has_unknown(self) -> bool:
        """Whether `take_unknown` has any."""
        return bool(self._unknown)

    def take_unknown(self) -> dict[str, int]:
        """The unknown addresses since the last call, and how often each was named."""
        unknown, self._unknown = self._unknown, {}
        return unknown

    # Requests in their order ---------------------------------------------------------------------

    def _advance(self) -> None:
        """Lets requests take effect, as long as there is room for their replies.

        What is behind a run of pushes, or a request about a name, waits for it.
        """
        while self._asked and self._may_answer:
            if isinstance(self._asked[0].request, Push):
                if self._single or any(not each.is_held for each in self._reads.values()):
                    return
                self._append_run()
            elif self._appending or self._single:
                return
            else:
                asked = self._asked.popleft()
                self._begin(asked)

    def _append_run(self) -> None:
        """Has a run of pushes stored, those that are refused among them.

        Only who has the streams knows whether there is an address: where there is none, nothing is
        answered, not even a refusal (3.1).
        """
        run: list[_Asked] = []
        messages: list[tuple[str, bytes | None]] = []
        while self._asked and self._may_answer and isinstance(self._asked[0].request, Push):
            asked = self._asked.popleft()
            assert isinstance(asked.request, Push)
            is_refused = self._is_refused(asked.request)
            # Its place among the ERRORs that wait, or a run of a thousand would all be let wait.
            self._errors += is_refused
            run.append(asked)
            messages.append((asked.address, None if is_refused else asked.request.data))
        number = self._next()
        self._appending[number] = run
        self._commands.append(Append(number, messages))

    def _is_refused(self, push: Push) -> bool:
        return self._rights is Rights.READ_ONLY or len(push.data) > DATA_BYTES_MAX

    def _begin(self, asked: _Asked) -> None:
        request = asked.request
        if isinstance(request, Failure | Create) and asked.address.startswith(ADDRESS_PREFIX):
            number = self._next()
            self._single[number] = asked
            self._commands.append(FindStream(number, asked.address))
            return
        if isinstance(request, Failure):
            self._asked_bytes -= asked.size
            self._reply(asked.address, asked.back, request)
            return
        match request:
            case Create(name, partitions):
                number = self._next()
                self._single[number] = asked
                may_make = self._rights is Rights.ALL
                self._commands.append(MakeStream(number, name, partitions or 1, may_make))
            case Pull() as pull:
                self._begin_pull(asked, pull)
            case GetIndex(client, name, partition):
                number = self._next()
                self._single[number] = asked
                self._commands.append(GetPosition(number, client, name, partition or 0))
            case SaveIndex(client, name, index, partition):
                number = self._next()
                self._single[number] = asked
                self._commands.append(SavePosition(number, client, name, partition or 0, index))
            case Push():
                raise AssertionError("pushes go in runs")

    def _begin_pull(self, asked: _Asked, pull: Pull) -> None:
        earlier = self._held.get((asked.address, asked.back))
        if earlier is not None:
            self._end_hold(earlier)
        number = self._next()
        self._reads[number] = _Held(asked, pull)
        self._commands.append(self._read_command(number))

    def _read_command(self, number: int) -> Read:
        held = self._reads[number]
        pull = held.pull
        # The lengths before payload, inner message and list grow by at most two bytes each.
        room = self._rooms(held.asked.address, held.asked.back) - len(encode_uint(pull.request)) - 6
        limit = min(pull.limit, PULL_MESSAGES_MAX)
        return Read(number, held.asked.address, pull.index, limit, room)

    # What became of commands ---------------------------------------------------------------------

    def created(self, number: int, made: Made | None) -> None:
        """Answers `MakeStream`, and `FindStream`; None: there is no such address.

        Where a store cannot say whether there is one, what is no request gets no answer.
        """
        asked = self._done(number)
        request = asked.request
        if made is None:
            self.note_unknown(asked.address)
            made = Made("", ())
        if isinstance(request, Failure):
            if made.partitions:
                self._reply(asked.address, asked.back, request)
            self._decode()
            return
        assert isinstance(request, Create)
        for partition, address in made.partitions:
            named = None if request.protocol == CREATE else partition
            created = Created(made.name, named, request.protocol)
            self._reply(address, asked.back, created)
        if made.failure:
            self._reply(asked.address, asked.back, Failure(made.failure))
        self._decode()

    def appended(self, number: int, outcomes: Sequence[int | Outcome]) -> None:
        """Answers `Append`: an index for each message, or why it has none."""
        for asked, outcome in zip(self._appending.pop(number), outcomes, strict=True):
            assert isinstance(asked.request, Push)
            self._asked_bytes -= asked.size
            self._errors -= self._is_refused(asked.request)
            if outcome is Outcome.REFUSED:
                self._refuse(asked, asked.request)
            elif outcome is Outcome.UNKNOWN:
                self.note_unknown(asked.address)
            else:
                pushed = Pushed(asked.request.request, is_stored=True, index=int(outcome))
                self._reply(asked.address, asked.back, pushed)
        self._decode()

    def _refuse(self, asked: _Asked, push: Push) -> None:
        if not asked.back:
            return
        number = self._next()
        refusal = Pushed(push.request, is_stored=False, index=0)
        self._waits[number] = _encoded(asked.address, asked.back, refusal)
        self._errors += 1
        self._commands.append(Wait(number, ERROR_WAITS_S))

    def read(self, number: int, messages: Sequence[tuple[int, bytes]] | None) -> None:
        """Answers `Read`; None: there is no such address."""
        held = self._reads[number]
        look, held.look = held.look, _Look.OVER
        if messages is None:
            self.note_unknown(held.asked.address)
            self._forget(number)
        elif messages or held.pull.limit == 0 or not self._may_hold(held):
            self._answer_pull(number, messages)
        else:
            if not held.is_held:
                self._hold(number, held)
            if look is _Look.STALE and self.knows(number):
                self._look_again(number)
        self._decode()

    def _hold(self, number: int, held: _Held) -> None:
        key = held.asked.address, held.asked.back
        other = self._held.get(key)
        # Both were being read. The newer one ends the wait of the earlier one, whichever was first.
        if other is not None and other > number:
            self._answer_pull(number, ())
            return
        if other is not None:
            self._end_hold(other)
        held.is_held = True
        self._held[key] = number
        wait = self._next()
        self._waits[wait] = number
        self._commands.append(Wait(wait, self._hold_s))

    def _may_hold(self, held: _Held) -> bool:
        if self._ending or not self._hold_s:
            return False
        return held.is_held or len(self._held) < HELD_PULLS_MAX

    def grown(self, addresses: frozenset[str] | None = None) -> None:
        """Streams may have more messages; None: any of them. Held pulls are read again.

        One that is being read is read again behind that: it may have passed the place before.
        """
        for number, held in list(self._reads.items()):
            if addresses is not None and held.asked.address not in addresses:
                continue
            if held.look is _Look.OVER:
                self._look_again(number)
            else:
                held.look = _Look.STALE

    def _look_again(self, number: int) -> None:
        self._reads[number].look = _Look.UNDER_WAY
        self._commands.append(self._read_command(number))

    def position(self, number: int, index: int | None) -> None:
        """Answers `GetPosition`."""
        asked = self._done(number)
        request = asked.request
        assert isinstance(request, GetIndex)
        answer = Index(request.client, request.name, index, request.partition)
        self._reply(asked.address, asked.back, answer)
        self._decode()

    def saved(self, number: int) -> None:
        """Answers `SavePosition`, of which the client hears nothing.

        Until then nothing behind it takes effect, and the client is not read on when that is much:
        so what waits for a disk is bounded, and nothing of it is lost.
        """
        self._done(number)
        self._decode()

    def failed(self, number: int) -> None:
        """Answers `GetPosition` that the store cannot answer: with `error`, Unavailable."""
        asked = self._done(number)
        self._reply(asked.address, asked.back, Failure(UNAVAILABLE))
        self._decode()

    def waited(self, number: int) -> None:
        """Answers `Wait`."""
        what = self._waits.pop(number, None)
        if isinstance(what, bytes):
            self._errors -= 1
            self._send(what)
        elif what is not None and what in self._reads:
            self._end_hold(what)
        self._decode()

    def end(self) -> None:
        """No new requests: what waits for a message is answered empty, the rest is finished."""
        self._ending = True
        self._asked.clear()
        for number in list(self._held.values()):
            self._end_hold(number)

    @property
    def held(self) -> frozenset[str]:
        """The addresses of the pulls that wait for a message, or will if none is found now."""
        if not self._hold_s:
            return frozenset()
        return frozenset(held.asked.address for held in self._reads.values())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way but ERRORs that wait."""
        return not (self._appending or self._single or self._reads or self._asked)

    def _end_hold(self, number: int) -> None:
        self._answer_pull(number, ())

    def _answer_pull(self, number: int, messages: Sequence[tuple[int, bytes]]) -> None:
        held = self._reads[number]
        pulled = Pulled(held.pull.request, tuple(messages))
        self._reply(held.asked.address, held.asked.back, pulled)
        self._forget(number)

    def _forget(self, number: int) -> None:
        held = self._reads.pop(number)
        self._asked_bytes -= held.asked.size
        key = held.asked.address, held.asked.back
        if self._held.get(key) == number:
            del self._held[key]

    def _done(self, number: int) -> _Asked:
        asked = self._single.pop(number)
        self._asked_bytes -= asked.size
        return asked

    def _next(self) -> int:
        self._number += 1
        return self._number

    # Out -----------------------------------------------------------------------------------------

    def commands(self) -> list[Command]:
        """What is to be done, since the last call."""
        commands, self._commands = self._commands, []
        return commands

    def _reply(self, address: str, back: Route, response: Response) -> None:
        if back:
            self._send(_encoded(address, back, response))

    def _send(self, frame: bytes) -> None:
        self._out.append(frame)
        self._out_bytes += len(frame)

    @property
    def has_frames(self) -> bool:
        """Whether anything is to be sent."""
        return bool(self._out)

    def frames(self, bytes_max: int = 1 << 18) -> bytes:
        """What is to be sent next, which counts as sent. Call `sent` when it is."""
        parts, size = [], 0
        while self._out and size < bytes_max:
            parts.append(self._out.popleft())
            size += len(parts[-1])
        self._out_bytes -= size
        return b"".join(parts)

    def sent(self) -> None:
        """Something has left: requests that waited for room go on. Raises CodecError."""
        self._decode()

    def knows(self, number: int) -> bool:
        """Whether a read is still wanted: a newer pull may have ended it."""
        return number in self._reads


def _room(address: str, back: Route) -> int:
    """What the number of the request and the messages may take in the answer to a pull."""
    empty = encode_message(back, (local(address),), encode_response(Pulled(0, ())))
    return SENT_BYTES_MAX - len(empty) + len(encode_uint(0))


def _encoded(address: str, back: Route, response: Response) -> bytes:
    encoded = encode_message(back, (local(address),), encode_response(response))
    if len(encoded) > SENT_BYTES_MAX:
        # Only an echo of long texts over a long route can be: nothing that is answerable.
        return b""
    return encode_frame(encoded)
