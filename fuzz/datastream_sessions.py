"""A data stream's client, relay and open operation, whatever the other side sends and does.

The server's session is fuzzed with the requests, in `datastream_codec`.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fuzz.harness import main
from gateways.datastream.codec import (
    BOOKMARK,
    Code,
    Command,
    Entry,
    Header,
    PacketReader,
    decode_entries,
    encode_entry,
    encode_header,
    encode_response,
    encode_result,
)
from gateways.datastream.sessions import (
    Append,
    AskEntries,
    AskHeader,
    ClientSession,
    DeclaredOtherwise,
    HistoriesDiffer,
    OpenedLog,
    OpenLog,
    OpenOperation,
    OperationError,
    ReadOwn,
    RelayEnds,
    RelaySession,
    Truncate,
)
from gateways.reading import CodecError

if TYPE_CHECKING:
    from collections.abc import Generator

ENTRIES = [Entry(0, 176, b"\0" * 8), Entry(1, 1, b"hello"), Entry(2, 2, b"")]
DATA = b"".join(map(encode_entry, ENTRIES))
HEADER = encode_header(Header(1, 137, 1, 4161, 3))
ASKED = (Command.HEADER, Command.ENTRY, Command.BOOKMARK, Command.START, Command.STOP)
STEPS_MAX = 2000
OK = encode_result(Code.OK)

CORPUS = [
    OK + HEADER + OK + encode_response(ENTRIES[1]) + OK + encode_response(None) + OK + DATA + OK,
    encode_result(Code.BAD_ENTRY) + encode_result(Code.BAD_BOOKMARK),
    DATA,
    bytes(range(64)),
    bytes((0, 0, 1, 1, 2, 2, 3, 4, 5, 0x83, 3, 3, 0x10, 2, 2)) * 3,
]


def packets(data: bytes, step: int) -> list[object]:
    """What a client that has asked for everything makes of an answer that comes in pieces."""
    session = ClientSession(1)
    for command in ASKED:
        session.request(command)
    found: list[object] = []
    with suppress(CodecError):
        for at in range(0, len(data), step):
            session.receive(data[at : at + step])
            while (packet := session.next()) is not None:
                assert session.streaming or not isinstance(packet, Entry)
                found.append(packet)
    return found


class Upstream:
    """A relay's host whose upstream and clock do what the bytes say."""

    def __init__(self, script: bytes) -> None:
        self.script = iter(script)
        self.stored: list[Entry] = []
        self.log: list[Entry] = []
        first = next(self.script, 0)
        self.is_true = first % 2 == 0
        """Whether it never takes back what it has counted, nor sends anything else for it."""
        self.session = RelaySession(once=first % 8 == 7, follow_truncation=first % 4 > 1)

    def run(self) -> None:
        """Carries out what the relay asks for until either side has had enough."""
        steps: Generator[Any, Any, None] = self.session.run()
        answer: Any = None
        with suppress(StopIteration, RelayEnds, HistoriesDiffer, DeclaredOtherwise):
            for _ in range(STEPS_MAX):
                if (told := next(self.script, None)) is None:
                    return
                self.act(told)
                answer = self.carry_out(steps.send(answer))
                if self.is_true:
                    assert self.log == self.stored[: len(self.log)]

    def act(self, told: int) -> None:
        """Upstream commits, sends, and if it may, takes back."""
        count, total = told >> 4, len(self.stored)
        match told % 6:
            case 0:
                self.stored += [Entry(total + at, 1, bytes([told])) for at in range(count)]
            case 1 | 2:
                for entry in self.stored[max(0, len(self.log) - count % 3) :][: count + 1]:
                    self.session.receive(entry)
            case 3 if self.is_true:
                self.session.receive(Entry(total, 9, b"not committed"))
            case 3:
                self.session.receive(Entry(count, told, b""))
            case 4 if not self.is_true:
                del self.stored[count:]
            case _:
                pass

    def carry_out(self, step: object) -> object:
        """The answer to a step."""
        match step:
            case AskHeader():
                return Header(1, 137, 1, 4096, len(self.stored))
            case AskEntries(numbers):
                assert 0 < len(numbers) <= 256
                held = len(self.stored)
                return [self.stored[each] if each < held else None for each in numbers]
            case OpenLog(wanted):
                return OpenedLog(wanted, len(self.log))
            case ReadOwn(number):
                return self.log[number]
            case Truncate(number):
                assert number < len(self.log)
                del self.log[number:]
            case Append(added):
                self.log += added
                assert [each.number for each in self.log] == list(range(len(self.log)))
            case _:
                pass
        return None


def check_operation(data: bytes) -> None:
    """What is refused changes nothing, and what is taken out encodes what was put in."""
    operation = OpenOperation(7)
    wanted: list[Entry] = []
    taken: list[bytes] = []
    for at in range(0, len(data), 3):
        kind, number, size = data[at : at + 3].ljust(3, b"\0")
        content = bytes([number]) * (size % 20)
        next_number = operation.next_number
        assert next_number == 7 + len(wanted)
        try:
            match kind % 5:
                case 0:
                    operation.event(number, content)
                    wanted.append(Entry(next_number, number, content))
                case 1:
                    operation.bookmark(content)
                    wanted.append(Entry(next_number, BOOKMARK, content))
                case 2 | 3:
                    place = number % 16 - 7
                    is_there = 0 <= place < len(wanted) and kind % 5 == 2
                    type_ = wanted[place].type if is_there else number % 4
                    if operation.update(place + 7, type_, content):
                        wanted[place] = wanted[place]._replace(data=content)
                    else:
                        assert place < len(taken)
                case _:
                    taken += operation.take()
                    assert operation.bytes == 0
        except OperationError:
            assert operation.next_number == next_number
    taken += operation.take()
    assert list(decode_entries(b"".join(taken))) == wanted


def check(data: bytes) -> None:
    """The invariants, for any bytes."""
    whole = packets(data, len(data) or 1)
    assert packets(data, 1) == whole
    reader = PacketReader()
    reader.feed(data)
    with suppress(CodecError):
        for each in whole:
            assert reader.next() == each
    Upstream(data).run()
    check_operation(data)


if __name__ == "__main__":
    main(check, CORPUS)
