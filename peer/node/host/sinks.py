"""Payloads that come in pieces: files written in a thread, several chunks at a time.

A sink that cannot store, because another connection feeds that payload or it is held already,
still hashes what comes, so that the session learns whether the bytes are right. Bytes for a sink
wait in one list; the thread takes all that has gathered since it last looked.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Final

from msgspec import Struct, field

from logstore import (
    ArrivingFile,
    Completion,
    OverQuota,
    PayloadBusy,
    PayloadDropped,
    PayloadMismatch,
    PayloadSink,
    PayloadState,
    Staged,
    Store,
    StoreError,
    StoreOverQuota,
)
from peer import OpenPayload, Verdict
from wire import LogKey, PayloadHasher

HASH_BYTES_AT_ONCE: Final = 1 << 20
WRITE_BYTES_AT_ONCE: Final = 1 << 20


class Outcome(Struct, frozen=True):
    """What a payload turned out to be. `whole`: what has to be added to its entry yet."""

    verdict: Verdict
    detail: str = ""
    whole: Staged | bytes | None = None


class Sink(Struct, eq=False):
    """One payload on its way in. Its methods run in a thread, one at a time and in order."""

    store: Store
    source: str
    giver: bytes
    command: OpenPayload
    waiting: deque[bytes | memoryview] = field(default_factory=deque)
    queued: bool = False
    """Whether a `write` that will see what waits is under way to the thread."""
    checkpoint_queued: bool = False
    """Whether a `checkpoint` is under way to the thread."""
    storing: bool = False
    broken: bool = False
    """Whether the disk has failed, so that it is not known what the file holds."""
    dropped: bool = False
    """Whether the payload was dropped meanwhile, so that nothing of it is kept."""
    over_quota: OverQuota | None = None
    """The limit for which nothing of it is kept."""
    _sink: PayloadSink | None = None
    _hasher: PayloadHasher | None = None
    _skip_bytes: int = 0
    _failure: str = ""
    _unknown: Verdict = Verdict.STORAGE
    """What to say where nothing could be checked."""

    @property
    def log(self) -> LogKey:
        """The log that the payload's entry is of."""
        return self.command.log

    @property
    def seq(self) -> int:
        """The sequence number of the payload's entry."""
        return self.command.seq

    @property
    def file(self) -> ArrivingFile | None:
        """What the bytes are written to, if that can be read meanwhile."""
        return None if self._sink is None else self._sink.file

    @property
    def stored_bytes(self) -> int:
        """How much of the payload is in the file."""
        return 0 if self._sink is None else self._sink.offset

    def is_right(self) -> bool:
        """Whether all that was written is the payload, which `finish` then has only to keep."""
        return self._sink is not None and self._sink.is_right()

    def open(self) -> bool:
        """Makes ready for the first bytes; whether they will be stored."""
        try:
            self._open()
        except PayloadBusy as error:
            if self.command.offset == 0:
                self._hasher = PayloadHasher()
            else:
                self._failure = str(error)
        except StoreOverQuota as error:
            self.over_quota = error.over
            self._failure, self._unknown = error.over.reason, Verdict.NO_ROOM
        except StoreError as error:
            self._failure = str(error)
        self.storing = self._sink is not None
        return self.storing

    def _open(self) -> None:
        if self._is_held():
            self._hasher = self._hash_of_held()
            return
        sink = self._new_sink()
        offset = self.command.offset
        if offset == 0 and sink.offset > 0:
            # All of it comes anew, and then it should prove something of who sends it.
            sink.discard()
            sink = self._new_sink()
        if sink.offset < offset:
            sink.suspend()
            self._failure = f"{sink.offset} bytes are held, {offset} were expected"
            self._unknown = Verdict.INVALID_RESUMED
            return
        self._skip_bytes = sink.offset - offset
        self._sink = sink

    def _new_sink(self) -> PayloadSink:
        command = self.command
        return self.store.payload_sink(
            command.log,
            command.seq,
            command.payload_bytes,
            command.payload_hash,
            source=self.source,
            giver=self.giver,
        )

    def _is_held(self) -> bool:
        entry = self.store.entry(self.log, self.seq)
        return entry is not None and entry.payload_state is PayloadState.PRESENT

    def _hash_of_held(self) -> PayloadHasher:
        hasher = PayloadHasher()
        if self.command.offset:
            with self.store.open_payload(self.log, self.seq) as reader:
                done = 0
                while done < self.command.offset:
                    count = min(HASH_BYTES_AT_ONCE, self.command.offset - done)
                    data = reader.read(done, count)
                    hasher.update(data)
                    done += len(data)
        return hasher

    def write(self) -> int:
        """Takes what has gathered; returns how many bytes."""
        self.queued = False
        count = 0
        while data := self._gathered():
            count += len(data)
            if self._skip_bytes:
                skipped = min(self._skip_bytes, len(data))
                self._skip_bytes -= skipped
                data = data[skipped:]
            with self._failing():
                if self._sink is not None:
                    self._sink.write(data)
                elif self._hasher is not None:
                    self._hasher.update(data)
        return count

    def _gathered(self) -> bytes:
        """The next bytes that wait, as many as are worth writing at once; none if none do.

        Each write and each step of hashing lets go of the interpreter's lock, and the thread has to
        have it back from the event loop: for each piece as it came that took longer than both.
        """
        parts: list[bytes | memoryview] = []
        size = 0
        while self.waiting and size < WRITE_BYTES_AT_ONCE:
            parts.append(self.waiting.popleft())
            size += len(parts[-1])
        return b"".join(parts)

    @property
    def wants_checkpoint(self) -> bool:
        """Whether `checkpoint` is to be called; a hint, from any thread."""
        sink = self._sink
        return sink is not None and not self.checkpoint_queued and sink.wants_checkpoint

    def checkpoint(self) -> None:
        """Keeps what came, if that is much and a second has passed."""
        self.checkpoint_queued = False
        with self._failing():
            if self._sink is not None:
                self._sink.checkpoint()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            self._failure = str(error)
            self._sink = None
            self.dropped = isinstance(error, PayloadDropped)
            self.broken = not self.dropped

    def end_if_dropped(self) -> bool:
        """Ends it if the payload was dropped since this was asked last."""
        if self._sink is None:
            return False
        if self._sink.is_dropped():
            self._sink.discard()
            self._sink = None
            self.dropped = True
        return self.dropped

    def finish(self) -> Outcome:
        """All bytes have been written: what they are."""
        try:
            if self._sink is not None:
                return Outcome(Verdict.VALID, whole=self._sink.seal())
        except PayloadMismatch as mismatch:
            verdict = Verdict.INVALID_RESUMED if mismatch.resumed else Verdict.INVALID
            return Outcome(verdict, mismatch.what)
        except PayloadDropped:
            self.dropped = True
        except StoreError as error:
            return Outcome(Verdict.STORAGE, str(error))
        if self.dropped:
            return Outcome(Verdict.DROPPED)
        if self._hasher is None:
            return Outcome(self._unknown, self._failure)
        if self._hasher.digest_yamf() == self.command.payload_hash:
            return Outcome(Verdict.VALID)
        # What was hashed before the offset was verified when it was stored.
        return Outcome(Verdict.INVALID, "the bytes received are not the payload")

    def was_refused(self, error: StoreError) -> Outcome:
        """It is whole, and could not be added to its entry."""
        match error:
            case StoreOverQuota():
                self.over_quota = error.over
                return Outcome(Verdict.NO_ROOM, error.over.reason)
            case PayloadDropped():
                return Outcome(Verdict.DROPPED)
            case _:
                return Outcome(Verdict.STORAGE, str(error))

    def let_go(self, *, kept: bool) -> None:
        """It is its entry's, or it is kept as a part, for another sink to go on with."""
        sink, self._sink = self._sink, None
        if sink is None:
            return
        if kept:
            sink.release()
            return
        with suppress(StoreError):
            sink.suspend()

    def close(self, *, discard: bool) -> None:
        """The payload ends before it is whole."""
        self.waiting.clear()
        if self._sink is not None:
            if discard:
                self._sink.discard()
            else:
                self._sink.suspend()
            self._sink = None


def complete(store: Store, sealed: Sequence[tuple[Sink, Outcome]]) -> list[Outcome]:
    """Adds payloads to their entries: one transaction for all that one peer has brought."""
    outcomes: list[Outcome] = []
    for giver, group in groupby(sealed, lambda each: each[0].giver):
        of_giver = list(group)
        errors = _add(store, giver, of_giver)
        for (sink, outcome), error in zip(of_giver, errors, strict=True):
            outcomes.append(outcome if error is None else sink.was_refused(error))
            sink.let_go(kept=error is None)
    return outcomes


def _add(
    store: Store, giver: bytes, sealed: Sequence[tuple[Sink, Outcome]]
) -> list[StoreError | None]:
    completions = [
        Completion(sink.log, sink.seq, outcome.whole)
        for sink, outcome in sealed
        if outcome.whole is not None
    ]
    try:
        return [each.error for each in store.complete_payloads(completions, giver=giver)]
    except StoreError as error:
        return [error] * len(sealed)
