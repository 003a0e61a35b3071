"""`Peer` for programs without an event loop: `peer.api.Peer`, in a thread of its own (bridge.py).

    with Peer(store) as peer:
        peer.connect("example.org:7007")
        for entry in peer.entries():
            print(entry.key, entry.seq, entry.payload)

Names, arguments, results and exceptions are those of `peer.api.Peer`, which says what they mean; a
test compares the signatures. What belongs to Trio is not here: `node`, `overview`, `serve_stream`,
and streams in the place of addresses.

Everything may be called from any thread, also under an event loop that is running, as in a
notebook: nothing here looks for one. Ctrl-C, or whatever else a signal handler raises in a thread
that waits, cancels its call, and comes out once that has ended; a second one does not wait. The
observer is called in the thread that runs Trio: what waits raises RuntimeError there, since nobody
would be left to end it.
"""

from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import BinaryIO, Literal, Self, TypeVar, overload

from logstore import (
    PAYLOAD_BYTES_MAX,
    AnyLog,
    AnyTarget,
    Appended,
    EntryWithPayload,
    KeepRule,
    LogInfo,
    Statistics,
    StoredEntry,
    Subscription,
    Tidied,
    check_number,
)
from peer.api import OLDEST, Address, Greedy, PeerAddress, Reason, SyncSummary, Taking
from peer.bridge import Ahead, Bridged, Call, payload_size, wait_for
from wire import LogKey

__all__ = ["Peer"]

T = TypeVar("T")


class Peer(Bridged):
    """`peer.api.Peer` for a program that waits, in any thread."""

    def __enter__(self) -> Self:
        self._bridge.check_new()
        started: SimpleQueue[None] = SimpleQueue()
        try:
            self._bridge.start(partial(started.put, None), _nothing)
            started.get()
        except BaseException:
            self._bridge.abandon()
            self._bridge.join()
            raise
        if not self._bridge.is_running:
            self._bridge.join()
            raise self._bridge.failure or self._bridge.refusal()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._check_elsewhere()
        self._bridge.leave()
        try:
            self._bridge.join()
        except BaseException:
            self._bridge.abandon()
            self._bridge.join()
            raise
        if self._bridge.failure is not None:
            raise self._bridge.failure

    def listen(self, address: str | Address = "127.0.0.1:0") -> Address:
        """`peer.api.Peer.listen`."""
        return self._call(partial(self._peer.listen, address))

    def append(
        self,
        payloads: Sequence[bytes | Path | BinaryIO],
        *,
        log_id: int = 0,
        end_of_log: bool = False,
        expected_seq: int | None = None,
    ) -> list[Appended]:
        """`peer.api.Peer.append`."""
        return self._call(
            partial(
                self._peer.append,
                payloads,
                log_id=log_id,
                end_of_log=end_of_log,
                expected_seq=expected_seq,
            )
        )

    def append_many(
        self,
        batches: Sequence[tuple[int, Sequence[bytes]]],
        *,
        expected_seqs: Sequence[int | None] | None = None,
        ending: Collection[int] = (),
    ) -> list[list[Appended]]:
        """`peer.api.Peer.append_many`."""
        return self._call(
            partial(self._peer.append_many, batches, expected_seqs=expected_seqs, ending=ending)
        )

    def follow(self, target: AnyTarget, subscription: Subscription | None = None) -> bool:
        """`peer.api.Peer.follow`."""
        return self._call(partial(self._peer.follow, target, subscription))

    def unfollow(self, target: AnyTarget) -> bool:
        """`peer.api.Peer.unfollow`."""
        return self._call(partial(self._peer.unfollow, target))

    def keep(self, target: AnyTarget, rule: KeepRule | None) -> bool:
        """`peer.api.Peer.keep`."""
        return self._call(partial(self._peer.keep, target, rule))

    def tidy(self, target: AnyTarget | None = None, *, dry_run: bool = False) -> list[Tidied]:
        """`peer.api.Peer.tidy`."""
        return self._call(partial(self._peer.tidy, target, dry_run=dry_run))

    def fetch(
        self, log: AnyLog, first: int, last: int | None = None, *, timeout_s: float | None = None
    ) -> None:
        """`peer.api.Peer.fetch`."""
        self._call(partial(self._peer.fetch, log, first, last, timeout_s=timeout_s))

    @overload
    def entries(
        self,
        target: AnyTarget | None = None,
        *,
        after: int | None = OLDEST,
        with_payload: Literal[True] = True,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        idle_s: float | None = None,
        cursor: str | None = None,
    ) -> Generator[EntryWithPayload, None, None]: ...
    @overload
    def entries(
        self,
        target: AnyTarget | None = None,
        *,
        after: int | None = OLDEST,
        with_payload: bool,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        idle_s: float | None = None,
        cursor: str | None = None,
    ) -> Generator[StoredEntry, None, None]: ...
    def entries(
        self,
        target: AnyTarget | None = None,
        *,
        after: int | None = OLDEST,
        with_payload: bool = True,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        idle_s: float | None = None,
        cursor: str | None = None,
    ) -> Generator[StoredEntry, None, None]:
        """`peer.api.Peer.entries`, read ahead by 256 entries and 16 MiB of payloads at most."""
        self._check_elsewhere()
        news: SimpleQueue[None] = SimpleQueue()
        ahead: Ahead[StoredEntry] = Ahead(self._bridge, partial(news.put, None), payload_size)
        bytes_max = payload_bytes_max if with_payload else None
        check_number("payload_bytes_max", payload_bytes_max)
        what = Taking(target, after, bytes_max, idle_s, cursor)
        read_ahead = partial(self._read_ahead, ahead, what)
        call: Call[None] = Call(partial(news.put, None))
        try:
            self._bridge.begin(call, read_ahead)
            while True:
                # Looked at first: what came before the end is taken before it.
                is_over = call.is_over
                if found := ahead.take():
                    yield found[0]
                elif is_over:
                    call.result()
                    return
                elif not call.is_over:
                    news.get()
        finally:
            self._bridge.cancel(call)
            # Forgotten in a cycle, it is closed by whichever thread collects that.
            if not self._bridge.is_here:
                wait_for(call, news)

    def ack(self, entry: StoredEntry, *, cursor: str | None = None) -> None:
        """`peer.api.Peer.ack`."""
        self._call(partial(self._peer.ack, entry, cursor=cursor))

    def wait_for(self, log: AnyLog, seq: int, *, timeout_s: float | None = None) -> LogInfo:
        """`peer.api.Peer.wait_for`."""
        return self._call(partial(self._peer.wait_for, log, seq, timeout_s=timeout_s))

    def sync(
        self,
        target: str | Address | PeerAddress,
        *,
        greedy: Greedy | None = None,
        timeout_s: float | None = None,
    ) -> SyncSummary:
        """`peer.api.Peer.sync`."""
        return self._call(partial(self._peer.sync, target, greedy=greedy, timeout_s=timeout_s))

    def newest(
        self,
        target: str | Address | PeerAddress,
        logs: Iterable[AnyLog],
        *,
        timeout_s: float | None = None,
    ) -> dict[LogKey, int]:
        """`peer.api.Peer.newest`."""
        return self._call(partial(self._peer.newest, target, logs, timeout_s=timeout_s))

    def wait_in_sync(self, *, timeout_s: float | None = None) -> None:
        """`peer.api.Peer.wait_in_sync`."""
        self._call(partial(self._peer.wait_in_sync, timeout_s=timeout_s))

    def status(self) -> Mapping[str, object]:
        """`peer.api.Peer.status`."""
        return self._call(self._peer.status)

    def why(self, subject: AnyLog | Address) -> list[Reason]:
        """`peer.api.Peer.why`."""
        return self._call(partial(self._peer.why, subject))

    def statistics(self) -> Statistics:
        """`peer.api.Peer.statistics`."""
        return self._call(self._peer.statistics)

    def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        self._check_elsewhere()
        over: SimpleQueue[None] = SimpleQueue()
        call: Call[T] = Call(partial(over.put, None))
        try:
            self._bridge.begin(call, function)
            wait_for(call, over)
        except BaseException:
            self._bridge.cancel(call)
            wait_for(call, over)
            raise
        return call.result()

    def _check_elsewhere(self) -> None:
        if self._bridge.is_here:
            raise RuntimeError(
                "an observer runs in the thread of the peer, which cannot wait for itself:"
                " hand the event to another thread, and call the peer there"
            )


def _nothing() -> None:
    pass
