"""A hub's end of a connection, whatever a client sends and whenever its commands are answered.

An input is frames as they come in. One that begins with EVENTS is not sent: its bytes say what
happens next, in which pieces bytes come, and what becomes of commands.
"""

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress

from fuzz.harness import main
from gateways.ockam.codec import (
    CREATE_PARTITIONED,
    FRAME_BYTES_MAX,
    SENT_BYTES_MAX,
    Create,
    FrameDecoder,
    GetIndex,
    Pull,
    Push,
    Pushed,
    Request,
    SaveIndex,
    decode_message,
    decode_payload,
    decode_request,
    decode_response,
    encode_frame,
    encode_message,
    encode_payload,
    encode_request,
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
from gateways.ockam.outcomes import Made, Outcome, message_bytes
from gateways.ockam.server import REPLIES_BYTES_MAX, REQUESTS_BYTES_MAX, Connection, Rights
from gateways.reading import CodecError

EVENTS = 0xEE
STREAM = "ST_S_0c127aefd2ce913b"
OTHER = "ST_S_ffffffffffffffff"
HELD_BYTES_MAX = 8 << 20
_KINDS = [(rights, hold_s) for rights in Rights for hold_s in (0.0, 5.0)]


def _frame(worker: str, request: Request, *back: str) -> bytes:
    route = tuple(map(local, back))
    return encode_frame(encode_message((local(worker),), route, encode_request(request)))


def _events(*told: int) -> bytes:
    return encode_frame(bytes((EVENTS, *told)))


_REQUESTS = [
    _frame("stream", Create("orders"), "app"),
    _frame("stream", Create(None, 100, CREATE_PARTITIONED), "r" * 255, "app"),
    _frame("stream", Create("", 2_000, CREATE_PARTITIONED), "app"),
    _frame(STREAM, Create("other"), "app"),
    _frame(STREAM, Push(1, b"tea"), "app"),
    _frame(STREAM, Push(1, b"coffee")),
    _frame(OTHER, Push(2, b"nobody's"), "app"),
    _frame(STREAM, Pull(1, 0, 1_000), "app"),
    _frame(STREAM, Pull(2, 2**64 - 1, 2**64 - 1), "another"),
    _frame(OTHER, Pull(3, 0, 1), "app"),
    _frame("stream_index", SaveIndex("web", "orders", 7, 2), "app"),
    _frame("stream_index", GetIndex("web", "orders"), "app"),
    _frame("nobody", Pull(3, 0, 1), "app"),
    encode_frame(encode_message((local(STREAM),), (local("app"),), encode_payload("error", b"\0"))),
    b"\0\0",
]
CORPUS = [
    *_REQUESTS,
    _events(0x08, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06),
    _events(0x20) + b"".join(_REQUESTS) + _events(1, 9, 5, 2, 4, 12, 6, 3),
    _events(0xF8) + _REQUESTS[7] * 40 + _events(*(1,) * 30),
    _events(0xF8) + _REQUESTS[4] * 40 + _events(3, 2, 1, 5) + _REQUESTS[7] * 3 + _events(7),
    _events(0xF8, 0x0F) + _REQUESTS[4] * 70,
]


class _Client:
    """A client and a store that do what is told; `asked` and `answered` are counted alike."""

    def __init__(self, rights: Rights, hold_s: float) -> None:
        self.connection = Connection(rights, hold_s=hold_s)
        self.waiting: deque[Command] = deque()
        self.timers: deque[Wait] = deque()
        self.piece = FRAME_BYTES_MAX
        self.stored = 0
        self.has_ended = False
        self.asked: Counter[object] = Counter()
        self.answered: Counter[object] = Counter()
        self.replies: Counter[bytes] = Counter()
        self._confirmed = -1
        self._sent = FrameDecoder()
        self._received = FrameDecoder()

    def run(self, data: bytes) -> None:
        """All that an input says, and then what is left, to the end. Raises CodecError."""
        for is_told, part in _parts(data):
            if is_told:
                for told in part:
                    self.act(told)
                continue
            for at in range(0, len(part), self.piece):
                self.send(part[at : at + self.piece])
        self.settle()
        if not self.has_ended:
            # Nothing that was taken in is counted for ever.
            assert self.connection.wants_bytes
            assert self.connection._asked_bytes == 0  # noqa: SLF001

    def send(self, piece: bytes) -> None:
        """Bytes of the client, once there is room for them."""
        if not self.connection.wants_bytes:
            self.settle()
        if self.has_ended:
            return
        self._sent.feed(piece)
        while (frame := self._sent.next_frame()) is not None:
            self._count(frame)
        self.connection.receive(piece)
        self.look()

    def _count(self, frame: bytes) -> None:
        """A push that may be answered, by whom it is for, its way back and its id."""
        try:
            message = decode_message(frame)
            request = decode_request(*decode_payload(message.payload))
        except CodecError:
            return
        if isinstance(request, Push) and message.onward and message.back:
            self.asked[message.onward[0].value, message.back, request.request] += 1

    def act(self, told: int) -> None:
        """One event. Raises CodecError: what waited for room may be no message."""
        which = told >> 3
        match told & 7:
            case 0:
                self.piece = 1 + which**2
            case 1 | 2 | 3 as how if self.waiting:
                command = self.waiting[which % len(self.waiting)]
                if isinstance(command, Append):
                    # Appends are done in their order.
                    command = next(each for each in self.waiting if isinstance(each, Append))
                self.waiting.remove(command)
                self.answer(command, how)
            case 4 if self.timers:
                self.timers.rotate(-which)
                self.connection.waited(self.timers.popleft().number)
            case 5:
                self.take()
            case 6:
                self.connection.grown(self.connection.held)
            case 7 if which == 31:
                self.connection.end()
                self.has_ended = True
            case _:
                pass
        self.look()

    def answer(self, command: Command, how: int = 1) -> None:
        """What becomes of a command: 1, all that it can; 2, nothing; 3, it fails."""
        connection = self.connection
        match command:
            case MakeStream(number, name, partitions, may_make):
                found = partitions if may_make and how == 1 else partitions // 2
                made = Made(name or "new", [(at, STREAM) for at in range(found)], "no" * (how - 1))
                connection.created(number, made)
            case FindStream(number, address):
                is_there = how == 1 and address == STREAM
                connection.created(number, Made("orders", [(0, address)]) if is_there else None)
            case Append(number, messages):
                connection.appended(number, [self.place(*each, how) for each in messages])
            case Read():
                self.read(command, how)
            case GetPosition(number) if how == 3:
                connection.failed(number)
            case GetPosition(number):
                connection.position(number, 7 if how == 1 else None)
            case SavePosition(number):
                connection.saved(number)
            case Wait():
                raise AssertionError("a timer is no command of a store")

    def place(self, address: str, data: bytes | None, how: int) -> int | Outcome:
        """What becomes of a push."""
        if address != STREAM or how == 2:
            return Outcome.UNKNOWN
        if how == 3 or data is None:
            return Outcome.REFUSED
        self.stored += 1
        return self.stored - 1

    def read(self, asked: Read, how: int) -> None:
        """A message as large as there is room for, where there is one at all."""
        if not self.connection.knows(asked.number):
            return
        found: list[tuple[int, bytes]] | None = []
        if how == 3 or asked.address != STREAM:
            found = None
        elif how == 1 and asked.limit and asked.index < self.stored:
            around = message_bytes(asked.index, b"") + 2
            found = [(asked.index, bytes(asked.room - around))]
        self.connection.read(asked.number, found)

    def look(self) -> None:
        """Takes the commands there are, and checks what is held."""
        connection = self.connection
        for command in connection.commands():
            (self.timers if isinstance(command, Wait) else self.waiting).append(command)  # type: ignore[arg-type]
        connection.take_unknown()
        held = sum(map(len, connection._out))  # noqa: SLF001
        assert held == connection._out_bytes < HELD_BYTES_MAX - REPLIES_BYTES_MAX  # noqa: SLF001
        assert connection._asked_bytes < REQUESTS_BYTES_MAX + FRAME_BYTES_MAX  # noqa: SLF001

    def take(self) -> None:
        """The client takes all that there is for it."""
        while self.connection.has_frames:
            self._received.feed(self.connection.frames())
            while (frame := self._received.next_frame()) is not None:
                self.hear(frame)
            self.connection.sent()

    def hear(self, frame: bytes) -> None:
        """Every reply can be read, fits, and is of what was asked."""
        assert len(frame) <= SENT_BYTES_MAX
        message = decode_message(frame)
        response = decode_response(*decode_payload(message.payload))
        self.replies[frame] += 1
        if isinstance(response, Pushed):
            key = message.back[0].value, message.onward, response.request
            self.answered[key] += 1
            assert self.answered[key] <= self.asked[key]
            if response.is_stored:
                assert response.index > self._confirmed
                self._confirmed = response.index

    def settle(self) -> None:
        """Everything is answered and taken, until nothing is left to be done."""
        self.take()
        self.look()
        while self.waiting or self.timers:
            if self.waiting:
                self.answer(self.waiting.popleft())
            else:
                self.connection.waited(self.timers.popleft().number)
            self.take()
            self.look()
        assert self.connection.is_idle
        assert not self.connection.has_frames


def _parts(data: bytes) -> Iterator[tuple[bool, bytes]]:
    """What an input says in its order: events, or what is sent."""
    at = start = 0
    while at + 2 < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if data[at + 2] == EVENTS and end > at + 2:
            yield False, data[start:at]
            yield True, data[at + 3 : end]
            start = end
        at = end
    yield False, data[start:]


def outcome(data: bytes, piece: int) -> Counter[bytes] | None:
    """All replies where each request is answered as soon as it comes; None: it ends by an error."""
    client = _Client(Rights.ALL, 0.0)
    try:
        for at in range(0, len(data), piece):
            client.send(data[at : at + piece])
            client.settle()
    except CodecError:
        return None
    return client.replies


def check(data: bytes) -> None:
    """The invariants, for any bytes."""
    sent = b"".join(part for is_told, part in _parts(data) if not is_told)
    assert outcome(sent, 1 + len(sent) % 5) == outcome(sent, max(1, len(sent)))
    rights, hold_s = _KINDS[sum(data) % len(_KINDS)]
    with suppress(CodecError):
        _Client(rights, hold_s).run(data)


if __name__ == "__main__":
    main(check, CORPUS)
