"""`ockam VERB`: Ockam streams over our logs, and clients of any hub (docs/ockam.md)."""

from typing import Final

from local_api import seconds, u64

from .naming import author_key
from .ockam_clients import run_create, run_position, run_pull, run_push
from .ockam_serving import DEFAULT_LISTEN, listener, run_serve
from .ockam_store import run_end, run_lag, run_rewind, run_streams, run_trim
from .settings import Parser
from .verbs import Verb, Verbs


def _serve(parser: Parser) -> None:
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT[,no-create or ,read-only]",
        action="append",
        type=listener,
        default=None,
        own_variable=True,
        help=f"repeatable (default: {DEFAULT_LISTEN})",
    )
    _authors(parser, "--of", "serves this author's streams too; repeatable")
    _share(parser)
    parser.add_argument(
        "--keep",
        metavar="GLOB:age=30d,count=1000000,bytes=10G",
        action="append",
        default=None,
        help="how long messages of these streams are kept (default: for ever)",
    )
    parser.add_argument(
        "--hold",
        metavar="S",
        type=seconds,
        help="a pull at the end of a stream waits so long for a message, 5 s at most",
    )
    parser.add_argument(
        "--max-streams", metavar="N", type=u64, help="that clients may make (default: 100000)"
    )
    _first_log(parser)


def _authors(parser: Parser, flag: str, what: str) -> None:
    parser.add_argument(
        flag, metavar="AUTHOR", action="append", type=author_key, default=None, help=what
    )


def _share(parser: Parser) -> None:
    _authors(
        parser, "--share", "takes over the positions that this author's node has saved; repeatable"
    )


def _first_log(parser: Parser) -> None:
    parser.add_argument(
        "--first-log", metavar="N", type=u64, help="where new logs begin (default: 4000000000000)"
    )


def _timeout(parser: Parser) -> None:
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        own_variable=True,
        help="how long a hub may not answer (default: 60)",
    )


def _partition(parser: Parser, default: str = "0") -> None:
    parser.add_argument("--partition", metavar="N", type=u64, help=f"default: {default}")


def _client(parser: Parser, what: str = "whose position it is") -> None:
    parser.add_argument("--client", metavar="ID", help=what)


def _create(parser: Parser) -> None:
    parser.add_argument("--partitions", metavar="N", type=u64, help="default: one, without numbers")
    _timeout(parser)


def _push(parser: Parser) -> None:
    _partition(parser)
    parser.add_argument(
        "--to",
        metavar="WORKER",
        own_variable="push-to",
        help="wraps each message for a worker of a Rust node",
    )
    parser.add_argument(
        "--lines",
        action="store_true",
        default=None,
        own_variable=True,
        help="a message for each line of standard input",
    )
    _timeout(parser)


def _pull(parser: Parser) -> None:
    _partition(parser)
    parser.add_argument(
        "--from",
        dest="from_",
        metavar="INDEX",
        type=u64,
        own_variable=True,
        help="begins there (default: 0)",
    )
    _client(parser, "goes on from this client's position, and saves it")
    parser.add_argument(
        "--limit", metavar="N", type=u64, own_variable=True, help="so many messages"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        default=None,
        own_variable=True,
        help="goes on at the end, until it is interrupted",
    )
    parser.add_argument(
        "--routing",
        action="store_true",
        default=None,
        help="takes the messages of Rust's and Elixir's nodes apart",
    )
    _timeout(parser)


def _position(parser: Parser) -> None:
    _partition(parser)
    _client(parser)
    parser.add_argument("--save", metavar="INDEX", type=u64, help="the client is here now")
    _timeout(parser)


def _of_store(parser: Parser) -> None:
    """What those that work on a store look at, whether they have such a flag or not."""
    parser.set_defaults(of=None, share=None, first_log=None)


def _lag(parser: Parser) -> None:
    _of_store(parser)
    _share(parser)


def _trim(parser: Parser) -> None:
    _of_store(parser)
    _partition(parser)
    parser.add_argument(
        "--before",
        metavar="INDEX",
        type=u64,
        own_variable=True,
        help="messages below it are dropped",
    )
    _first_log(parser)


def _rewind(parser: Parser) -> None:
    _of_store(parser)
    _partition(parser)
    _client(parser)
    parser.add_argument("--to", metavar="INDEX", own_variable="rewind-to", help="where it goes on")
    _authors(parser, "--of", "whose stream it is (default: one's own)")
    _first_log(parser)


def _end(parser: Parser) -> None:
    _of_store(parser)
    _partition(parser, "all")


COMMANDS: Final = {
    "ockam": Verbs(
        "ockam",
        "serve Ockam streams, push to and pull from any hub of them; HUB is HOST or HOST:PORT",
        {
            "serve": Verb("", "serve the streams of a store until interrupted", run_serve, _serve),
            "create": Verb("HUB NAME", "make a stream", run_create, _create),
            "push": Verb(
                "HUB NAME [FILE...]", "send messages, durable one by one", run_push, _push
            ),
            "pull": Verb("HUB NAME", "print messages", run_pull, _pull),
            "position": Verb(
                "HUB NAME", "where a client is, or save it", run_position, _position, ("client",)
            ),
            "streams": Verb("[NAME]", "list the streams of a store", run_streams, _of_store),
            "lag": Verb("[NAME]", "how far each client is behind", run_lag, _lag),
            "trim": Verb("NAME", "drop old messages now", run_trim, _trim, ("before",)),
            "rewind": Verb(
                "NAME", "send a client back, or forward", run_rewind, _rewind, ("client", "to")
            ),
            "end": Verb("NAME", "end a stream, or one partition of it", run_end, _end),
        },
    )
}
