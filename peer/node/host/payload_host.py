"""Payloads in pieces for sessions: their sinks, in threads, and which payloads are arriving.

All sinks of one payload belong to one lane, so that what a session asks of it is done in order: a
sink that is begun behind the end of another one finds what that has kept. Different payloads are
written beside each other, also those of one session: each waits for the disk several times, and one
after the other a session had the disk idle for most of the time.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct, field

from logstore import OverQuota, Store, StoreError, StoreOverQuota
from peer import (
    ClosePayload,
    FinishPayload,
    LogChanged,
    OpenPayload,
    PayloadFinished,
    PayloadWritten,
    Verdict,
    WritePayload,
)
from peer.node.fairness import Account
from wire import LogKey

from .arrivals import Arrivals
from .lane import Gathering, Job, Lane, Settle, Start
from .port import Port, Replies
from .sinks import Outcome, Sink, complete

log = logging.getLogger(__name__)

LANES: Final = 4
"""More than there are cores to hash: some wait for the disk."""

COMPLETED_MAX: Final = 256
"""Payloads that one transaction adds to their entries: all others wait for it."""

PayloadCommand = OpenPayload | WritePayload | FinishPayload | ClosePayload
Write = Callable[[Callable[[set[LogKey]], Callable[[], Replies]], Account], None]
"""Runs something in the writing thread, soon, and delivers the replies that it returns."""


_Whole = tuple[Port, Sink, Outcome]


class _Gathered(Struct):
    """What has come whole while the writing thread did something else."""

    sinks: deque[_Whole] = field(default_factory=deque)
    queued: bool = False
    """Whether a transaction that will take what is gathered is to come. The thread clears it before
    it takes the first one, and the event loop looks at it behind having added one: so that
    nothing is left behind."""


class PayloadHost:
    """Carries out the commands about sinks."""

    def __init__(
        self,
        store: Store,
        write: Write,
        arrivals: Arrivals,
        over_quota: Callable[[OverQuota], None],
        *,
        start: Start,
        gathering: Gathering,
    ) -> None:
        """`over_quota` is told of each payload that there is no room for."""
        self._over_quota = over_quota
        self.lanes = [Lane(start=start, gathering=gathering) for _ in range(LANES)]
        self._arrivals = arrivals
        self._store = store
        self._write = write
        self._sinks: dict[tuple[Port, int], Sink] = {}
        self._doubted: dict[tuple[Port, int], Sink] = {}
        """Those whose log has changed: they may have been dropped."""
        self._look_queued = False
        """Whether a look at them is to come, as in `_Gathered`."""
        self._whole: dict[Account, _Gathered] = {}
        """What is to be added to its entry, by the next transaction for those who brought it."""

    def submit(self, port: Port, command: PayloadCommand) -> None:
        """Begins to carry out a command of a session."""
        place = (port, command.sink)
        match command:
            case OpenPayload():
                sink = self._sinks[place] = Sink(self._store, port.source, port.giver, command)
                self._put(port, sink, partial(self._open, port, sink))
            case WritePayload(data=data):
                sink = self._sinks[place]
                sink.waiting.append(data)
                if not sink.queued:
                    sink.queued = True
                    self._put(port, sink, partial(self._take, port, sink))
            case FinishPayload():
                sink = self._sinks.pop(place)
                # A hop more, for those only whom it is for.
                finish = self._judge if self._arrivals.is_read(sink) else self._finish
                self._put(port, sink, partial(finish, port, sink))
            case ClosePayload(discard=discard):
                sink = self._sinks.pop(place)
                self._put(port, sink, partial(self._close, sink, discard=discard))

    def note_changes(self, changes: Iterable[LogChanged]) -> None:
        """Logs have changed: payloads may have been dropped that are on their way."""
        logs = {change.log for change in changes}
        # Each payload that is whole changes its log too, and all others that are under way are
        # asked for at once: one after the other they took more statements than being completed.
        for place, sink in self._sinks.items():
            if sink.storing and sink.log in logs:
                self._doubted[place] = sink
        if self._doubted and not self._look_queued:
            self._look_queued = True
            self.lanes[0].put(Job(self._look_at_all, _not_told))

    @property
    def is_receiving(self) -> bool:
        """Whether payloads are under way."""
        return bool(self._sinks)

    def checkpoint(self) -> None:
        """Keeps what came and would be lost by a kill; to be called several times a second.

        Writing does so where bytes come; this is for payloads of which nothing comes any more.
        """
        for (port, _), sink in self._sinks.items():
            if sink.wants_checkpoint:
                sink.checkpoint_queued = True
                self._put(port, sink, partial(self._checkpoint, port, sink))

    def suspend(self, port: Port) -> None:
        """Keeps what came for a session that has ended, as far as it has not done so itself."""
        for place in [place for place in self._sinks if place[0] is port]:
            sink = self._sinks.pop(place)
            self._put(port, sink, partial(self._close, sink, discard=False))

    async def end(self) -> None:
        """Keeps what came for all sessions, however they and the lanes have ended.

        Whoever was the last to know of a payload under way has ended by now, perhaps after the
        threads, so that what it asked for was not carried out.
        """
        for port in {port for port, _ in self._sinks}:
            self.suspend(port)
        for lane in self.lanes:
            await lane.finish()

    def _put(self, port: Port, sink: Sink, work: Callable[[], Settle]) -> None:
        job = Job(work, partial(self._failed, port, sink))
        # Not by a hash, which is another one in each process: a simulated world is to be the same.
        place = sink.log.author[0] + sink.log.log_id + sink.seq
        self.lanes[place % LANES].put(job, port.account)

    # In a thread

    def _open(self, port: Port, sink: Sink) -> Settle:
        storing = sink.open()
        file, stored, over = sink.file, sink.stored_bytes, sink.over_quota

        def settle() -> None:
            if storing:
                self._arrivals.opened(sink, file, stored)
            elif over is not None:
                # Whoever sends it is to stop, and not to learn it when all has come.
                self._over_quota(over)
                port.deliver(PayloadFinished(sink.command.sink, Verdict.NO_ROOM, over.reason))

        return settle

    def _take(self, port: Port, sink: Sink) -> Settle:
        count = sink.write()
        settle = self._written(port, sink)

        def settle_and_tell() -> None:
            settle()
            port.deliver(PayloadWritten(sink.command.sink, count))

        return settle_and_tell

    def _checkpoint(self, port: Port, sink: Sink) -> Settle:
        sink.checkpoint()
        return self._written(port, sink)

    def _written(self, port: Port, sink: Sink) -> Settle:
        stored, broken, dropped = sink.stored_bytes, sink.broken, sink.dropped

        def settle() -> None:
            if dropped:
                self._was_dropped(port, sink)
            elif broken:
                self._arrivals.spoiled(sink)
            else:
                self._arrivals.grew(sink, stored)

        return settle

    def _look_at_all(self) -> Settle:
        # Before they are taken: what is added behind that has another look queued for it.
        self._look_queued = False
        doubted: dict[tuple[Port, int], Sink] = {}
        while self._doubted:
            place, sink = self._doubted.popitem()
            doubted[place] = sink
        files = [file for sink in doubted.values() if (file := sink.file)]
        if not self._store.any_dropped(files):
            return _nothing

        def settle() -> None:
            for place, sink in doubted.items():
                # Each in its own lane: it may have been finished meanwhile, which drops nothing.
                if self._sinks.get(place) is sink:
                    self._put(place[0], sink, partial(self._look, place[0], sink))

        return settle

    def _look(self, port: Port, sink: Sink) -> Settle:
        try:
            dropped = sink.end_if_dropped()
        except StoreError as error:
            log.warning("cannot see whether a payload was dropped: %s", error)
            dropped = False
        return partial(self._was_dropped, port, sink) if dropped else _nothing

    def _judge(self, port: Port, sink: Sink) -> Settle:
        """Those who read behind are told before the bytes are synced, which takes longer."""
        right = sink.is_right()

        def settle() -> None:
            if right:
                self._arrivals.proved(sink)
            else:
                self._arrivals.spoiled(sink)
            self._put(port, sink, partial(self._finish, port, sink))

        return settle

    def _finish(self, port: Port, sink: Sink) -> Settle:
        outcome = sink.finish()
        return partial(self._finished, port, sink, outcome)

    def _close(self, sink: Sink, *, discard: bool) -> Settle:
        left = partial((self._arrivals.spoiled if discard else self._arrivals.left), sink)
        try:
            sink.close(discard=discard)
        except StoreOverQuota as error:
            # Told by the limit, as any other: a line for each payload would fill the log.
            return partial(self._left_without_room, error.over, left)
        except StoreError as error:
            log.warning("a payload that was under way cannot be kept: %s", error)
        return left

    def _left_without_room(self, over: OverQuota, left: Settle) -> None:
        self._over_quota(over)
        left()

    def _complete(
        self, account: Account, gathered: _Gathered, changed: set[LogKey]
    ) -> Callable[[], Replies]:
        """All that is whole by now of those who pay together, in one transaction."""
        gathered.queued = False
        whole: list[_Whole] = []
        while gathered.sinks and len(whole) < COMPLETED_MAX:
            whole.append(gathered.sinks.popleft())
        outcomes = complete(self._store, [(sink, outcome) for _, sink, outcome in whole])
        changed.update(sink.log for _, sink, _ in whole)
        return partial(self._completed, account, whole, outcomes)

    # In the event loop

    def _finished(self, port: Port, sink: Sink, outcome: Outcome) -> None:
        if outcome.whole is None:
            self._arrivals.spoiled(sink)
            port.deliver(PayloadFinished(sink.command.sink, outcome.verdict, outcome.detail))
            return
        # For who has begun to read since it was asked whether somebody does.
        self._arrivals.proved(sink)
        self._whole.setdefault(port.account, _Gathered()).sinks.append((port, sink, outcome))
        self._complete_soon(port.account)

    def _complete_soon(self, account: Account) -> None:
        gathered = self._whole[account]
        if gathered.sinks and not gathered.queued:
            gathered.queued = True
            self._write(partial(self._complete, account, gathered), account)
        elif not gathered.queued:
            del self._whole[account]

    def _completed(
        self, account: Account, whole: Sequence[_Whole], outcomes: Sequence[Outcome]
    ) -> Replies:
        replies: Replies = {}
        for (port, sink, _), outcome in zip(whole, outcomes, strict=True):
            self._arrivals.completed(sink)
            if sink.over_quota is not None:
                self._over_quota(sink.over_quota)
            finished = PayloadFinished(sink.command.sink, outcome.verdict, outcome.detail)
            replies.setdefault(port, []).append(finished)
        if account in self._whole:
            # Of many only some go into one transaction; and the last one clears up.
            self._complete_soon(account)
        return replies

    def _was_dropped(self, port: Port, sink: Sink) -> None:
        self._arrivals.spoiled(sink)
        port.deliver(PayloadFinished(sink.command.sink, Verdict.DROPPED))

    def _failed(self, port: Port, sink: Sink, error: Exception) -> None:
        self._arrivals.spoiled(sink)
        port.fail(error)


def _not_told(error: Exception) -> None:
    log.warning("cannot see whether payloads were dropped: %s", error)


def _nothing() -> None:
    """What there is to settle when nothing has happened."""
