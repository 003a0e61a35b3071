"""`cardinal VERB`: blocks of a chain that may fork, over our logs (docs/cardinal.md)."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from local_api import seconds, u64
from logstore import LogMoved, Store, StoreDamaged
from peer import json_number, log_fields
from wire import U64_MAX, LogKey

from .cardinal_reading import run_block, run_follow, run_status, run_tail, run_wait, run_why
from .cardinal_streams import named_stream
from .errors import DONE, FAILED, Problem, WrongUsage
from .opening import opened_store
from .settings import Parser
from .verbs import Verb, Verbs

if TYPE_CHECKING:
    from argparse import Namespace

    from gateways.cardinal import Lying, Stream, Unread

    from .terminal import Terminal


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
    parser.add_argument(
        "--skip-seen",
        action="store_true",
        default=None,
        own_variable="cardinal-skip-seen",
        help="leaves out what another producer of the chain has written in full",
    )


def _streams_flags(parser: Parser) -> None:
    parser.add_argument(
        "--track",
        metavar="REGEX",
        action="append",
        default=None,
        help="items count whose key it is found in; repeatable (default: all do)",
    )
    parser.add_argument(
        "--topic",
        metavar="TOPIC",
        action="append",
        default=None,
        own_variable="tail-topic",
        help="items of this topic count, and of the default one; repeatable (default: all do)",
    )


def _tail_flags(parser: Parser) -> None:
    _streams_flags(parser)
    parser.add_argument(
        "--from",
        dest="start",
        metavar="NUMBER/HASH[/WEIGHT]",
        own_variable="cardinal-from",
        help="begins behind this block (default: with the first that is complete)",
    )
    parser.add_argument(
        "--state",
        metavar="FILE",
        own_variable="cardinal-state",
        help="goes on where the file says, and replaces it behind each update",
    )
    parser.add_argument(
        "--threshold",
        metavar="T",
        type=u64,
        help="how many blocks a reorganisation takes back at most (default: as declared)",
    )
    parser.add_argument(
        "--blocks",
        action="store_true",
        default=None,
        own_variable="tail-blocks",
        help="prints each block once it is complete, too",
    )
    parser.add_argument(
        "--no-values",
        action="store_true",
        default=None,
        own_variable="tail-no-values",
        help="blocks without what is in them",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        default=None,
        own_variable="tail-once",
        help="ends once everything held is printed",
    )


def _wait_flags(parser: Parser) -> None:
    _streams_flags(parser)
    _timeout_flag(parser, "how long it is waited for the block (default: 60)")


def _follow_flags(parser: Parser) -> None:
    parser.add_argument(
        "--topic",
        metavar="TOPIC",
        action="append",
        default=None,
        own_variable="follow-topic",
        help="this topic besides the default one; repeatable (default: all)",
    )
    _timeout_flag(parser, "how long it is waited for the stream's entry 1 (default: 0)")


def _timeout_flag(parser: Parser, what: str) -> None:
    parser.add_argument("--timeout", metavar="S", type=seconds, own_variable=True, help=what)


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

    from .asking import Asker

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
        if first + count - 1 > U64_MAX:
            raise WrongUsage(f"cardinal create: there is no room for {count} logs from {first} on")
        Asker(store, range(first, first + count), terminal, always=None).ask()
        try:
            stream = create_stream(store, store.append_many, settings, log_id=args.log_id)
        except (DeclarationError, ValueError) as error:
            raise Problem(f"cardinal create: {error}") from None
        except LogMoved as error:
            raise Problem(f"{error.where}: the log has entries already; choose another") from None
    terminal.result(_stream_fields(stream), str(stream.key))
    return DONE


def _put(args: "Namespace", terminal: "Terminal") -> int:
    from .cardinal_put import run_put

    return run_put(args, terminal)


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


# Reading


def _messages(args: "Namespace", terminal: "Terminal") -> int:
    from gateways.cardinal import chosen_topics, held_entries

    with opened_store(args, readonly=True) as store:
        logs = chosen_topics(named_stream(store, args.words[0]), args.topic or ())
        printing = _Printing(store, terminal)
        position = store.position()
        held = held_entries(store, logs, printing.say_damaged)
        # What comes meanwhile is printed behind it, and not twice.
        printing.print(each for each in held if each[0] <= position or not args.follow)
        if args.follow:
            _follow(store, logs, position, printing, terminal)
    return FAILED if printing.has_failed else DONE


def _follow(
    store: Store,
    logs: dict[str, LogKey],
    position: int,
    printing: "_Printing",
    terminal: "Terminal",
) -> None:
    from gateways import LogHost
    from gateways.cardinal import new_entries

    from .online import run_trio, while_read

    def look() -> None:
        nonlocal position
        for place, topic, entry in new_entries(store, position, logs, printing.say_damaged):
            printing.print([(place, topic, entry)])
            position = place

    run_trio(partial(while_read, terminal, partial(LogHost(store).watch, look)))


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
            "put": Verb("STREAM [FILE]", "write blocks, JSON lines", _put, _put_flags),
            "messages": Verb(
                "STREAM", "print the messages held, JSON lines", _messages, _messages_flags
            ),
            "tail": Verb("STREAM...", "print how the chain changes", run_tail, _tail_flags),
            "follow": Verb("STREAM", "follow the topics of a stream", run_follow, _follow_flags),
            "block": Verb(
                "STREAM... BLOCK", "print one block, a number or a hash", run_block, _streams_flags
            ),
            "why": Verb("STREAM... HASH", "say what a block waits for", run_why, _streams_flags),
            "wait": Verb(
                "STREAM... BLOCK", "wait for a block, a number or a hash", run_wait, _wait_flags
            ),
            "status": Verb("STREAM...", "how it stands with a chain", run_status, _streams_flags),
        },
    )
}
