"""`ockam VERB`: Ockam streams over our logs, and clients of any hub (docs/ockam.md)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from logstore import ExplainedError

from .errors import Problem, WrongUsage
from .ockam_clients import run_create, run_position, run_pull, run_push
from .ockam_serving import DEFAULT_LISTEN, listener, run_serve
from .ockam_store import run_end, run_lag, run_rewind, run_streams, run_trim
from .registry import Definition
from .settings import Parser
from .values import log_key, u64

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

_FLAGS: Final = {
    "listen": {"serve"},
    "of": {"serve", "rewind"},
    "share": {"serve", "lag"},
    "keep": {"serve"},
    "hold": {"serve"},
    "max_streams": {"serve"},
    "first_log": {"serve", "trim", "rewind"},
    "partitions": {"create"},
    "partition": {"push", "pull", "position", "trim", "rewind", "end"},
    "to": {"push", "rewind"},
    "lines": {"push"},
    "from_": {"pull"},
    "client": {"pull", "position", "rewind"},
    "limit": {"pull"},
    "follow": {"pull"},
    "routing": {"pull"},
    "save": {"position"},
    "before": {"trim"},
    "timeout": {"create", "push", "pull", "position"},
}
"""Of which verbs a flag is."""
_NEEDED: Final = {"position": ("client",), "trim": ("before",), "rewind": ("client", "to")}
_SETTINGS: Final = {"first_log", "timeout"}
"""Flags that a configuration may set for all verbs."""


def _arguments(parser: Parser) -> None:
    parser.add_argument(
        "verb",
        metavar="VERB",
        help="serve, create HUB NAME, push HUB NAME [FILE...], pull HUB NAME, position HUB NAME,"
        " streams [NAME], lag [NAME], trim NAME, rewind NAME, end NAME; HUB is HOST or HOST:PORT",
    )
    parser.add_argument("words", metavar="ARGUMENT", nargs="*", help="what the verb takes")
    _serving_arguments(parser)
    _client_arguments(parser)


def _serving_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT[,no-create or ,read-only]",
        action="append",
        type=listener,
        default=None,
        own_variable=True,
        help=f"of serve; repeatable (default: {DEFAULT_LISTEN})",
    )
    parser.add_argument(
        "--of",
        metavar="AUTHOR",
        action="append",
        type=_author,
        default=None,
        help="of serve: serves this author's streams too; repeatable; of rewind: whose stream",
    )
    parser.add_argument(
        "--share",
        metavar="AUTHOR",
        action="append",
        type=_author,
        default=None,
        help="takes over the positions that this author's node has saved; repeatable",
    )
    parser.add_argument(
        "--keep",
        metavar="GLOB:age=30d,count=1000000,bytes=10G",
        action="append",
        default=None,
        help="of serve: how long messages of these streams are kept (default: for ever)",
    )
    parser.add_argument(
        "--hold",
        metavar="S",
        type=_seconds,
        help="of serve: a pull at the end of a stream waits so long for a message, 5 s at most",
    )
    parser.add_argument(
        "--max-streams", metavar="N", type=u64, help="that clients may make (default: 100000)"
    )
    parser.add_argument(
        "--first-log", metavar="N", type=u64, help="where new logs begin (default: 4000000000000)"
    )


def _client_arguments(parser: Parser) -> None:
    parser.add_argument("--partitions", metavar="N", type=u64, help="of create")
    parser.add_argument("--partition", metavar="N", type=u64, help="default: 0; of end: all")
    parser.add_argument(
        "--to",
        metavar="WORKER or INDEX",
        own_variable=True,
        help="of push: wraps each message for a worker of a Rust node; of rewind: where to",
    )
    parser.add_argument(
        "--lines",
        action="store_true",
        default=None,
        own_variable=True,
        help="of push: a message for each line of standard input",
    )
    parser.add_argument(
        "--from",
        dest="from_",
        metavar="INDEX",
        type=u64,
        own_variable=True,
        help="of pull: begins there (default: 0)",
    )
    parser.add_argument(
        "--client", metavar="ID", help="whose position it is; of pull: goes on from it, and saves"
    )
    parser.add_argument(
        "--limit", metavar="N", type=u64, own_variable=True, help="of pull: so many messages"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        default=None,
        own_variable=True,
        help="of pull: goes on at the end, until it is interrupted",
    )
    parser.add_argument(
        "--routing",
        action="store_true",
        default=None,
        help="of pull: takes the messages of Rust's and Elixir's nodes apart",
    )
    parser.add_argument("--save", metavar="INDEX", type=u64, help="of position")
    parser.add_argument(
        "--before", metavar="INDEX", type=u64, own_variable=True, help="of trim: drops those below"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=_seconds,
        own_variable=True,
        help="how long a hub may not answer (default: 60)",
    )


def _author(text: str) -> bytes:
    if "/" in text:
        raise ValueError(f"{text[:100]!r} is a log, and an author is wanted")
    return log_key(text).author


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1e9:
        raise ValueError(f"{text[:40]!r} is no number of seconds")
    return number


def _ockam(args: "Namespace", terminal: "Terminal") -> int:
    verb: str = args.verb
    if verb not in _VERBS:
        raise WrongUsage(f"ockam: {verb!r} is none of {', '.join(_VERBS)}")
    for flag, verbs in _FLAGS.items():
        if getattr(args, flag) is not None and verb not in verbs and flag not in _SETTINGS:
            raise WrongUsage(f"ockam {verb}: --{flag.strip('_').replace('_', '-')} is not for it")
    for flag in _NEEDED.get(verb, ()):
        if getattr(args, flag) is None:
            raise WrongUsage(f"ockam {verb}: it needs --{flag}")
    takes, run = _VERBS[verb]
    names = takes.split()
    least = sum(1 for name in names if not name.startswith("["))
    most = None if names and names[-1].endswith("...]") else len(names)
    if len(args.words) < least or (most is not None and len(args.words) > most):
        raise WrongUsage(f"ockam {verb}: it takes {takes or 'no arguments'}")
    try:
        return run(args, terminal)
    except ExplainedError as error:
        raise Problem(str(error)) from None


_VERBS: Final[dict[str, tuple[str, Callable[["Namespace", "Terminal"], int]]]] = {
    "serve": ("", run_serve),
    "create": ("HUB NAME", run_create),
    "push": ("HUB NAME [FILE...]", run_push),
    "pull": ("HUB NAME", run_pull),
    "position": ("HUB NAME", run_position),
    "streams": ("[NAME]", run_streams),
    "lag": ("[NAME]", run_lag),
    "trim": ("NAME", run_trim),
    "rewind": ("NAME", run_rewind),
    "end": ("NAME", run_end),
}

COMMANDS = {"ockam": Definition(arguments=_arguments, run=_ockam)}
