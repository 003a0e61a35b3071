"""`identity`, and `peer`: who this node is to others, who is let in, and with what."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from local_api import byte_size, connected_counts, full, peer_line, size
from logstore import (
    KnownPeer,
    PeerState,
    ReadScope,
    Reference,
    RuleChange,
    Store,
    WriteScope,
    read_scope,
    written_scope,
)
from logstore import check_name as checked_name
from wire import LogKey

from .errors import DONE, Problem, WrongUsage
from .naming import resolved, resolved_author
from .opening import opened_store
from .registry import Definition
from .settings import Parser, store_path

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from .terminal import Terminal

ACTIONS: Final = ("allow", "block", "remove", "rename", "list", "show")
_NO_SUCH_PEER: Final = "there is no such peer (`peer list` lists them)"
_IN_FULL: Final = "nothing is decided of that peer: name its id in full"
_SHOWN: Final = 12
"""Digits of an id on a terminal."""


def _no_arguments(_: Parser) -> None:
    """Nothing but the flags of every command."""


def _identity(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args, readonly=True) as store:
        # What is shown is what others are to allow: only who has the key is that.
        store.signing_key()
        own = store.author
        name = _names(store).get(own)
    fields = {
        "author": own.hex(),
        "peer_id": own.hex(),
        "name": name,
        "store": str(store_path(args).absolute()),
    }
    terminal.result(fields, own.hex())
    return DONE


def _names(store: Store) -> dict[LogKey | bytes, str]:
    return {target: name for name, target in store.names().items()}


# Who is meant


def find_peer(store: Store, text: str, *, new: bool = False) -> bytes:
    """A peer by its id, its name, or 8 digits and more that its id begins with.

    `new`: it may be one that nobody has heard of, by its id in full: ids that begin alike can be
    made, so that a beginning stands for what somebody has decided or named, and for nothing else.
    Raises Problem for none, WrongUsage for what is no id or stands for several.
    """
    try:
        written = Reference.parse(text)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    if written.log_id is not None:
        raise WrongUsage(f"{text[:80]!r} is a log, and a peer is wanted")
    decided = {each.peer_id: each.state for each in store.peers.known()}
    waiting = {each for each, state in decided.items() if state is PeerState.WAITING}
    if written.author is not None:
        found = written.author
    else:
        try:
            found = resolved_author(store, text)
        except Problem:
            if any(each.hex().startswith(written.beginning or "-") for each in waiting):
                raise WrongUsage(f"{text}: {_IN_FULL}") from None
            raise Problem(f"{text}: {_NO_SUCH_PEER}") from None
        if written.name is None and (found not in decided or found in waiting):
            # An author of whom something is held: whoever decides of him sees all of the id.
            raise WrongUsage(f"{text}: {_IN_FULL}")
    if new or found in decided:
        return found
    raise Problem(f"{text}: {_NO_SUCH_PEER}")


# The command


def _peer_arguments(parser: Parser) -> None:
    parser.add_argument(
        "action",
        metavar="allow|block|remove|rename|list|show",
        help="allow: let a peer in, or change what goes for it; block: let it in no more; remove: "
        "forget it; rename: call it something else; list: all of them; show: one of them",
    )
    parser.add_argument(
        "words",
        metavar="PEER",
        nargs="*",
        help="its id (64 digits), its name, or 8 digits and more of an id that is decided; with "
        "rename the new name behind it",
    )
    parser.add_argument(
        "--name", metavar="NAME", type=checked_name, own_variable=True, help="what to call it here"
    )
    parser.add_argument(
        "--read",
        metavar="WHAT",
        action="append",
        default=[],
        own_variable=True,
        help="what it may read: all (the default), none, or AUTHOR or AUTHOR/LOGID, repeatable",
    )
    parser.add_argument(
        "--write",
        metavar="WHAT",
        type=_write_scope,
        own_variable=True,
        help="what is taken from it: followed (the default: what this store follows), own (of that"
        " the logs of its own author), or none",
    )
    for flag, words in (("--rate-in", "taken from it"), ("--rate-out", "sent to it")):
        parser.add_argument(
            flag,
            metavar="BYTES",
            type=byte_size,
            own_variable=True,
            help=f"bytes a second that are {words} at most; 0: without a limit of its own",
        )
    parser.add_argument(
        "--connections",
        metavar="N",
        type=_connections,
        own_variable=True,
        help="how many connections it may have at a time (4)",
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        type=_address,
        own_variable=True,
        help="where `serve` calls it; none: nowhere",
    )


def _write_scope(text: str) -> WriteScope:
    """One of the words. Raises ValueError."""
    try:
        return WriteScope(text)
    except ValueError:
        raise ValueError(f"{text!r:.40} is none of followed, own and none") from None


def _connections(text: str) -> int:
    """A number from 1 on. Raises ValueError."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 4 and int(text)):
        raise ValueError(f"{text[:40]!r} is no number of connections, from 1 to 9999")
    return int(text)


def _address(text: str) -> str:
    """`HOST:PORT`, or "" for none. Raises ValueError."""
    if text == "none":
        return ""
    from peer.node import PeerAddress  # loads Trio, which `--help` can do without

    target = PeerAddress.parse(text)
    if target.peer is not None or target.tls is not None:
        raise ValueError(f"{text[:100]!r}: HOST:PORT alone; it is called by its id, with TLS")
    return target.written


@dataclass(frozen=True, slots=True)
class _Words:
    action: str
    peer: str
    name: str


def _words(args: "Namespace") -> _Words:
    action, words = str(args.action), cast("list[str]", args.words)
    if action not in ACTIONS:
        raise WrongUsage(f"peer: {action!r} is none of {', '.join(ACTIONS)}")
    least, most = {"list": (0, 0), "rename": (2, 2)}.get(action, (1, 1))
    if not least <= len(words) <= most:
        wanted = {"list": "takes no PEER", "rename": "takes a PEER and its new NAME"}
        raise WrongUsage(f"peer {action} {wanted.get(action, 'takes one PEER')}")
    changes = [each for each in _CHANGES if getattr(args, each) not in (None, [])]
    if changes and action != "allow":
        raise WrongUsage(f"peer {action}: --{changes[0].replace('_', '-')} is about `peer allow`")
    return _Words(action, *[*words, "", ""][:2])


_CHANGES: Final = ("name", "read", "write", "rate_in", "rate_out", "connections", "address")


def _peer(args: "Namespace", terminal: "Terminal") -> int:
    words = _words(args)
    reads = words.action in ("list", "show")
    with opened_store(args, readonly=reads) as store:
        match words.action:
            case "list":
                _list(store, terminal)
            case "show":
                _show(store, find_peer(store, words.peer), terminal)
            case "rename":
                _rename(store, words.peer, words.name)
            case "allow":
                _allow(store, args, words.peer, terminal)
            case "block":
                _block(store, find_peer(store, words.peer, new=True))
            case _:
                _remove(store, find_peer(store, words.peer))
    return DONE


def _remove(store: Store, peer_id: bytes) -> None:
    from peer.node import forget_reached

    # First: should the other not come to be done, he is still allowed.
    forget_reached(store, peer_id)
    store.peers.remove(peer_id)


def _block(store: Store, peer_id: bytes) -> None:
    try:
        store.peers.block(peer_id)
    except ValueError as error:
        raise Problem(str(error)) from None


def _rename(store: Store, peer: str, name: str) -> None:
    try:
        checked_name(name)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    store.peers.rename(find_peer(store, peer), name)


def _allow(store: Store, args: "Namespace", text: str, terminal: "Terminal") -> None:
    words = [each if each in ("all", "none") else full(resolved(store, each)) for each in args.read]
    try:
        read: ReadScope | None = read_scope(words) if words else None
    except ValueError as error:
        raise WrongUsage(f"--read: {error}") from None
    change = RuleChange(
        args.name, read, args.write, args.rate_in, args.rate_out, args.connections, args.address
    )
    peer_id = find_peer(store, text, new=True)
    try:
        store.peers.allow(peer_id, change)
    except ValueError as error:
        raise Problem(str(error)) from None
    if text != peer_id.hex():
        terminal.note(f"allowed {peer_id.hex()}")


# What is shown


def _node_state(store: Store) -> "Mapping[str, Any] | None":
    from peer.node import serving_state  # loads Trio, which `--help` can do without

    return serving_state(store)


def _list(store: Store, terminal: "Terminal") -> None:
    known, connected = store.peers.known(), connected_counts(_node_state(store))
    rows = [("PEER", "NAME", "STATE", "MAY READ", "MAY WRITE", "LAST SEEN")]
    for peer in known:
        fields = peer_line(peer, connected)
        if terminal.as_json:
            terminal.record(fields)
        rows.append(_row(peer, fields, short=terminal.wide))
    if terminal.as_json:
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)]
        terminal.line("  ".join(cells).rstrip())


def _row(
    peer: KnownPeer, fields: "Mapping[str, Any]", *, short: bool
) -> tuple[str, str, str, str, str, str]:
    peer_id = fields["peer_id"]
    return (
        f"{peer_id[:_SHOWN]}.." if short else peer_id,
        peer.name or "-",
        str(peer.state),
        _read_words(peer),
        fields["write"] or "-",
        _seen_words(peer, fields["connected"]),
    )


def _read_words(peer: KnownPeer) -> str:
    if peer.rule is None or not peer.rule.allowed:
        return "-"
    written = written_scope(peer.rule.read)
    if isinstance(written, str):
        return written
    return written[0] if len(written) == 1 else f"{len(written)} names"


def _seen_words(peer: KnownPeer, connected: int | None) -> str:
    if connected:
        return "connected"
    if peer.seen is None:
        return "never"
    now = datetime.now(UTC).timestamp()
    return f"{_age(now - peer.seen.last_at / 1e6)} ago, from {peer.seen.address}"


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _show(store: Store, peer_id: bytes, terminal: "Terminal") -> None:
    [peer] = [each for each in store.peers.known() if each.peer_id == peer_id]
    fields = peer_line(peer, connected_counts(_node_state(store)))
    if terminal.as_json:
        terminal.record(fields)
        return
    shown: dict[str, object] = {}
    for name, value in fields.items():
        if name.startswith("rate_") and isinstance(value, int):
            value = f"{size(value)} a second"  # noqa: PLW2901 - the same field, for people
        shown[name.replace("_", " ")] = "\n".join(value) if isinstance(value, list) else value
    terminal.listing(shown.items())


COMMANDS = {
    "identity": Definition(arguments=_no_arguments, run=_identity),
    "whoami": Definition(arguments=_no_arguments, run=_identity),
    "peer": Definition(arguments=_peer_arguments, run=_peer),
}
