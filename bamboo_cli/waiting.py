"""`wait`: returns once what is followed is here, as far as connected peers hold it."""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from local_api import seq, some_seconds
from logstore import FULL, PolicyKind, StoreError, Subscription, subscription_of
from peer import counted
from wire import LogKey, SignatureLibraryError

from .errors import DONE, INCOMPLETE, NO_ANSWER, TIMED_OUT, Problem, WrongUsage
from .naming import log_key
from .online import run_trio
from .opening import opened_store
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from logstore import Store
    from peer.api import Peer

    from .terminal import Terminal

POLL_S: Final = 0.1
SETTLE_S: Final = 1.2
"""The node tells its state once a second: how old may be what it says."""
REASONS_TOLD: Final = 5

State = Mapping[str, Any]


def _arguments(parser: Parser) -> None:
    parser.add_argument(
        "log", metavar="LOG", nargs="?", type=log_key, help="only this log (default: all followed)"
    )
    parser.add_argument(
        "--seq", metavar="N", type=seq, help="wait until LOG is held up to N, whoever brings it"
    )
    parser.add_argument("--payloads", action="store_true", help="wait for payloads too")
    parser.add_argument(
        "--timeout", metavar="S", type=some_seconds, help="give up after S seconds, exit status 4"
    )


@dataclass(slots=True)
class _Wait:
    """What is waited for, and what peers have said that they hold."""

    store: "Store"
    log: LogKey | None
    seq: int | None
    payloads: bool
    newest: dict[LogKey, int] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    """The peers that have answered what they hold."""

    @property
    def is_followed(self) -> bool:
        """Whether anybody brings the log that is named."""
        log, subscriptions = self.log, self.store.subscriptions()
        own = log is not None and log.author == self.store.author
        return log is None or own or subscription_of(subscriptions, log) is not None

    def wanted(self) -> dict[LogKey, Subscription]:
        """The logs to be complete, and what of each."""
        subscriptions = self.store.subscriptions()
        if self.log is not None:
            return {self.log: subscription_of(subscriptions, self.log) or FULL}
        logs: dict[LogKey, Subscription] = {}
        for target, subscription in subscriptions.items():
            if isinstance(target, LogKey):
                logs[target] = subscription
                continue
            author = target if isinstance(target, bytes) else None
            for info in self.store.logs(author):
                if info.key.author != self.store.author:
                    logs.setdefault(info.key, subscription)
            if author is not None:
                logs.setdefault(LogKey(author, 0), subscription)
        return logs | self._own()

    def _own(self) -> dict[LogKey, Subscription]:
        """Own logs, while peers may hold more of them than this store."""
        if self.store.own_logs_read_only is None:
            return {}
        own = self.store.author
        return {LogKey(own, 0): FULL} | {info.key: FULL for info in self.store.logs(own)}

    def lacking(self) -> list[LogKey]:
        """The logs of which something is missing that is known to be there."""
        from peer.node import lack_of

        found = []
        for log, subscription in self.wanted().items():
            known = self.newest.get(log, 0) if self.seq is None else self.seq
            lack = lack_of(self.store, log, subscription, known)
            nothing = known == 0 and self.log is not None and self.store.log(log) is None
            if lack.entries or nothing or (self.payloads and lack.payloads):
                found.append(log)
        return found

    def reached(self, log: LogKey) -> Iterator[str]:
        """Words for how far a log is held of what is waited for; none if nothing of it is held."""
        info = self.store.log(log)
        goal = self.newest.get(log, 0) if self.seq is None else self.seq
        if info is not None:
            whole = self.wanted()[log].kind in {PolicyKind.FULL, PolicyKind.METADATA}
            held = info.height if whole else info.newest
            yield f"held up to entry {held}" + (f" of {goal}" if held < goal else "")


def _wait(args: "Namespace", terminal: "Terminal") -> int:
    import trio

    from peer.node import serving_state

    if args.seq is not None and args.log is None:
        raise WrongUsage("wait: --seq needs a LOG")
    with opened_store(args, readonly=True) as store:
        if serving_state(store) is None:
            raise Problem(
                f"{store.path}: no node serves this store; start one with `serve`", NO_ANSWER
            )
        wait = _Wait(store, args.log, args.seq, args.payloads)
        if args.log is None and not (store.follows() or store.own_logs_read_only):
            raise Problem("nothing is followed, so there is nothing to wait for (see `follow`)")
        if not wait.is_followed:
            terminal.note(
                f"{args.log} is not followed, so nothing new of it is taken in (see `follow`)"
            )
        try:
            waited_s = run_trio(partial(_run, wait, args.timeout))
        except trio.TooSlowError:
            raise Problem(_why_not(wait, args.timeout), TIMED_OUT) from None
        except (StoreError, SignatureLibraryError) as error:
            raise Problem(str(error)) from None
        logs = len(wait.wanted())
        fields = {"logs": logs, "peers": sorted(wait.asked), "waited_s": round(waited_s, 3)}
        terminal.result(fields, f"{counted(logs, 'log')} complete after {waited_s:.1f} s")
    return DONE


async def _run(wait: _Wait, timeout_s: float | None) -> float:
    import trio

    from peer.api import NodeConfig, Peer

    started = trio.current_time()
    with trio.fail_after(math.inf if timeout_s is None else timeout_s):
        if wait.seq is not None:
            await _until_held(wait)
        else:
            config = NodeConfig(lock=False, workers=0)
            async with Peer(wait.store, config=config) as peer:
                await _until_complete(wait, peer)
    return trio.current_time() - started


async def _until_held(wait: _Wait) -> None:
    import trio

    while wait.lacking():
        _node_state(wait)
        await trio.sleep(POLL_S)
    for log, wanted in wait.wanted().items():
        info, seq = wait.store.log(log), wait.seq or 0
        goal = seq if wanted.last is None else min(seq, wanted.last)
        if info is not None and goal > info.servable:
            raise Problem(
                f"{log}: the log is {info.state}, and has no valid entry behind {info.servable}",
                INCOMPLETE,
            )


async def _until_complete(wait: _Wait, peer: "Peer") -> None:
    import trio

    while True:
        if await _is_complete(wait, peer):
            return
        await trio.sleep(POLL_S)


async def _is_complete(wait: _Wait, peer: "Peer") -> bool:
    """Whether nothing is missing of what connected peers hold, all of whom were asked."""
    import trio

    from peer.node import CannotConnectError

    connections = _connections(_node_state(wait))
    fresh = {"connecting", "setup"}
    if any(each["state"] in fresh and each["last_error"] is None for each in connections):
        return False
    ready = [each for each in connections if each["state"] == "established"]
    called = [each for each in connections if each["direction"] == "outgoing"]
    # Who called in cannot be asked, and may have come for what is held here.
    if not ready or (called and not any(each in ready for each in called)):
        return False
    for each in ready:
        address = each["address"]
        if each["direction"] == "outgoing" and address not in wait.asked:
            with suppress(CannotConnectError):
                for log, newest in (await peer.newest(each["called"], wait.wanted())).items():
                    wait.newest[log] = max(newest, wait.newest.get(log, 0))
                wait.asked.add(address)
            # What the node says next is newer than this answer.
            await trio.sleep(SETTLE_S)
            return False
    told = _node_state(wait).get("logs", ())
    behind = [each for each in told if int(each["behind"]) and _is_meant(each, wait.log)]
    return not behind and not wait.lacking()


def _connections(state: State) -> list[State]:
    return list(state.get("connections", ()))


def _is_meant(told: State, log: LogKey | None) -> bool:
    return log is None or (told["author"], int(told["log_id"])) == (log.author.hex(), log.log_id)


def _node_state(wait: _Wait) -> State:
    """What the node says of itself. Raises Problem if it has ended."""
    from peer.node import read_status

    folder = wait.store.path
    state = (None if folder is None else read_status(folder)) or {}
    pid = state.get("pid")
    if isinstance(pid, int):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            ended = f"{folder}: the node that served this store has ended"
            raise Problem(ended, NO_ANSWER) from None
        except PermissionError:
            pass
    return state


def _why_not(wait: _Wait, timeout_s: float) -> str:
    """One line: what is missing, and the first reasons."""
    from peer.node import serving_state, why_log, why_peer

    state = serving_state(wait.store)
    reasons: list[str] = []
    for log in wait.lacking()[:REASONS_TOLD]:
        found = why_log(wait.store, state, log)
        # Where nothing is wrong, the last sentence says what is known of the peers.
        wrong = [str(each) for each in found if each.wrong] or [str(found[-1])]
        reasons.append(f"{log}: {'; '.join([*wait.reached(log), *wrong])}")
    connections: list[State] = [] if state is None or reasons else _connections(state)
    for each in connections:
        address = each["address"]
        wrong = [str(reason) for reason in why_peer(wait.store, state, address) if reason.wrong]
        reasons += [f"{address}: {reason}" for reason in wrong]
    told = " | ".join(reasons[:REASONS_TOLD]) or "nobody is connected who could say what is missing"
    return f"not complete after {timeout_s:g} s: {told}"


COMMANDS = {"wait": Definition(arguments=_arguments, run=_wait)}
