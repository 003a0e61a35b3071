"""The lines of `datastream append`: whole operations, or one step by step.

Whole operations that have arrived together become durable together.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from gateways.datastream import Batch, DataStreamSource, Operation
from gateways.datastream.sessions import OperationError
from logstore import Store
from peer import json_number, log_fields

from .errors import DONE, FAILED
from .lines import LineBytes, line_batches

if TYPE_CHECKING:
    from .terminal import Terminal

LINE_BYTES_MAX: Final = 4 << 20
BATCH_OPERATIONS_MAX: Final = 1000
BATCH_BYTES_MAX: Final = 1 << 20


class _WrongLine(Exception):  # noqa: N818 - the input's fault, reported and passed over
    """A line that changes nothing; the argument is the reason."""


async def append_lines(store: Store, log_id: int, terminal: "Terminal") -> int:
    """Appends what standard input says; the exit status."""
    async with DataStreamSource(store, log_id=log_id) as source:
        appending = _Appending(source, terminal)
        batches = line_batches(terminal.input)
        while True:
            # A terminal or a pipe may say nothing for long, and Ctrl-C is heard meanwhile.
            lines = await trio.to_thread.run_sync(next, batches, None, abandon_on_cancel=True)
            if lines is None:
                break
            await appending.take(lines)
        appending.finish()
    return FAILED if appending.failed else DONE


class _Appending:
    """What is going on between the lines."""

    def __init__(self, source: DataStreamSource, terminal: "Terminal") -> None:
        self._source = source
        self._terminal = terminal
        self._is_open = False
        self._line = 0
        self.failed = False

    async def take(self, lines: Sequence[LineBytes]) -> None:
        """Lines that came together."""
        waiting: list[tuple[int, list[dict[str, Any]]]] = []
        size = 0
        for line in lines:
            self._line += 1
            try:
                fields = _parse(line)
                if fields is None:
                    continue
                if "entries" in fields and not self._is_open:
                    waiting.append((self._line, _entries_of(fields)))
                    size += len(line) if isinstance(line, bytes) else LINE_BYTES_MAX
                    if len(waiting) >= BATCH_OPERATIONS_MAX or size >= BATCH_BYTES_MAX:
                        await self._commit(waiting)
                        size = 0
                    continue
                await self._commit(waiting)
                size = 0
                await self._step(fields)
            except (_WrongLine, OperationError) as error:
                self._refuse(self._line, str(error))
            finally:
                if not isinstance(line, bytes):
                    line.close()
        await self._commit(waiting)
        self._terminal.flush()

    def finish(self) -> None:
        """Standard input has ended."""
        if self._is_open:
            self._source.rollback_atomic_op()
            self.failed = True
            self._terminal.note("the operation that was open at the end was rolled back")

    def _refuse(self, line: int, why: str) -> None:
        self.failed = True
        self._terminal.note(f"line {line}: {why}")

    async def _commit(self, waiting: list[tuple[int, list[dict[str, Any]]]]) -> None:
        if not waiting:
            return
        async with self._source.batch() as batch:
            for line, entries in waiting:
                try:
                    _fill(batch, entries)
                except (_WrongLine, OperationError) as error:
                    self._refuse(line, str(error))
        waiting.clear()
        for operation in batch.operations:
            self._print(operation)
        self._terminal.flush()

    async def _step(self, fields: Mapping[str, Any]) -> None:
        match fields:
            case {"entries": _}:
                raise _WrongLine("an operation is open already")
            case {"do": "start"}:
                self._source.start_atomic_op()
                self._is_open = True
            case {"do": "bookmark"}:
                self._answer(self._source.add_stream_bookmark(_hex(fields, "data")))
            case {"do": "entry"}:
                self._answer(
                    self._source.add_stream_entry(_number(fields, "type"), _hex(fields, "data"))
                )
            case {"do": "update"}:
                self._source.update_entry_data(
                    _number(fields, "number"), _number(fields, "type"), _hex(fields, "data")
                )
            case {"do": "commit"}:
                operation = await self._source.commit_atomic_op()
                self._is_open = False
                if operation.seq is not None:
                    self._print(operation)
            case {"do": "rollback"}:
                self._source.rollback_atomic_op()
                self._is_open = False
            case _:
                raise _WrongLine('neither "entries" nor a "do" that is known')

    def _answer(self, number: int) -> None:
        self._terminal.record({"number": json_number(number)})

    def _print(self, operation: Operation) -> None:
        assert operation.seq is not None
        assert operation.last is not None
        count = operation.last - operation.first + 1
        only = f"entry {operation.first}"
        span = only if count == 1 else f"entries {operation.first}..{operation.last}"
        self._terminal.result(
            log_fields(self._source.key)
            | {
                "seq": json_number(operation.seq),
                "first": json_number(operation.first),
                "last": json_number(operation.last),
                "entries": count,
            },
            f"{self._source.key}/{operation.seq}: {span}",
        )


def _parse(line: LineBytes) -> dict[str, Any] | None:
    """The object of a line, None for a blank one. Raises _WrongLine."""
    data = line if isinstance(line, bytes) else line.read(LINE_BYTES_MAX + 1)
    if len(data) > LINE_BYTES_MAX:
        raise _WrongLine(f"it is longer than {LINE_BYTES_MAX >> 20} MiB")
    if not data.strip():
        return None
    try:
        fields = json.loads(data)
    except RecursionError:
        raise _WrongLine("JSON that is nested too deeply") from None
    except ValueError as error:
        raise _WrongLine(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise _WrongLine("not a JSON object")
    return fields


def _entries_of(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries = fields["entries"]
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise _WrongLine('"entries" is no list of objects')
    return entries


def _fill(batch: Batch, entries: Sequence[Mapping[str, Any]]) -> None:
    with batch.atomic() as operation:
        for entry in entries:
            if "bookmark" in entry:
                operation.bookmark(_hex(entry, "bookmark"))
            else:
                operation.event(_number(entry, "type"), _hex(entry, "data"))


def _hex(fields: Mapping[str, Any], name: str) -> bytes:
    value = fields.get(name)
    if not isinstance(value, str):
        raise _WrongLine(f'"{name}" is no text of hex digits')
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise _WrongLine(f'"{name}" is not hex') from None


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 20:
        return int(value)
    if type(value) is not int:
        raise _WrongLine(f'"{name}" is no number')
    return value
