"""`fetch`: brings entries and payloads that were skipped or dropped, and waits for them."""

import time
from functools import partial
from typing import TYPE_CHECKING

from local_api import SeqRange, seq_range, some_seconds
from logstore import Holding, LogClosed, NodeLock, Store, StoreError
from peer import counted, json_number, log_fields, seq_span
from wire import SignatureLibraryError

from .coming import Coming
from .errors import DONE, INCOMPLETE, NO_ANSWER, TIMED_OUT, Problem, first_status
from .interrupting import noted_signals
from .keeping import described
from .naming import LOG_HELP, log_key
from .online import CALLED, called, run_trio, status_of_end
from .opening import opened_store
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    import trio

    from peer.api import Peer
    from wire import LogKey

    from .coming import State
    from .terminal import Terminal

POLL_S = 0.1
TIMEOUT_S = 60.0


def _arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG", type=log_key, help=LOG_HELP)
    parser.add_argument(
        "range",
        metavar="RANGE",
        type=seq_range,
        help="SEQ, A..B, A.. (up to the newest entry held) or ..B, both ends included",
    )
    parser.add_argument(
        "--from",
        dest="peers",
        metavar="PEER",
        action="append",
        type=called,
        default=[],
        help=f"ask this peer, {CALLED}; repeatable; without, the node that serves the store asks"
        " its own",
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=some_seconds,
        default=TIMEOUT_S,
        help="give up when nothing has come for S seconds, exit status 4 (default: 60)",
    )


def _fetch(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args) as store:
        range_ = _bounds(store, args.log, args.range)
        _tell_of_rule(store, args.log, range_, terminal)
        coming = Coming(store, args.log, range_, terminal)
        want = _Want(store, args.log, range_, coming, args.timeout)
        before = _bring(want, args) if args.peers else _wait(want)
        _report(want, before, terminal)
    return DONE


def _bring(want: "_Want", args: "Namespace") -> Holding | None:
    before = want.record()
    if before is not None:
        try:
            _ask(want, args)
        finally:
            want.take_back()
    return before


def _wait(want: "_Want") -> Holding | None:
    _check_served(want.store)
    # From before it is recorded: what is recorded is taken back, whenever the signal comes.
    with noted_signals() as check:
        before = want.record()
        if before is not None:
            try:
                want.wait(check)
            finally:
                want.take_back()
        return before


def _bounds(store: Store, log: "LogKey", span: SeqRange) -> tuple[int, int]:
    if span.last is not None:
        return span.first, span.last
    info = store.log(log)
    if info is None or info.newest < span.first:
        raise Problem(f"{log}: nothing is held from {span.first} on: say where the range ends")
    return span.first, info.newest


def _tell_of_rule(
    store: Store, log: "LogKey", range_: tuple[int, int], terminal: "Terminal"
) -> None:
    """Says if what comes will go again."""
    ruled, info = store.ruled_by(log), store.log(log)
    if ruled is None or info is None:
        return
    rule = ruled.rule
    goes = rule.last is not None and range_[0] <= info.newest - rule.last
    if goes or rule.counts_all:
        said = "deletes" if goes else "may delete"
        terminal.note(
            f"a rule {said} some of it again once it is here: {ruled.kind}, {described(rule)}"
            " (`keep` lists the rules)"
        )


def _check_served(store: Store) -> None:
    if not NodeLock.is_held(store.path):
        raise Problem(
            "no node serves this store: start `serve`, or name a peer with --from HOST:PORT",
            NO_ANSWER,
        )


class _Want:
    """A range that is asked for, and whether it comes."""

    def __init__(
        self,
        store: Store,
        log: "LogKey",
        range_: tuple[int, int],
        coming: Coming,
        timeout_s: float,
    ) -> None:
        self.store = store
        self.log = log
        self.range = range_
        self.coming = coming
        self._timeout_s = timeout_s
        self.asking: str | None = None
        """The peer that is asked, None if the node that serves the store asks."""

    def __str__(self) -> str:
        first, last = self.range
        return f"{self.log} {seq_span(first, last)}"

    def record(self) -> Holding | None:
        """Asks for it; what is held of it, None if that is everything."""
        try:
            wanted = self.store.want(self.log, *self.range)
        except LogClosed as error:
            raise Problem(str(error)) from None
        return self.held() if wanted else None

    def take_back(self) -> None:
        """Asks no more."""
        self.store.unwant(self.log, *self.range)

    def held(self) -> Holding:
        """How much of it is held."""
        return self.store.holding(self.log, *self.range)

    def is_complete(self) -> bool:
        """Whether all of it is held; asked for again where only another command took it back."""
        if self.range in self.store.wants().get(self.log, []):
            return False
        return not self.store.want(self.log, *self.range)

    def check_time(self, own: "State | None" = None) -> None:
        """Tells how far it is. Raises Problem if nothing has come for too long.

        `own`: what is arriving at a node of this process.
        """
        if self.coming.look(own) >= self._timeout_s:
            whence, hint = "", f" (`status` says who is connected, `why {self.log}` what they hold)"
            if self.asking is not None:
                whence, hint = f" from {self.asking}", ""
            nothing = f"nothing has come{whence} for {self._timeout_s:g} s"
            raise Problem(f"{self}: {nothing}; {self.coming.words()}{hint}", TIMED_OUT)

    def wait(self, check: "Callable[[], None]") -> None:
        """Returns once the node that serves the store has brought it. Raises Problem.

        `check` raises if the waiting is to end.
        """
        try:
            looked_at = None
            while True:
                check()
                version = self.store.data_version()
                if version != looked_at and self.is_complete():
                    return
                looked_at = version
                self.check_time()
                time.sleep(POLL_S)
        finally:
            self.coming.clear()


def _ask(want: _Want, args: "Namespace") -> None:
    """Asks the peers named, one after the other. Raises Problem."""
    try:
        reasons = run_trio(partial(_ask_each, want, args))
    except (StoreError, SignatureLibraryError) as error:
        raise Problem(str(error)) from None
    finally:
        want.coming.clear()
    if not want.is_complete():
        said = "; ".join(reasons) or "nobody who was asked has the rest"
        status = first_status(reasons.values()) or INCOMPLETE
        raise Problem(f"{want}: {want.coming.words()}: {said}", status)


async def _ask_each(want: _Want, args: "Namespace") -> dict[str, int]:
    """Why peers did not bring it, and the exit status of each reason."""
    import trio

    from peer.api import CannotConnectError, NodeConfig, Peer, SyncError

    reasons: dict[str, int] = {}
    async with Peer(want.store, config=NodeConfig(lock=False, fetches_only=True)) as peer:
        for target in args.peers:
            want.asking = str(target.address)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch, want, peer, nursery.cancel_scope)
                try:
                    await peer.sync(target)
                except (CannotConnectError, SyncError) as error:
                    reasons[str(error)] = status_of_end(error.kind)
                nursery.cancel_scope.cancel()
            if await trio.to_thread.run_sync(want.is_complete):
                break
    return reasons


async def _watch(want: _Want, peer: "Peer", asking: "trio.CancelScope") -> None:
    """Ends the asking once all is held. Raises Problem if nothing comes."""
    import trio

    from peer.node import arriving_fields

    while not await trio.to_thread.run_sync(want.is_complete):
        own = {"arriving": arriving_fields(peer.node)}
        await trio.to_thread.run_sync(want.check_time, own)
        await trio.sleep(POLL_S)
    asking.cancel()


def _report(want: _Want, before: Holding | None, terminal: "Terminal") -> None:
    after = want.held()
    entries = payloads = 0
    if before is not None:
        entries, payloads = after.entries - before.entries, after.payloads - before.payloads
    first, last = want.range
    fields = {"first": json_number(first), "last": json_number(last)}
    terminal.result(
        log_fields(want.log) | fields | {"entries": entries, "payloads": payloads},
        f"{want}: all of it was held already"
        if before is None
        else f"{want}: {counted(entries, 'entry')} and {counted(payloads, 'payload')} fetched",
    )


COMMANDS = {"fetch": Definition(arguments=_arguments, run=_fetch)}
