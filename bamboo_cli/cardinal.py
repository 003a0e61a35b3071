"""`cardinal VERB`: blocks of a chain that may fork, over our logs (docs/cardinal.md)."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from logstore import LogMoved, Store, StoreDamaged
from peer import counted, json_number, log_fields
from wire import LogKey

from .asking import Asker
from .errors import DONE, FAILED, Problem, WrongUsage
from .lines import LineBytes, line_batches
from .opening import opened_store
from .settings import Parser
from .values import log_key, u64
from .verbs import Verb, Verbs

if TYPE_CHECKING:
    from argparse import Namespace

    from gateways.cardinal import Lying, Stream, Unread

    from .terminal import Terminal

LINE_BYTES_MAX: Final = 16 << 20
_MESSAGE_FIELDS: Final = {"topic", "key", "value"}
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})*")


def _create_flags(parser: Parser) -> None:
    parser.add_argument(
        "--topic",
        metavar="PATTERN=TOPIC",
        action="append",
        type=_pattern,
        default=None,
        own_variable="cardinal-topic",
        help="where keys go whose beginning the pattern matches; the first that does counts",
    )
    parser.add_argument("--default", metavar="TOPIC", help="of everything else (default: main)")
    parser.add_argument(
        "--threshold",
        metavar="T",
        type=u64,
        help="how many blocks a reorganisation takes back at most (default: 128)",
    )
    parser.add_argument(
        "--log-id", metavar="N", type=u64, help="of the default topic (default: the lowest free)"
    )


def _put_flags(parser: Parser) -> None:
    parser.add_argument(
        "--messages",
        action="store_true",
        default=None,
        own_variable="cardinal-messages",
        help='messages as they are: {"topic", "key", "value"}, key and value in hex',
    )


def _messages_flags(parser: Parser) -> None:
    parser.add_argument(
        "--topic",
        metavar="TOPIC",
        action="append",
        default=None,
        own_variable="messages-topic",
        help="those of this topic alone; repeatable",
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        default=None,
        own_variable=True,
        help="goes on with what comes, until it is interrupted",
    )


def _pattern(text: str) -> tuple[str, str]:
    pattern, divider, topic = text.rpartition("=")
    if not divider or not pattern:
        raise ValueError(f"{text[:60]!r} is no PATTERN=TOPIC")
    return pattern, topic


# Making


def _create(args: "Namespace", terminal: "Terminal") -> int:
    from gateways import free_runs
    from gateways.cardinal import FIRST_LOG, Settings, create_stream
    from gateways.cardinal.declared import is_name
    from gateways.declaration import DeclarationError

    given = {"default": args.default, "threshold": args.threshold}
    settings = Settings(
        args.words[0],
        patterns=tuple(args.topic or ()),
        **{name: value for name, value in given.items() if value is not None},
    )
    topics = [settings.default, *(topic for _, topic in settings.patterns)]
    for what, name in (("chain", settings.chain), *(("topic", topic) for topic in topics)):
        if not is_name(name):
            raise WrongUsage(
                f"cardinal create: {name[:70]!r} is no name of a {what}:"
                " 1 to 64 of A-Z a-z 0-9 . _ -"
            )
    with opened_store(args) as store:
        count = len(set(topics))
        first = next(free_runs(store, count, FIRST_LOG)) if args.log_id is None else args.log_id
        Asker(store, range(first, first + count), terminal, always=None).ask()
        try:
            stream = create_stream(store, store.append_many, settings, log_id=args.log_id)
        except (DeclarationError, ValueError) as error:
            raise Problem(f"cardinal create: {error}") from None
        except LogMoved as error:
            raise Problem(f"{error.where}: the log has entries already; choose another") from None
    terminal.result(_stream_fields(stream), str(stream.key))
    return DONE


def _stream_fields(stream: "Stream") -> dict[str, object]:
    declared = stream.declared
    return {
        **log_fields(stream.key),
        "chain": declared.chain,
        "default": declared.default,
        "log_ids": {topic: json_number(each) for topic, each in declared.log_ids.items()},
        "patterns": [list(each) for each in declared.patterns],
        "threshold": declared.threshold,
    }


def _stream(store: Store, text: str) -> "Stream":
    """By its log, or one's own by the chain."""
    from gateways.cardinal import own_stream, stream_of

    if "/" in text:
        try:
            key = log_key(text)
        except ValueError as error:
            raise WrongUsage(f"cardinal: {error}") from None
        return stream_of(store, key)
    found = own_stream(store, text)
    if found is None:
        raise Problem(
            f"{text[:70]}: this store has no such chain of its own; another's stream is AUTHOR/LOG"
        )
    return found


# Writing


def _put(args: "Namespace", terminal: "Terminal") -> int:
    from gateways import WriterLock
    from gateways.cardinal import lock_name

    with ExitStack() as stack:
        store = stack.enter_context(opened_store(args))
        stream = _stream(store, args.words[0])
        if stream.key.author != store.author:
            raise Problem(f"{stream.key}: another author's stream; only its author writes it")
        what = f"another process writes the stream {stream.key}"
        stack.enter_context(WriterLock(store.path, lock_name(stream), what))
        Asker(store, stream.declared.log_ids.values(), terminal, always=None).ask()
        putting = _Putting(store, stream, terminal)
        for lines in line_batches(stack.enter_context(_input(args, terminal))):
            putting.take(lines)
        putting.finish()
    return FAILED if putting.has_failed else DONE


def _input(args: "Namespace", terminal: "Terminal") -> Any:  # noqa: ANN401 - closes by itself or not
    from contextlib import nullcontext

    name = args.words[1] if len(args.words) > 1 else "-"
    if name == "-":
        return nullcontext(terminal.input)
    try:
        return open(name, "rb")  # noqa: PTH123 - as it was given; whoever calls closes it
    except OSError as error:
        raise Problem(f"{name}: {error.strerror}") from None


class _Putting:
    """Messages from lines into the logs of a stream."""

    def __init__(self, store: Store, stream: "Stream", terminal: "Terminal") -> None:
        from gateways.cardinal import Gathering

        self._store = store
        self._stream = stream
        self._terminal = terminal
        self._gathering = Gathering(stream)
        self._line = 0
        self._entries = 0
        self._messages = 0
        self.has_failed = False

    def take(self, lines: Iterable[LineBytes]) -> None:
        """Lines that came together are on disk together, up to 1 MiB of them."""
        for line in lines:
            self._line += 1
            try:
                self._gathering.add(*self._read(line))
            except ValueError as error:
                self.has_failed = True
                self._terminal.note(f"line {self._line}: {error}")
                continue
            self._messages += 1
            if self._gathering.is_full:
                self._write()
        self._write()

    def _read(self, line: LineBytes) -> tuple[str, bytes, bytes]:
        text = line if isinstance(line, bytes) else _whole(line)
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError("no JSON") from None
        if not isinstance(fields, dict) or fields.keys() != _MESSAGE_FIELDS:
            raise ValueError("an object with topic, key and value is wanted")
        topic, key, value = (fields[name] for name in ("topic", "key", "value"))
        if not isinstance(topic, str) or topic not in self._stream.declared.log_ids:
            raise ValueError(f"the stream has no topic {str(topic)[:70]!r}")
        if not key:
            # It would be a note of ours, and no message.
            raise ValueError("the key is empty")
        return topic, _bytes(key, "key"), _bytes(value, "value")

    def _write(self) -> None:
        batches = self._gathering.take()
        if batches:
            self._store.append_many(batches)
            self._entries += sum(len(payloads) for _, payloads in batches)

    def finish(self) -> None:
        """Says what was written."""
        fields = {"entries": self._entries, "messages": self._messages}
        messages, entries = counted(self._messages, "message"), counted(self._entries, "entry")
        text = f"{messages} in {entries}"
        self._terminal.result(fields, text)


def _whole(line: BinaryIO) -> bytes:
    with line:
        text = line.read(LINE_BYTES_MAX + 1)
    if len(text) > LINE_BYTES_MAX:
        raise ValueError(f"a line of more than {LINE_BYTES_MAX} bytes")
    return text


def _bytes(value: object, what: str) -> bytes:
    if not isinstance(value, str) or _HEX.fullmatch(value) is None:
        raise ValueError(f"the {what} is no hex")
    return bytes.fromhex(value)


# Reading


def _messages(args: "Namespace", terminal: "Terminal") -> int:
    from gateways.cardinal import chosen_topics, held_entries

    with opened_store(args, readonly=True) as store:
        logs = chosen_topics(_stream(store, args.words[0]), args.topic or ())
        printing = _Printing(store, terminal)
        position = store.position()
        held = held_entries(store, logs, printing.say_damaged)
        # What comes meanwhile is printed behind it, and not twice.
        printing.print(each for each in held if each[0] <= position or not args.follow)
        if args.follow:
            _follow(store, logs, position, printing)
    return FAILED if printing.has_failed else DONE


def _follow(store: Store, logs: dict[str, LogKey], position: int, printing: "_Printing") -> None:
    from gateways import LogHost
    from gateways.cardinal import new_entries

    from .online import run_trio

    def look() -> None:
        nonlocal position
        for place, topic, entry in new_entries(store, position, logs, printing.say_damaged):
            printing.print([(place, topic, entry)])
            position = place

    async def watch() -> None:
        await LogHost(store).watch(look)

    run_trio(watch)


class _Printing:
    """Messages as JSON lines, each once."""

    def __init__(self, store: Store, terminal: "Terminal") -> None:
        self._store = store
        self._terminal = terminal
        self.has_failed = False

    def print(self, entries: Iterable[tuple[int, str, Any]]) -> None:
        from gateways.cardinal import messages_of_entry

        for _, topic, entry in entries:
            self._print_all(messages_of_entry(self._store, topic, entry))
        self._terminal.flush()

    def _print_all(self, found: "Iterator[Lying | Unread]") -> None:
        from gateways.cardinal import Unread

        for each in found:
            if isinstance(each, Unread):
                self.has_failed = True
                self._terminal.note(
                    f"{each.log}/{each.seq}: {each.reason}; the rest is passed over"
                )
                continue
            self._terminal.record(
                {
                    **log_fields(each.log),
                    "seq": json_number(each.seq),
                    "topic": each.topic,
                    "key": each.key.hex(),
                    "value": each.value.hex(),
                }
            )

    def say_damaged(self, error: StoreDamaged) -> None:
        """An entry that is passed over."""
        self.has_failed = True
        self._terminal.note(str(error))


COMMANDS: Final = {
    "cardinal": Verbs(
        "cardinal",
        "keep blocks of a chain in logs; STREAM is AUTHOR/LOG, or of one's own the chain's name",
        {
            "create": Verb(
                "CHAIN", "declare a stream, one log for each topic", _create, _create_flags
            ),
            "put": Verb(
                "STREAM [FILE]", "write messages, JSON lines", _put, _put_flags, ("messages",)
            ),
            "messages": Verb(
                "STREAM", "print the messages held, JSON lines", _messages, _messages_flags
            ),
        },
    )
}
