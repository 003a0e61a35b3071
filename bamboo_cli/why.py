"""`why`: why a log is not complete here, or a peer brings nothing."""

from typing import TYPE_CHECKING

from logstore import Reference
from wire import LogKey

from .errors import DONE, FAILED, Problem, WrongUsage
from .naming import Written, log_key, resolved_log
from .opening import opened_store
from .peers import find_peer
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from logstore import Store

    from .terminal import Terminal


def _subject(text: str) -> LogKey | Written | str:
    """A log, or what else is a peer. Raises ValueError."""
    host = text.partition(":")[0]
    if ("/" in text and host != "unix") or (
        len(host) >= 60 and not set(host.lower()) - set("0123456789abcdef")
    ):
        return log_key(text)
    from peer.node import Address  # loads Trio, which `--help` can do without

    Address.parse(text, unix=True)
    return text


def _meant(store: "Store", text: str) -> LogKey | str:
    """A host, unless something in the store is called so: what has a name is meant by it."""
    try:
        Reference.parse(text)
        return resolved_log(store, text)
    except (ValueError, Problem):
        return text


def _arguments(parser: Parser) -> None:
    parser.add_argument(
        "subject",
        metavar="LOG or HOST:PORT",
        nargs="?",
        type=_subject,
        help="a log, or a peer by its address",
    )
    parser.add_argument(
        "--peer",
        metavar="PEER",
        own_variable=True,
        help="a peer by its id, its name, or 8 digits and more of an id that is decided",
    )


def _why(args: "Namespace", terminal: "Terminal") -> int:
    from peer.node import serving_state, why_log, why_peer

    if (args.subject is None) == (args.peer is None):
        raise WrongUsage("why: name a LOG or HOST:PORT, or a peer with --peer")
    with opened_store(args, readonly=True) as store:
        state = serving_state(store)
        if args.peer is not None:
            reasons = why_peer(store, state, find_peer(store, args.peer, new=True))
        else:
            subject = args.subject
            if isinstance(subject, str):
                subject = _meant(store, subject)
            if isinstance(subject, LogKey):
                reasons = why_log(store, state, subject)
            else:
                reasons = why_peer(store, state, subject)
    for reason in reasons:
        fields = {"text": reason.text, "wrong": reason.wrong, "advice": reason.advice}
        terminal.result(fields, f"{'!' if reason.wrong else ' '} {reason}")
    return FAILED if any(reason.wrong for reason in reasons) else DONE


COMMANDS = {"why": Definition(arguments=_arguments, run=_why)}
