"""What was received and is not proved yet: entries being checked, payloads coming in pieces.

A request's `pending` names the positions at which something unproved begins; the books kept here
say what each of them costs in memory and which command will prove it.

Reading does not wait for the disk: signatures and files are other threads' work, and many entries
are one transaction. So between what is read and what is durable there is a stretch, and it is bound
three ways: in bytes, by the credit that the other side has got (what stays counted is not given
back), in files, by `sinks_max`, and in time, by `apology_timeout_s` for what was found wrong.

A verdict may name somebody: whoever sent what came whole and is wrong (`_blame`). In a safe
direction at once; in a greedy one the other side may apologise until its next piece begins; and not
at all where it may hold another entry than we do (pinning.py), or where an earlier connection
brought a part.
"""

from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from peer.protocol.commands import (
    INGEST_ENTRIES_MAX,
    ClosePayload,
    Command,
    FinishPayload,
    Ingest,
    IngestItem,
    OpenPayload,
    Received,
    WritePayload,
)
from peer.protocol.config import SessionConfig
from peer.protocol.errors import Violation
from peer.protocol.events import (
    HeldEntry,
    Ingested,
    IngestFailed,
    PayloadFinished,
    PayloadWritten,
    Refusal,
    Verdict,
)
from peer.protocol.notices import EntriesReceived, Notice, PayloadsReceived
from peer.protocol.request import OpenEntry, Request
from wire import PIECE_BYTES_MAX, RunEntry

from .pinning import doubt, is_pinned

_RULE = "point2point.md 8"
_SAID_AT_ONCE = frozenset((Verdict.DROPPED, Verdict.NO_ROOM))
"""Verdicts that need not wait for the last byte: the rest would be sent for nothing."""


class _Sent(Struct):
    """Entries that were handed to the host, one behind the other."""

    begin: int
    """The position of the first,"""
    step: int
    """and from one to the next."""
    entries: Sequence[Received]
    memory_bytes: int
    payload_bytes: int
    is_new: bool
    """Or only their payloads are."""

    def part(self, start: int, end: int) -> "_Sent":
        """Some of them."""
        begin = self.begin + start * self.step
        return _counted(begin, self.step, self.entries[start:end], is_new=self.is_new)


def _counted(begin: int, step: int, entries: Sequence[Received], *, is_new: bool) -> _Sent:
    """Such entries, with what they take counted."""
    payload_bytes = sum([len(payload) for *_, payload in entries if payload is not None])
    memory = payload_bytes + sum([len(encoded) for _, encoded, _, _ in entries])
    return _Sent(begin, step, entries, memory, payload_bytes, is_new)


class _Sink(Struct):
    request: Request
    position: int
    entry: OpenEntry
    offset: int
    """Where it goes on: so many bytes were held before."""
    unwritten: list[bytes | memoryview] = field(default_factory=list)
    """What came in this go, to be written together."""
    unwritten_bytes: int = 0
    in_flight_bytes: int = 0
    complete: bool = False
    finishing: bool = False


class Prover:
    """Hands received entries and payloads to the host and books its verdicts."""

    def __init__(
        self,
        commands: list[Command],
        notices: list[Notice],
        config: SessionConfig,
        now: Callable[[], float],
        *,
        receive_greedily: bool,
    ) -> None:
        self._commands = commands
        self._notices = notices
        self._config = config
        self._greedy = receive_greedily
        self._now = now
        self._unforgiven: dict[int, tuple[Request, float]] = {}
        """In which something invalid came, and since when an apology has been due."""
        self._batch: list[IngestItem] = []
        self._sent: dict[int, tuple[Request, deque[_Sent]]] = {}
        self._sinks: dict[int, _Sink] = {}
        self._unwritten: dict[int, _Sink] = {}
        self._complete: set[int] = set()
        self._next_sink = 0
        self.in_flight_bytes = 0
        """Memory held by what is not durable yet."""

    def inside_offers(self) -> list[Request]:
        """Those in which the other side came to bring something, and is inside a payload of it."""
        requests = (sink.request for sink in self._sinks.values())
        return [
            each
            for each in requests
            # First whether it is ours, which tells for nearly all, in each turn.
            if not each.ours and each.active and each.incoming.sink is not None
            if each.lowest_end() is not None
        ]

    @property
    def idle(self) -> bool:
        """Whether everything received is durable or refused."""
        return not self._sent and not self._batch and not self._sinks

    @property
    def is_full(self) -> bool:
        """Whether so much is not durable yet that nothing more should be read.

        That goes for files too: of payloads that shrink well, many come in few bytes.
        """
        # Half of the files: the other half is for those that are still coming, since one that is
        # begun and finds none costs its request.
        return (
            self.in_flight_bytes >= self._config.data_credit_bytes
            or 2 * len(self._complete) >= self._config.sinks_max
        )

    # Entries

    def ingest(
        self,
        request: Request,
        entry: OpenEntry,
        payload: bytes | None,
        *,
        is_due: bool = False,
    ) -> None:
        """Hand over an entry. `is_due`: its payload is to come next, and not with it."""
        entry.ingested = True
        row = (entry.seq, entry.encoded, entry.hash, payload)
        due_bytes = entry.payload_bytes if is_due else 0
        self.ingest_whole(request, entry.begin, row, due_bytes)

    def ingest_payload(
        self, request: Request, entry: OpenEntry, payload: bytes, position: int
    ) -> None:
        """Hand over the payload at a position, of an entry that is stored or was handed over."""
        row = (entry.seq, entry.encoded, entry.hash, payload)
        self._hand_over(request, _counted(position, 1, [row], is_new=False))

    def ingest_whole(self, request: Request, begin: int, row: Received, due_bytes: int = 0) -> None:
        """Hand over an entry that begins at position `begin`."""
        self._hand_over(request, _counted(begin, 2, [row], is_new=True), due_bytes)

    def ingest_run(self, request: Request, entries: Sequence[RunEntry]) -> None:
        """Hand over entries with their payloads, the first of which begins at our cursor."""
        self._hand_over_run(request, 2, entries, is_new=True)

    def ingest_payloads(
        self, request: Request, held: Sequence[HeldEntry], payloads: Sequence[bytes]
    ) -> None:
        """Hand over payloads of entries that are stored, the first of which is at our cursor.

        As `ingest_payload` of each; `held` may go on behind them.
        """
        rows = [
            (entry.seq, entry.encoded, entry.hash, payload)
            for entry, payload in zip(held, payloads, strict=False)
        ]
        self._hand_over_run(request, 1, rows, is_new=False)

    def _hand_over_run(
        self, request: Request, step: int, entries: Sequence[Received], *, is_new: bool
    ) -> None:
        """Those that begin at our cursor, in pieces."""
        begin = request.incoming.position
        for start in range(0, len(entries), INGEST_ENTRIES_MAX):
            some = entries[start : start + INGEST_ENTRIES_MAX]
            self._hand_over(request, _counted(begin + start * step, step, some, is_new=is_new))

    def _hand_over(self, request: Request, sent: _Sent, due_bytes: int = 0) -> None:
        booked = self._sent.get(request.ident)
        if booked is None:
            booked = self._sent[request.ident] = (request, deque())
        booked[1].append(sent)
        request.incoming.pending[sent.begin] = None
        self.in_flight_bytes += sent.memory_bytes
        self._batch.append(
            IngestItem(request.ident, request.log, sent.entries, due_bytes, sent.is_new)
        )

    def keep_entry(self, request: Request, entry: OpenEntry) -> None:
        """The entry goes on without its payload, if it has not done so already."""
        if not entry.ingested:
            self.ingest(request, entry, None)

    def flush(self) -> None:
        """Emit what was gathered: entries as one command, payload bytes as one for each sink."""
        if self._batch:
            self._commands.append(Ingest(self._batch))
            self._batch = []
        for ident in list(self._unwritten):
            self._flush_sink(ident)

    def _flush_sink(self, ident: int) -> None:
        sink = self._unwritten.pop(ident, None)
        if sink is not None:
            pieces, sink.unwritten = sink.unwritten, []
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._commands.append(WritePayload(ident, data))
            sink.unwritten_bytes = 0

    def ingested(self, event: Ingested) -> Request | None:
        """Some entries are durable; returns their request."""
        return self._settle(event.request, event.entries, proved=True)

    def sender_of(self, ident: int) -> Request | None:
        """The request in which entries came that are not all stored or refused."""
        booked = self._sent.get(ident)
        return None if booked is None else booked[0]

    def failed(self, event: IngestFailed) -> Request | None:
        """An entry was refused, and those behind it. Raises Violation if the sender is to blame.

        Returns the request if it has to be given up for another reason.
        """
        booked = self._sent.get(event.request)
        if booked is None:
            return None
        request, sent = booked
        # Before its rows are gone: `begin` says where what is refused begins. The host has not
        # stored what is behind it in the log either, so that all of that goes.
        begin = sent[0].begin
        self._settle(event.request, event.entries, proved=False)
        self._close_refused(request, begin)
        if event.refusal is not Refusal.INVALID:
            return request
        detail = f"entry {event.seq}: {event.detail}"
        return request if self._blame(request, begin, detail, pinned=True) else None

    def _close_refused(self, request: Request, begin: int) -> None:
        """Payloads that are all there, whose entries will never be stored."""
        for ident in self.sinks_of(request):
            sink = self._sinks[ident]
            if sink.complete and not sink.finishing and sink.entry.begin >= begin:
                self.close_sink(ident, discard=False)

    def _settle(self, ident: int, entries: int, *, proved: bool) -> Request | None:
        booked = self._sent.get(ident)
        if booked is None:
            return None
        request, sent = booked
        done = _take_first(request, sent, entries)
        pending = request.incoming.pending
        for each in done:
            self.in_flight_bytes -= each.memory_bytes
            if proved:
                pending.pop(each.begin, None)
        if not sent:
            del self._sent[ident]
        if proved and done:
            new = [each for each in done if each.is_new]
            behind = [each for each in done if not each.is_new]
            if new:
                count, total = sum(len(each.entries) for each in new), _payload_bytes(new)
                self._notices.append(EntriesReceived(request.log, _last_seq(new), count, total))
            if behind:
                total = _payload_bytes(behind)
                self._notices.append(PayloadsReceived(request.log, _last_seq(behind), total))
            self._finish_ready(request)
        return request

    def _blame(self, request: Request, position: int, detail: str, *, pinned: bool) -> bool:
        """A piece is wrong and came whole from the other side. Raises Violation.

        True if it may be right there all the same, or nobody can say any more that it is not: the
        request is to be given up.
        """
        incoming = request.incoming
        over = self._greedy and request.end_received
        if incoming.discarding:
            return False
        if over and pinned:
            # No apology can follow any more, and none is needed.
            incoming.invalid = (position, detail)
            return True
        if not pinned and not request.proposal.payloads_only:
            # Whoever holds it has nothing to apologise for, so that there is nothing to wait for.
            doubt(request, detail, position)
            return True
        moved_on = incoming.position > position + 1 or incoming.in_piece
        if self._greedy and not moved_on and not over:
            incoming.invalid = (position, detail)
            self._unforgiven[request.ident] = (request, self._now())
            return False
        if pinned:
            raise Violation(_RULE, f"invalid data: {detail}", request.number)
        incoming.adrift = True
        return True

    def next_deadline(self) -> float | None:
        """When an apology that is due will have been waited for long enough, or None."""
        for ident, (request, _) in list(self._unforgiven.items()):
            if not request.active or request.end_received or request.incoming.invalid is None:
                del self._unforgiven[ident]
        oldest = min((since for _, since in self._unforgiven.values()), default=None)
        return None if oldest is None else oldest + self._config.apology_timeout_s

    def advance(self) -> None:
        """Raises Violation if an apology does not come: nothing else would end the waiting."""
        due = self.next_deadline()
        if due is None or due > self._now():
            return
        request, _ = min(self._unforgiven.values(), key=lambda each: each[1])
        _, detail = request.incoming.invalid or (0, "")
        raise Violation(_RULE, f"invalid data without an apology: {detail}", request.number)

    # Payloads in pieces

    def sinks_of(self, request: Request) -> list[int]:
        return [ident for ident, sink in self._sinks.items() if sink.request is request]

    def open_sink(self, request: Request, entry: OpenEntry, offset: int) -> bool:
        """Begin a payload in pieces at the cursor; False if there are too many already."""
        if len(self._sinks) >= self._config.sinks_max:
            return False
        incoming = request.incoming
        self._next_sink += 1
        incoming.sink = self._next_sink
        incoming.pending[incoming.position] = None
        self._sinks[self._next_sink] = _Sink(request, incoming.position, entry, offset)
        self._commands.append(
            OpenPayload(
                self._next_sink,
                request.log,
                entry.seq,
                entry.payload_bytes,
                entry.payload_hash,
                offset,
            )
        )
        return True

    def write(self, ident: int, pieces: Sequence[bytes | memoryview], count: int) -> None:
        """Takes the next bytes of a payload, `count` in all."""
        sink = self._sinks[ident]
        sink.in_flight_bytes += count
        self.in_flight_bytes += count
        for piece in pieces:
            if len(piece) < PIECE_BYTES_MAX:
                sink.unwritten.append(piece)
                sink.unwritten_bytes += len(piece)
                self._unwritten[ident] = sink
                if sink.unwritten_bytes >= PIECE_BYTES_MAX:
                    self._flush_sink(ident)
            else:
                # It goes on as it came.
                if sink.unwritten:
                    self._flush_sink(ident)
                self._commands.append(WritePayload(ident, piece))

    def written(self, event: PayloadWritten) -> None:
        sink = self._sinks.get(event.sink)
        if sink is not None:
            sink.in_flight_bytes -= event.bytes_written
            self.in_flight_bytes -= event.bytes_written

    def complete(self, ident: int) -> None:
        """All bytes of a payload have come; it is finished once its entry is durable."""
        sink = self._sinks[ident]
        sink.complete = True
        self._complete.add(ident)
        self._finish_ready(sink.request)

    def _finish_ready(self, request: Request) -> None:
        pending = request.incoming.pending
        for ident in self.sinks_of(request):
            sink = self._sinks[ident]
            # Behind its entry: a payload is nothing before the entry that signs its hash is stored.
            if sink.complete and not sink.finishing and sink.entry.begin not in pending:
                sink.finishing = True
                self._flush_sink(ident)
                self._commands.append(FinishPayload(ident))

    def close_sink(self, ident: int, *, discard: bool) -> None:
        """A payload ends before it is whole."""
        self._flush_sink(ident)
        sink = self._sinks.pop(ident)
        self._complete.discard(ident)
        self.in_flight_bytes -= sink.in_flight_bytes
        sink.request.incoming.pending.pop(sink.position, None)
        self._commands.append(ClosePayload(ident, discard))

    def drop_partial(self, request: Request, *, discard: bool) -> None:
        """What has come of the payload at the other side's cursor is not gone on with."""
        incoming = request.incoming
        incoming.gathered.clear()
        if incoming.sink is not None:
            sink, incoming.sink = incoming.sink, None
            self.close_sink(sink, discard=discard)

    def request_of(self, ident: int) -> Request | None:
        sink = self._sinks.get(ident)
        return None if sink is None else sink.request

    def finished(self, event: PayloadFinished) -> Request | None:
        """A verdict on a payload. Raises Violation if the sender is to blame.

        Returns the request if it has to be given up for another reason.
        """
        sink = self._sinks.get(event.sink)
        if sink is None:
            return None
        if event.verdict in _SAID_AT_ONCE and not sink.finishing:
            # It is closed with its request, or finished if nothing is left to be stopped.
            return None if sink.complete else sink.request
        del self._sinks[event.sink]
        self._complete.discard(event.sink)
        self.in_flight_bytes -= sink.in_flight_bytes
        request, entry = sink.request, sink.entry
        if event.verdict in {Verdict.VALID, Verdict.DROPPED}:
            request.incoming.pending.pop(sink.position, None)
        if event.verdict is Verdict.DROPPED:
            return None
        if event.verdict is Verdict.VALID:
            came = entry.payload_bytes - sink.offset
            self._notices.append(PayloadsReceived(request.log, entry.seq, came))
            return None
        if event.verdict is Verdict.INVALID:
            detail = f"payload of entry {entry.seq}: {event.detail}"
            pinned = entry.begin >= 0 or is_pinned(request, sink.position)
            return request if self._blame(request, sink.position, detail, pinned=pinned) else None
        return request

    def wrong_payload(self, request: Request, position: int, seq: int) -> None:
        """A payload that was gathered here, as its metadata has come, has the wrong hash."""
        request.incoming.pending[position] = None
        detail = f"payload of entry {seq}: its hash does not match"
        self._blame(request, position, detail, pinned=True)

    def suspend(self, *, lost: bool) -> None:
        """No more data comes: keep what came of unfinished payloads for resuming.

        `lost`: no reply comes either, so that what waits for its entry cannot be finished.
        """
        self.flush()
        for ident, sink in list(self._sinks.items()):
            if not sink.finishing and (lost or not sink.complete):
                if sink.request.incoming.sink == ident:
                    sink.request.incoming.sink = None
                self.close_sink(ident, discard=False)


def _take_first(request: Request, sent: deque[_Sent], entries: int) -> list[_Sent]:
    """Takes so many entries, or all that there are, out of what was handed over."""
    done: list[_Sent] = []
    while entries and sent:
        first = sent.popleft()
        if (count := len(first.entries)) > entries:
            # Only where something is refused, and where that begins is then asked for.
            rest = first.part(entries, count)
            sent.appendleft(rest)
            incoming = request.incoming
            # All anew: they stand in the order of their positions.
            incoming.pending = {
                rest.begin if begin == first.begin else begin: None for begin in incoming.pending
            }
            first, count = first.part(0, entries), entries
        done.append(first)
        entries -= count
    return done


def _payload_bytes(sent: Sequence[_Sent]) -> int:
    return sum(each.payload_bytes for each in sent)


def _last_seq(sent: Sequence[_Sent]) -> int:
    return sent[-1].entries[-1][0]
