"""`pause` and `resume`: no connections for a while, with anybody or with one peer."""

from typing import TYPE_CHECKING

from local_api import rfc3339, span
from logstore import NodeLock, Store, is_in_force, wall_clock_us

from .errors import DONE, Problem
from .opening import opened_store
from .peers import find_peer
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

_PEER_HELP = "a peer's id, its name, or 8 digits and more that its id begins with; else all of them"


def _pause_arguments(parser: Parser) -> None:
    parser.add_argument("peer", metavar="PEER", nargs="?", help=_PEER_HELP)
    parser.add_argument(
        "--for",
        metavar="SPAN",
        dest="for_s",
        type=span,
        own_variable=True,
        help="it ends by itself after that (90s, 10m, 2h, 7d)",
    )


def _pause(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args) as store:
        peer = None if args.peer is None else find_peer(store, args.peer, new=True)
        until_us = None if args.for_s is None else wall_clock_us() + round(args.for_s * 1_000_000)
        changed = store.pause(peer, until_us=until_us)
        until = None if until_us is None else rfc3339(until_us)
        whom = "all connections" if peer is None else peer.hex()
        end = "`resume` ends that" if until is None else f"until {until}"
        terminal.result(
            _fields(peer) | {"paused": True, "paused_until": until, "changed": changed},
            f"{whom} paused, {end}",
        )
        _note_no_node(store, terminal)
    return DONE


def _resume_arguments(parser: Parser) -> None:
    parser.add_argument("peer", metavar="PEER", nargs="?", help=_PEER_HELP)


def _resume(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args) as store:
        peer = None if args.peer is None else find_peer(store, args.peer, new=True)
        pauses, now_us = store.pauses(), wall_clock_us()
        if not store.resume(peer):
            raise Problem(_why_not(store, peer))
        left = is_in_force({each: pauses[each] for each in pauses if each != peer}, peer, now_us)
        whom = "connections" if peer is None else peer.hex()
        terminal.result(
            _fields(peer) | {"paused": left, "paused_until": None, "changed": True},
            f"{whom}: resumed" + (", but all connections are paused" if left else ""),
        )
    return DONE


def _why_not(store: Store, peer: bytes | None) -> str:
    others = [each for each in store.pauses() if each is not None]
    if peer is not None and is_in_force(store.pauses(), None, wall_clock_us()):
        return f"{peer.hex()} alone is not paused, but all connections are: `resume` without a PEER"
    if peer is None and others:
        return f"not all are paused, but {', '.join(each.hex() for each in others[:5])}: name one"
    return "nothing is paused" if peer is None else f"{peer.hex()} is not paused"


def _fields(peer: bytes | None) -> dict[str, object]:
    return {"peer_id": None if peer is None else peer.hex()}


def _note_no_node(store: Store, terminal: "Terminal") -> None:
    if store.path is not None and not NodeLock.is_held(store.path):
        terminal.note("no node serves this store: the next one will begin paused")


COMMANDS = {
    "pause": Definition(arguments=_pause_arguments, run=_pause),
    "resume": Definition(arguments=_resume_arguments, run=_resume),
}
