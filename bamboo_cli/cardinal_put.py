"""`cardinal put`: blocks, or messages as they are, from JSON lines into the logs of a stream."""

import json
from binascii import unhexlify
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from logstore import Seldom, Store
from peer import counted, json_number

from .asking import Asker
from .cardinal_streams import from_hex, hash_field, number_field, own_named_stream
from .errors import DONE, FAILED, Problem
from .lines import LineBytes, is_more_there, line_batches
from .opening import opened_store

if TYPE_CHECKING:
    from argparse import Namespace

    from gateways.cardinal import Call, Stream, SubBatch
    from gateways.cardinal.producing import Block

    from .terminal import Terminal

_Waiting = tuple["Call", dict[str, Any], str]

LINE_BYTES_MAX: Final = 16 << 20
_MESSAGE_FIELDS: Final = {"topic", "key", "value"}
_BLOCK_FIELDS: Final = {"number", "hash", "parent", "weight"}
_BLOCK_FIELDS_MAY: Final = _BLOCK_FIELDS | {"values", "deletes", "batches"}


def run_put(args: "Namespace", terminal: "Terminal") -> int:
    """Writes what comes."""
    import time

    from gateways import WriterLock
    from gateways.cardinal import Side, lock_name

    with ExitStack() as stack:
        store = stack.enter_context(opened_store(args))
        stream = own_named_stream(store, args.words[0])
        what = f"another process writes the stream {stream.key}"
        stack.enter_context(WriterLock(store.path, lock_name(stream), what))
        Asker(store, stream.declared.log_ids.values(), terminal, always=None).ask()
        putting: _PuttingMessages | _PuttingBlocks
        if args.messages:
            putting = _PuttingMessages(store, stream, terminal)
        else:
            side = Side(store, Seldom(time.monotonic))
            stack.callback(side.close)
            putting = _PuttingBlocks(store, side, stream, terminal, skips_seen=args.skip_seen)
        name = args.words[1] if len(args.words) > 1 else "-"
        _put(stack.enter_context(_input(name, terminal)), name, putting)
    return FAILED if putting.has_failed else DONE


def _put(source: BinaryIO, name: str, putting: "_PuttingMessages | _PuttingBlocks") -> None:
    """All lines. What was taken of them is written, too, where the rest cannot be read."""
    try:
        for lines in line_batches(_Source(source, name)):
            putting.take(lines)
            if not is_more_there(source):
                putting.write()
    except _Unreadable:
        putting.write()
        raise
    putting.write()
    putting.finish()


class _Unreadable(Problem):
    """What is put cannot be read, or not to its end."""


class _Source:
    """Where lines come from; named where it cannot be read."""

    def __init__(self, stream: Any, name: str) -> None:  # noqa: ANN401 - of one kind or another
        self._stream = stream
        self._name = "standard input" if name == "-" else name

    def read1(self, size: int, /) -> bytes:
        try:
            data: bytes = self._stream.read1(size)
        except OSError as error:
            raise _Unreadable(f"{self._name}: {error.strerror or error}") from None
        return data


def _input(name: str, terminal: "Terminal") -> Any:  # noqa: ANN401 - closes by itself or not
    if name == "-":
        return nullcontext(terminal.input)
    try:
        return open(name, "rb")  # noqa: PTH123 - as it was given; whoever calls closes it
    except OSError as error:
        raise Problem(f"{name}: {error.strerror}") from None


class _Lines:
    """Lines, by their numbers; what is wrong with one keeps nobody from the others."""

    def __init__(self, terminal: "Terminal") -> None:
        self._terminal = terminal
        self._line = 0
        self.has_failed = False

    def take(self, lines: Iterable[LineBytes]) -> None:
        """Some lines, which are written by and by."""
        for line in lines:
            self._line += 1
            try:
                self._take(_fields(line))
            except ValueError as error:
                self.has_failed = True
                self._terminal.note(f"line {self._line}: {error}")

    def _take(self, fields: dict[str, Any]) -> None:
        """One line. Raises ValueError."""
        raise NotImplementedError

    def write(self) -> None:
        """Has what waits on disk. Lines that come together share transactions, up to 1 MiB each."""
        raise NotImplementedError


def _fields(line: LineBytes) -> dict[str, Any]:
    text = line if isinstance(line, bytes) else _whole(line)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None
    if type(fields) is not dict:
        raise ValueError("no JSON object")
    return fields


def _whole(line: BinaryIO) -> bytes:
    with line:
        text = line.read(LINE_BYTES_MAX + 1)
    if len(text) > LINE_BYTES_MAX:
        raise ValueError(f"a line of more than {LINE_BYTES_MAX} bytes; give it with --messages")
    return text


class _PuttingMessages(_Lines):
    """Messages as they are."""

    def __init__(self, store: Store, stream: "Stream", terminal: "Terminal") -> None:
        from gateways.cardinal import Gathering

        super().__init__(terminal)
        self._store = store
        self._stream = stream
        self._gathering = Gathering(stream)
        self._entries = 0
        self._messages = 0

    def _take(self, fields: dict[str, Any]) -> None:
        if fields.keys() != _MESSAGE_FIELDS:
            raise ValueError("an object with topic, key and value is wanted")
        topic, key, value = (fields[name] for name in ("topic", "key", "value"))
        if not isinstance(topic, str) or topic not in self._stream.declared.log_ids:
            raise ValueError(f"the stream has no topic {str(topic)[:70]!r}")
        if not key:
            # It would be a note of ours, and no message.
            raise ValueError("the key is empty")
        self._gathering.add(topic, from_hex(key, "key"), from_hex(value, "value"))
        self._messages += 1
        if self._gathering.is_full:
            self.write()

    def write(self) -> None:
        """The messages that wait."""
        batches = self._gathering.take()
        if batches:
            self._store.append_many(batches)
            self._entries += sum(len(payloads) for _, payloads in batches)

    def finish(self) -> None:
        """Says what was written."""
        fields = {"entries": self._entries, "messages": self._messages}
        messages, entries = counted(self._messages, "message"), counted(self._entries, "entry")
        self._terminal.result(fields, f"{messages} in {entries}")


class _PuttingBlocks(_Lines):
    """Blocks, sub-batches and reorganisations."""

    def __init__(
        self,
        store: Store,
        side: Any,  # noqa: ANN401 - loaded late
        stream: "Stream",
        terminal: "Terminal",
        *,
        skips_seen: bool | None,
    ) -> None:
        from gateways.cardinal import Writer

        super().__init__(terminal)
        self._store = store
        self._writer: Writer = Writer(store, side, stream, skips_seen=bool(skips_seen))
        self._waiting: list[_Waiting] = []
        """Calls that are written together, and what is said of each then."""
        self._entries = 0
        self._bytes = 0

    def _take(self, fields: dict[str, Any]) -> None:
        if "batch" in fields:
            self._take_batch(fields)
        elif "reorg" in fields:
            self._take_reorg(fields)
        elif "reorg_done" in fields:
            self._take_reorg_done(fields)
        else:
            self._take_block(fields)

    def _take_block(self, fields: dict[str, Any]) -> None:
        block, batches = _block(fields)
        call = self._writer.add_block(block, batches)
        said = {"number": json_number(block.number), "hash": block.hash.hex()}
        self._add(call, said, f"{block.number} {block.hash.hex()}")

    def _take_batch(self, fields: dict[str, Any]) -> None:
        of = _object(fields, "batch")
        hash_, id_ = hash_field(of, "hash"), hash_field(of, "id")
        call = self._writer.send_batch(hash_, id_, _sub_batch(of))
        said = {"hash": hash_.hex(), "id": id_.hex()}
        self._add(call, said, f"{hash_.hex()} batch {id_.hex()}")

    def _take_reorg(self, fields: dict[str, Any]) -> None:
        of = _object(fields, "reorg")
        number, hash_ = number_field(of, "number"), hash_field(of, "hash")
        self.write()
        begun = self._writer.begin_reorg(self._store.append_many, number, hash_)
        channel = self._writer.channel
        assert channel is not None
        said = {"number": json_number(number), "hash": hash_.hex()}
        goes_on = "" if begun else ", which had begun before"
        self._terminal.result(
            {"reorg": said, "channel": json_number(channel.log.log_id), "already": not begun},
            f"reorganisation from {number} {hash_.hex()} on: log {channel.log.log_id}{goes_on}",
        )
        self._terminal.flush()

    def _take_reorg_done(self, fields: dict[str, Any]) -> None:
        if fields != {"reorg_done": True}:
            raise ValueError("'reorg_done' is true, and alone")
        self.write()
        self._writer.end_reorg(self._store.append_many)
        self._terminal.result(fields, "reorganisation done")
        self._terminal.flush()

    def _add(self, call: "Call", said: dict[str, Any], text: str) -> None:
        from gateways.cardinal import TOGETHER_BYTES_MAX, TOGETHER_ENTRIES_MAX

        self._waiting.append((call, said, text))
        self._entries += call.entries
        self._bytes += call.bytes
        if self._bytes >= TOGETHER_BYTES_MAX or self._entries >= TOGETHER_ENTRIES_MAX:
            self.write()

    def write(self) -> None:
        """Has what waits on disk, and says so."""
        # A thread that signs while this one makes the next messages was tried: both are Python for
        # the most part, and it took as long.
        waiting, self._waiting = self._waiting, []
        self._entries = self._bytes = 0
        batches = self._writer.together(call for call, _, _ in waiting)
        if batches:
            self._store.append_many(batches)
        self._writer.signed()
        for call, said, text in waiting:
            fields = {
                **said,
                "entries": call.entries,
                "messages": call.messages,
                "already": call.already,
            }
            what = "already" if call.already else counted(call.entries, "entry")
            self._terminal.result(fields, f"{text} {what}")
        self._terminal.flush()

    def finish(self) -> None:
        """Everything was said."""


def _block(fields: Mapping[str, Any]) -> "tuple[Block, dict[bytes, SubBatch]]":
    """A block of a line, and those of its sub-batches that are in it. Raises ValueError."""
    from gateways.cardinal.producing import Block

    if not fields.keys() >= _BLOCK_FIELDS:
        missing = sorted(_BLOCK_FIELDS - fields.keys())
        raise ValueError(f"a block without {', '.join(missing)}")
    if fields.keys() - _BLOCK_FIELDS_MAY:
        raise ValueError(f"a block has no {min(fields.keys() - _BLOCK_FIELDS_MAY)[:60]!r}")
    ids: dict[str, bytes] = {}
    given: dict[bytes, SubBatch] = {}
    batches = fields.get("batches", {})
    if type(batches) is not dict:
        raise ValueError("'batches' is no object")
    for name in batches:
        of = _object(batches, name)
        ids[name] = hash_field(of, "id")
        if "values" in of or "deletes" in of:
            given[ids[name]] = _sub_batch(of)
    block = Block(
        number_field(fields, "number"),
        hash_field(fields, "hash"),
        hash_field(fields, "parent"),
        number_field(fields, "weight"),
        _values(fields),
        _deletes(fields),
        ids,
    )
    return block, given


def _sub_batch(fields: Mapping[str, Any]) -> "SubBatch":
    from gateways.cardinal import SubBatch

    return SubBatch(_values(fields), _deletes(fields))


def _object(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = fields[name]
    if type(value) is not dict:
        raise ValueError(f"{name[:60]!r} is no object")
    return value


def _values(fields: Mapping[str, Any]) -> dict[str, bytes]:
    values = fields.get("values", {})
    if type(values) is not dict:
        raise ValueError("'values' is no object")
    try:
        # Most values are hex, and `from_hex` says of each what it is if one is not.
        return dict(zip(values, map(unhexlify, values.values()), strict=True))
    except (TypeError, ValueError):
        return {key: from_hex(value, f"value of {key[:60]!r}") for key, value in values.items()}


def _deletes(fields: Mapping[str, Any]) -> list[str]:
    deletes = fields.get("deletes", [])
    if not isinstance(deletes, list) or not all(isinstance(each, str) for each in deletes):
        raise ValueError("'deletes' is no list of keys")
    return deletes
