"""`check`: one line and an exit status for monitors: whether the node is as it should be."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from local_api import connected_peers, seconds, u64
from logstore import Store, wall_clock_us
from peer import counted

from .errors import DONE, FAILED, NO_ANSWER
from .opening import opened_store
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

State = Mapping[str, Any]

ALARMS_NAMED = 3
"""So many are named in the line."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _arguments(parser: Parser) -> None:
    parser.add_argument(
        "--max-lag",
        metavar="S",
        type=seconds,
        help="fail where something has been missing for more than S seconds that a peer was known"
        " to hold",
    )
    parser.add_argument(
        "--min-peers", metavar="N", type=u64, help="fail with fewer than N peers connected"
    )
    parser.add_argument(
        "--max-behind",
        metavar="N",
        type=u64,
        help="fail where connected peers hold more than N entries that are wanted and not here",
    )
    parser.add_argument(
        "--forks",
        action="store_true",
        help="fail for a forked log that was dismissed, too",
    )


def _check(args: "Namespace", terminal: "Terminal") -> int:
    from peer.node import serving_state  # loads Trio, which `--help` can do without

    with opened_store(args, readonly=True) as store:
        state: State | None = serving_state(store)
        if state is None:
            return _tell(terminal, ["no node serves this store"], "", NO_ANSWER)
        if "entries_behind" not in state:
            reason = "the node has not said how it is: it has just begun, or is of an older version"
            return _tell(terminal, [reason], "", NO_ANSWER)
        reasons = list(_reasons(args, store, state))
        peers, behind = connected_peers(state), int(state["entries_behind"])
        well = f"{counted(peers, 'peer')} connected, {counted(behind, 'entry')} behind"
        return _tell(terminal, reasons, well, FAILED if reasons else DONE)


def _tell(terminal: "Terminal", reasons: list[str], well: str, status: int) -> int:
    text = f"not ok: {'; '.join(reasons)}" if reasons else f"ok: {well}"
    terminal.result({"ok": not reasons, "reasons": reasons}, text)
    return status


def _reasons(args: "Namespace", store: Store, state: State) -> Iterator[str]:
    lag_s = lag_of(state, wall_clock_us())
    if args.max_lag is not None and lag_s > args.max_lag:
        yield (
            f"something has been missing for {lag_s:.0f} s, {args.max_lag:g} are allowed"
            " (`status` says what)"
        )
    peers = connected_peers(state)
    if args.min_peers is not None and peers < args.min_peers:
        yield f"{counted(peers, 'peer')} connected, {args.min_peers} are wanted"
    behind = int(state["entries_behind"])
    if args.max_behind is not None and behind > args.max_behind:
        yield f"{counted(behind, 'entry')} behind, {args.max_behind} are allowed"
    from local_api import alarms_of, forks_that_matter  # loads what `--help` can do without

    alarms = alarms_of(store, state)
    for alarm in alarms[:ALARMS_NAMED]:
        yield str(alarm["text"])
    if len(alarms) > ALARMS_NAMED:
        yield f"and {counted(len(alarms) - ALARMS_NAMED, 'alarm')} more (`status`)"
    if args.forks:
        known = store.alarms.dismissed()
        dismissed = [str(each.key) for each in forks_that_matter(store) if each.key in known]
        if dismissed:
            some = ", ".join(dismissed[:ALARMS_NAMED])
            yield f"{counted(len(dismissed), 'fork')} that was dismissed: {some}"


def lag_of(state: State, now_us: int) -> float:
    """For how many seconds something has been missing that a peer was known to hold."""
    since = state["behind_since"]
    if since is None:
        return 0.0
    now = _EPOCH + timedelta(microseconds=now_us)
    # A clock that was set back makes nothing better than it is now.
    return max(0.0, (now - datetime.fromisoformat(since)).total_seconds())


COMMANDS = {"check": Definition(arguments=_arguments, run=_check)}
