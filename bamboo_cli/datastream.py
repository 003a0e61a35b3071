"""`datastream VERB`: data streams with bookmarks over our logs (docs/datastream.md)."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from local_api import seconds, u64
from logstore import LogMoved, Store
from peer import counted, json_number, log_fields
from wire import LogKey

from .asking import Asker
from .datastream_serving import DEFAULT_LISTEN, parsed, run_relay, run_serve
from .errors import DONE, FAILED, Problem, WrongUsage
from .naming import resolved_log
from .online import run_trio, tcp_address, while_read
from .opening import opened_store
from .settings import Parser
from .verbs import Verb, Verbs

if TYPE_CHECKING:
    from argparse import Namespace

    from gateways.datastream.codec import Entry, Header

    from .terminal import Terminal


def _log_id(parser: Parser) -> None:
    parser.add_argument(
        "--log-id", metavar="N", type=u64, default=0, help="the log to write (default: 0)"
    )


def _stream_type(parser: Parser) -> None:
    parser.add_argument("--stream-type", metavar="N", type=u64, help="default: 1")


def _create_flags(parser: Parser) -> None:
    _log_id(parser)
    _stream_type(parser)
    parser.add_argument("--system-id", metavar="N", type=u64, help="default: 0")
    parser.add_argument("--file-version", metavar="N", type=_byte, help="default: 1")


def _serve_flags(parser: Parser, default: str = DEFAULT_LISTEN) -> None:
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=tcp_address,
        own_variable=True,
        help=f"default: {default}",
    )
    parser.add_argument(
        "--max-clients", metavar="N", type=u64, help="clients at a time (default: 500)"
    )
    parser.add_argument(
        "--write-timeout",
        metavar="S",
        type=seconds,
        help="a client whose socket takes nothing for so long is let go (default: 3; 0: never)",
    )
    parser.add_argument(
        "--inactivity-timeout",
        metavar="S",
        type=seconds,
        help="one that is stopped and silent for so long is let go (default: 120; 0: never)",
    )


def _relay_flags(parser: Parser) -> None:
    _log_id(parser)
    _stream_type(parser)
    _serve_flags(parser, "serves nobody")
    parser.add_argument(
        "--once", action="store_true", default=None, help="end when it is up to date"
    )
    parser.add_argument(
        "--follow-truncation",
        action="store_true",
        default=None,
        help="give up what the server's history has no more, and go on",
    )


def _export_flags(parser: Parser) -> None:
    parser.add_argument("--no-bookmarks", action="store_true", default=None, help="the file alone")
    parser.add_argument("--bookmarks", metavar="DIR", type=Path, help="where bookmarks are written")


def _client_flags(parser: Parser) -> None:
    _stream_type(parser)
    parser.add_argument("--count", metavar="N", type=u64, help="so many entries")


def _byte(text: str) -> int:
    number = u64(text)
    if number > 255:
        raise ValueError(f"{text[:40]!r} is no number from 0 to 255")
    return number


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no hex") from None


def _place(key: LogKey, seq: int) -> dict[str, object]:
    return log_fields(key) | {"seq": json_number(seq)}


# Writing


def _create(args: "Namespace", terminal: "Terminal") -> int:
    from gateways.datastream import DataStreamSource

    with opened_store(args) as store:
        Asker(store, [args.log_id], terminal, always=None).ask()
        create = partial(
            DataStreamSource.create,
            store,
            log_id=args.log_id,
            stream_type=1 if args.stream_type is None else args.stream_type,
            system_id=args.system_id or 0,
            file_version=1 if args.file_version is None else args.file_version,
        )
        try:
            key = run_trio(create)
        except LogMoved:
            raise Problem(
                f"{LogKey(store.author, args.log_id)}: the log has entries already; choose another"
                " with --log-id"
            ) from None
    terminal.result(_place(key, 1), str(key))
    return DONE


def _append(args: "Namespace", terminal: "Terminal") -> int:
    from .datastream_lines import append_lines

    with opened_store(args) as store:
        Asker(store, [args.log_id], terminal, always=None).ask()
        return run_trio(partial(append_lines, store, args.log_id, terminal))


def _truncate(args: "Namespace", terminal: "Terminal") -> int:
    number: int = parsed(u64, args.words[0], args.verb)

    async def run(store: Store) -> None:
        async with _source(store, args.log_id) as source:
            seq = await source.truncate(number)
            terminal.result(
                _place(source.key, seq) | {"total_entries": json_number(number)},
                f"{source.key}/{seq}: {counted(number, 'entry')} left",
            )

    return _writing(args, terminal, run)


def _end(args: "Namespace", terminal: "Terminal") -> int:
    async def run(store: Store) -> None:
        async with _source(store, args.log_id) as source:
            seq = await source.end()
            terminal.result(_place(source.key, seq), f"{source.key}/{seq}: the end")

    return _writing(args, terminal, run)


def _writing(args: "Namespace", terminal: "Terminal", run: Callable[[Store], Any]) -> int:
    from gateways.datastream.sessions import OperationError

    with opened_store(args) as store:
        Asker(store, [args.log_id], terminal, always=None).ask()
        try:
            run_trio(partial(run, store))
        except OperationError as error:
            raise Problem(f"{LogKey(store.author, args.log_id)}: {error}") from None
    return DONE


def _source(store: Store, log_id: int) -> Any:  # noqa: ANN401 - loaded when it is needed
    from gateways.datastream import DataStreamSource

    return DataStreamSource(store, log_id=log_id)


# Reading


def _header(args: "Namespace", terminal: "Terminal") -> int:
    from gateways.datastream import StreamLog

    with opened_store(args, readonly=True) as store:
        key = resolved_log(store, args.words[0])
        log = StreamLog(store, key)
        try:
            state = log.update()
            place = log.standing(state)
        finally:
            log.close()
    fields: dict[str, object] = dict(log_fields(key))
    declared = state.declaration
    names = ("file_version", "system_id", "stream_type", "origin")
    for name in names:
        value = None if declared is None else getattr(declared, name)
        fields[name] = json_number(value) if isinstance(value, int) else value
    fields |= {
        "total_length": json_number(state.total_length),
        "total_entries": json_number(state.total_entries),
        "seq": json_number(state.seq),
        "height": json_number(place.height),
        "state": str(place.standing),
        "reason": place.reason or None,
    }
    _print_fields(fields, terminal)
    return DONE


def _print_fields(fields: Mapping[str, object], terminal: "Terminal") -> None:
    if terminal.as_json:
        terminal.record(fields)
    else:
        terminal.listing(fields.items())


def _entry_range(text: str) -> tuple[int, int | None]:
    """`N`, `A..B`, `A..` or `..B`, of entries, which count from 0. Raises ValueError."""
    first, dots, last = text.partition("..")
    start = u64(first) if first or not dots else 0
    end = start if not dots else u64(last) if last else None
    if end is not None and end < start:
        raise ValueError(f"{text[:60]!r} ends before it begins")
    return start, end


def _entries(args: "Namespace", terminal: "Terminal") -> int:
    from gateways.datastream import StreamLog
    from gateways.datastream.codec import decode_entries

    first, last = 0, None
    if len(args.words) > 1:
        first, last = parsed(_entry_range, args.words[1], args.verb)
    with opened_store(args, readonly=True) as store:
        key = resolved_log(store, args.words[0])
        log = StreamLog(store, key)
        try:
            log.update()
            log.declared()
            number = first
            while (last is None or number <= last) and (piece := log.piece(number)):
                for entry in decode_entries(piece.data):
                    if last is not None and entry.number > last:
                        break
                    seq = log.seq_of(entry.number)
                    _print_entry(entry, terminal, {"seq": json_number(seq)})
                number = piece.end
        finally:
            log.close()
    if last is not None and number <= last:
        terminal.flush()
        raise Problem(f"{key}: entry {number} is not there")
    return DONE


def _entry_fields(entry: "Entry") -> dict[str, object]:
    return {
        "number": json_number(entry.number),
        "type": entry.type,
        "data": entry.data.hex(),
    }


def _print_entry(
    entry: "Entry", terminal: "Terminal", more: Mapping[str, object] | None = None
) -> None:
    kind = "bookmark" if entry.is_bookmark else f"type {entry.type}"
    size = counted(len(entry.data), "byte")
    terminal.result(
        _entry_fields(entry) | dict(more or {}),
        f"{entry.number}  {kind}  {size}  {entry.data.hex()}".rstrip(),
    )


def _bookmark(args: "Namespace", terminal: "Terminal") -> int:
    from gateways.datastream import StreamLog

    mark = parsed(_hex, args.words[1], args.verb)
    with opened_store(args, readonly=True) as store:
        key = resolved_log(store, args.words[0])
        log = StreamLog(store, key)
        try:
            log.update()
            log.declared()
            number = log.bookmark(mark)
            if number is None:
                raise Problem(f"{key}: there is no bookmark {mark.hex()}")
            event = log.event_at(number)
        finally:
            log.close()
    fields = {
        "bookmark": mark.hex(),
        "number": json_number(number),
        "event": None if event is None or event.is_bookmark else _entry_fields(event),
    }
    follows = "nothing follows" if event is None or event.is_bookmark else f"then {event.number}"
    terminal.result(fields, f"{mark.hex()}  entry {number}, {follows}")
    return DONE


# Files


def _import_file(args: "Namespace", terminal: "Terminal") -> int:
    from gateways.datastream import import_file

    with opened_store(args) as store:
        Asker(store, [args.log_id], terminal, always=None).ask()
        path = Path(args.words[0])
        done = run_trio(partial(import_file, store, path, log_id=args.log_id))
    fields = log_fields(done.key) | {
        "entries": json_number(done.added),
        "total_entries": json_number(done.total_entries),
        "total_length": json_number(done.total_length),
        "relaid": done.relaid,
    }
    terminal.result(fields, f"{done.key}: {counted(done.added, 'entry')} added")
    return DONE


def _export_file(args: "Namespace", terminal: "Terminal") -> int:
    from gateways.datastream import export_file

    if args.no_bookmarks and args.bookmarks is not None:
        raise WrongUsage("datastream export-file: --no-bookmarks and --bookmarks exclude another")
    path = Path(args.words[1])
    with opened_store(args, readonly=True) as store:
        key = resolved_log(store, args.words[0])
        done = export_file(
            store,
            key,
            path,
            with_bookmarks=not args.no_bookmarks,
            bookmarks=args.bookmarks,
        )
    fields = {
        "file": str(done.file),
        "bookmarks": None if done.bookmarks is None else str(done.bookmarks),
        "total_entries": json_number(done.total_entries),
        "total_length": json_number(done.total_length),
    }
    terminal.result(fields, f"{done.file}: {counted(done.total_entries, 'entry')}")
    return DONE


# The client

_ASKED: Final = {
    "header": None,
    "entry": u64,
    "bookmark": _hex,
    "start": u64,
    "start-bookmark": _hex,
}


def _client(args: "Namespace", terminal: "Terminal") -> int:
    where = parsed(tcp_address, args.words[0], args.verb)
    asked: str = args.words[1]
    if asked not in _ASKED:
        raise WrongUsage(f"datastream client: {asked!r} is none of {', '.join(_ASKED)}")
    kind = _ASKED[asked]
    if (kind is None) != (len(args.words) == 2):
        raise WrongUsage(f"datastream client {asked}: too many or too few arguments")
    subject = None if kind is None else parsed(kind, args.words[2], args.verb)
    ask: Callable[[], Awaitable[int]] = partial(_ask, where, asked, subject, args, terminal)
    return run_trio(partial(while_read, terminal, ask))


async def _ask(
    where: Any,  # noqa: ANN401 - an address
    asked: str,
    subject: Any,  # noqa: ANN401 - as `asked` has it
    args: "Namespace",
    terminal: "Terminal",
) -> int:
    from gateways.datastream import DataStreamClient

    kind = 1 if args.stream_type is None else args.stream_type
    async with DataStreamClient(where, stream_type=kind) as client:
        match asked:
            case "header":
                _print_fields(_header_fields(await client.header()), terminal)
                return DONE
            case "entry" | "bookmark":
                found = await (
                    client.entry(subject) if asked == "entry" else client.bookmark(subject)
                )
                if found is None:
                    terminal.note(f"{where}: not found")
                    return FAILED
                _print_entry(found, terminal)
                return DONE
            case "start":
                await client.start(subject)
            case _:
                await client.start_bookmark(subject)
        left: int | None = args.count
        while left is None or left > 0:
            _print_entry(await client.receive(), terminal)
            terminal.flush()
            left = None if left is None else left - 1
    return DONE


def _header_fields(header: "Header") -> dict[str, object]:
    return {name: json_number(value) for name, value in header._asdict().items()}


COMMANDS: Final = {
    "datastream": Verbs(
        "datastream",
        "serve, write, relay and export data streams with bookmarks",
        {
            "create": Verb("", "declare a stream in an own log", _create, _create_flags),
            "append": Verb("", "append what standard input says", _append, _log_id),
            "truncate": Verb("NUMBER", "go back to so many entries", _truncate, _log_id),
            "end": Verb("", "end the log, and with it the stream", _end, _log_id),
            "header": Verb("LOG", "what is declared, and how far it is held", _header),
            "entries": Verb("LOG [RANGE]", "print entries", _entries),
            "bookmark": Verb("LOG HEX", "where a bookmark stands", _bookmark),
            "serve": Verb("LOG", "serve a stream until interrupted", run_serve, _serve_flags),
            "relay": Verb(
                "HOST:PORT", "write a server's stream into an own log", run_relay, _relay_flags
            ),
            "import-file": Verb("FILE", "write a file into an own log", _import_file, _log_id),
            "export-file": Verb("LOG FILE", "write a file", _export_file, _export_flags),
            "client": Verb(
                "HOST:PORT QUESTION [N|HEX]",
                "ask a server: header, entry N, bookmark HEX, start N, start-bookmark HEX",
                _client,
                _client_flags,
            ),
        },
    )
}
