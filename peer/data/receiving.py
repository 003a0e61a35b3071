"""What each packet does to the other side's cursor in one request (point2point.md 3, 4, 8).

A packet says no more than what it is: which piece it is about follows from the cursor. So each is
judged against the piece that is due, and against the loosest setting that was ever in force, since
an adjust is not acknowledged (section 5): only what no setting ever allowed is a violation.

Two things may be missing here although the other side is right: the hash of an entry that a link
names, and the entry whose payload comes. Then `NeedLookUp` is raised before anything has changed,
the channel waits for the look-up, and the same packet is tried again. If it cannot be had, or what
comes is too much for us, `CannotTakeIn` ends the request and not the connection: what still comes
in it moves the cursor and is thrown away, since both sides have to count the same pieces to the
end. Apologies have a module of their own, and so has what proves a payload wrong (pinning.py).
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from peer.protocol.config import SessionConfig
from peer.protocol.errors import Violation
from peer.protocol.notices import Limit, LimitMet, Notice
from peer.protocol.request import OpenEntry, Request
from peer.protocol.sequence import METADATA, PAYLOAD, Piece, PieceKind
from wire import (
    U64_MAX,
    LogKey,
    Metadata,
    PayloadStart,
    RunEntry,
    has_distinct_lipmaalink,
    rebuild_entry,
    tail_fields,
    tail_offset,
    yamf_hash,
)

from .apologies import judge_next_piece
from .links import CannotTakeIn, NeedLookUp, links_of, remember_hash
from .pinning import fault, is_inside_unpinned, is_pinned, miscounted
from .proving import Prover

_RULE_SEQUENCE = "point2point.md 3"
_RULE_PACKETS = "point2point.md 4"


class Receiver:
    """Applies packets to requests, which hold the state.

    `requests` tells all requests of the session: what is remembered of skips is bounded in sum.
    `came` is told of each payload whose last byte came, `notices` of limits that were met.
    """

    def __init__(
        self,
        prover: Prover,
        config: SessionConfig,
        requests: Callable[[], Iterable[Request]],
        came: Callable[[LogKey, int], None],
        notices: list[Notice],
    ) -> None:
        self._notices = notices
        self._prover = prover
        self._config = config
        self._requests = requests
        self._came = came
        self._skips_counted = 0

    # Metadata

    def with_backlink(self, request: Request) -> bool:
        """Whether a metadata packet at the cursor carries its backlink (section 4, "transmitted").

        Not if the other side has sent the backlink's target in this request, or passed it because
        we had. What we only notified of we have not sent.
        """
        base, incoming, outgoing = request.base, request.incoming, request.outgoing
        position = incoming.position + (incoming.adrift or is_inside_unpinned(request))
        if base is None or position >= base.reach:
            return False
        kind, seq = base.piece(position)
        if kind is not METADATA or not has_distinct_lipmaalink(seq):
            return False
        before = base.metadata_before(position)
        if before is None:
            return True
        sent_by_us = before < min(outgoing.position, outgoing.notified_from)
        return incoming.metadata_at != before and not sent_by_us

    def metadata(self, request: Request, packet: Metadata, now: float) -> None:
        incoming = request.incoming
        self._end_payload(request)
        piece = _piece(request, METADATA, "metadata")
        if not request.our_interest.metadata_ever:
            raise Violation(
                _RULE_PACKETS,
                f"metadata of {piece.seq} where only notifies are due",
                request.number,
            )
        payload_bytes, payload_hash = tail_fields(packet.tail)
        encoded = entry_hash = b""
        if not incoming.discarding:
            lipmaalink, backlink = links_of(request, piece.seq, packet.backlink)
            encoded = rebuild_entry(
                request.log, piece.seq, packet.tag, lipmaalink, backlink, packet.tail
            )
            entry_hash = yamf_hash(encoded)
        # After the links, which may have to be looked up: until then nothing has changed.
        judge_next_piece(request)
        entry = OpenEntry(
            piece.seq,
            encoded,
            entry_hash,
            payload_bytes,
            payload_hash,
            begin=incoming.position,
            came_at=now,
        )
        incoming.entry, incoming.last_entry = entry, None
        incoming.metadata_before, incoming.metadata_at = incoming.metadata_at, incoming.position
        incoming.position += 1
        incoming.last_was_sent = incoming.last_was_checked = True
        if incoming.discarding:
            entry.ingested = True
            return
        remember_hash(request, piece.seq, entry_hash)
        incoming.pending[entry.begin] = None
        # An entry whose payload is small waits for it: both are one row of the store, and one
        # write.
        payload_follows = not _past_end(request, 1) and _next_kind(request) is PAYLOAD
        if not payload_follows or payload_bytes > self._config.small_payload_bytes_max:
            is_due = payload_follows and request.our_interest.takes_payload(payload_bytes)
            self._prover.ingest(request, entry, None, is_due=is_due)

    # Payloads

    def payload_start(self, request: Request, packet: PayloadStart) -> None:
        """A packet 8 or 9 announces its bytes; nothing is kept yet."""
        incoming, length = request.incoming, packet.length
        if packet.compressed and length == 0:
            raise Violation(_RULE_PACKETS, "compressed packet of length 0", request.number)
        if request.our_interest.data_up_to < 0 and not _past_end(request, 1):
            # Whatever the size of the payload, whose entry may not be held here.
            finding = "bytes of a payload where only notifies are due"
            raise Violation(_RULE_PACKETS, finding, request.number)
        if self._is_lost(request):
            return
        entry = self._entry_of_payload(request, "payload")
        if entry is None:
            self._lose_track(request)
            return
        if entry.payload_bytes > request.our_interest.data_up_to:
            finding = f"payload of {entry.payload_bytes} bytes against the eagerness"
            raise fault(request, _RULE_PACKETS, finding)
        _judge_length(request, entry, length)
        if not incoming.in_piece:
            judge_next_piece(request)
            incoming.in_piece = True
            incoming.entry = entry
            if entry.payload_bytes > self._config.payload_bytes_max and not incoming.discarding:
                self._notices.append(LimitMet(Limit.PAYLOAD_BYTES))
                raise CannotTakeIn(f"payload of {entry.payload_bytes} bytes is above our limit")
            self._choose_way(request, entry)
        if entry.payload_bytes == incoming.progress:
            self._payload_whole(request, entry)

    def _is_lost(self, request: Request) -> bool:
        """Whether a packet belongs to a payload of which nobody here knows where it ends."""
        incoming = request.incoming
        if incoming.adrift or request.proposal.payloads_only:
            return incoming.adrift
        behind = not incoming.in_piece and not _is_at_payload(request) and incoming.last_was_sent
        if behind and not is_pinned(request, incoming.position - 1):
            finding = "more of a payload than its entry says"
            raise fault(request, _RULE_PACKETS, finding, incoming.position - 1)
        return False

    def _end_payload(self, request: Request) -> None:
        """Another piece begins, so that a payload has ended whose size may be another one there."""
        incoming = request.incoming
        if request.proposal.payloads_only:
            return
        if not incoming.adrift and is_inside_unpinned(request):
            finding = f"a payload that ends after {incoming.progress} bytes"
            raise fault(request, _RULE_SEQUENCE, finding)
        if incoming.adrift:
            self._pass_over(request, 1)

    def _lose_track(self, request: Request) -> None:
        """A payload comes whose entry is not held, so that nobody here knows its size.

        That is no fault of the other side, which may take for granted that we hold it (section 3).
        What it sends is thrown away, up to the next metadata or the end of the request.
        """
        if not request.incoming.discarding:
            seq = _piece(request, PAYLOAD, "payload").seq
            raise CannotTakeIn(f"entry {seq}, whose payload comes, is not held")
        request.incoming.adrift = True

    def stored_bytes_left(self, request: Request) -> int:
        """How much is to come of a payload that is stored as it comes, and of which nothing is to
        be judged but how much comes. 0 if there is anything else to it."""
        incoming = request.incoming
        entry = incoming.entry
        if incoming.sink is None or entry is None or not incoming.in_piece or incoming.discarding:
            return 0
        # What `payload_start` asks: since the payload began, its range may have been cut.
        if _past_end(request, 1) or entry.payload_bytes > request.our_interest.data_up_to:
            return 0
        return entry.payload_bytes - incoming.progress

    def stored_bytes(
        self, request: Request, sink: int, pieces: Sequence[bytes | memoryview], count: int
    ) -> None:
        """Such bytes, `count` in all: no more than are left."""
        incoming = request.incoming
        incoming.progress += count
        self._prover.write(sink, pieces, count)
        if (entry := incoming.entry) is not None and incoming.progress == entry.payload_bytes:
            self._payload_whole(request, entry)

    def payload_bytes(self, request: Request, data: bytes | memoryview) -> None:
        incoming = request.incoming
        if incoming.adrift:
            return
        entry = incoming.entry
        if entry is None:
            raise AssertionError("payload_start has judged this")
        incoming.progress += len(data)
        if incoming.sink is not None:
            self._prover.write(incoming.sink, (data,), len(data))
        elif not incoming.discarding and not incoming.held_already:
            incoming.gathered += data
        if incoming.progress == entry.payload_bytes:
            try:
                self._payload_whole(request, entry)
            except CannotTakeIn:
                # The same bytes are applied once more, to be thrown away. Counted twice, the piece
                # would have no end here, and what the other side sends next be taken for a fault.
                incoming.progress -= len(data)
                raise

    def _choose_way(self, request: Request, entry: OpenEntry) -> None:
        """Small payloads are gathered, all others go through a sink.

        So does the rest of one whose beginning is held.
        """
        incoming = request.incoming
        small = entry.payload_bytes <= self._config.small_payload_bytes_max
        if incoming.discarding or incoming.held_already:
            return
        if not small or (entry.ingested and incoming.progress):
            self._to_sink(request, entry, incoming.progress)

    def _to_sink(self, request: Request, entry: OpenEntry, offset: int) -> None:
        if not entry.ingested:
            self._prover.ingest(request, entry, None, is_due=True)
        if not self._prover.open_sink(request, entry, offset):
            raise CannotTakeIn("too many payloads under way in pieces")

    def _payload_whole(self, request: Request, entry: OpenEntry) -> None:
        incoming = request.incoming
        was_gathered = incoming.sink is None and not (incoming.discarding or incoming.held_already)
        is_right = was_gathered and yamf_hash(incoming.gathered) == entry.payload_hash
        if was_gathered and entry.ingested and not is_right:
            # Whether anybody is to blame for that is another question where it is our entry that it
            # does not go with, and sinks have the answer.
            self._begin_sink(request, entry)
        position = incoming.position
        incoming.position += 1
        incoming.progress = 0
        incoming.in_piece = False
        incoming.entry, incoming.last_entry = None, entry
        incoming.last_was_sent = True
        incoming.last_was_checked = not incoming.held_already
        self._came(request.log, entry.seq)
        if incoming.sink is not None:
            sink, incoming.sink = incoming.sink, None
            self._prover.complete(sink)
        elif incoming.held_already:
            incoming.held_already = False
            self._prover.keep_entry(request, entry)
        elif not incoming.discarding:
            self._small_payload_whole(request, entry, position, is_right=is_right)

    def _small_payload_whole(
        self, request: Request, entry: OpenEntry, position: int, *, is_right: bool
    ) -> None:
        incoming = request.incoming
        payload = bytes(incoming.gathered)
        incoming.gathered.clear()
        if is_right:
            if entry.ingested:
                self._prover.ingest_payload(request, entry, payload, position)
            else:
                self._prover.ingest(request, entry, payload)
            return
        self._prover.keep_entry(request, entry)
        self._prover.wrong_payload(request, position, entry.seq)

    def passed_payloads(self, request: Request, seq: int, count: int) -> None:
        """So many payloads came whole at our cursor, of entries from `seq` on, and are right."""
        incoming = request.incoming
        incoming.position += count
        incoming.entry = incoming.last_entry = None
        incoming.last_was_sent = incoming.last_was_checked = True
        for each in range(seq, seq + count):
            self._came(request.log, each)

    def sent_wrong_payload(self, request: Request, position: int, row: RunEntry) -> None:
        """The last entry of a run came with a payload that is not its own."""
        payload_bytes, payload_hash = tail_fields(
            row.encoded[tail_offset(request.log.log_id, row.seq) :]
        )
        entry = OpenEntry(
            row.seq, row.encoded, row.entry_hash, payload_bytes, payload_hash, begin=position
        )
        entry.ingested = True
        request.incoming.last_entry = entry
        self._prover.wrong_payload(request, position + 1, row.seq)

    def hand_over(self, request: Request) -> None:
        """The entry whose small payload is not whole is stored without it, and what came of it.

        So that at most one small payload is held in memory, however many requests there are, and
        that no entry goes unverified for longer than its sender wants: metadata with a forged
        signature, whose payload never comes, would keep its connection for nothing.
        """
        incoming = request.incoming
        entry = incoming.entry
        if entry is None or incoming.discarding:
            # What came of it before is not taken in either: it may be that it is not allowed to.
            return
        if entry.ingested:
            self.put_aside(request)
            return
        if not incoming.in_piece or incoming.held_already:
            self._prover.keep_entry(request, entry)
            return
        self._begin_sink(request, entry)

    def put_aside(self, request: Request) -> None:
        """What came of the payload of an entry that is stored goes on in a sink.

        A small one that comes whole at once, as most do, needs none: it is stored with its entry
        once more, many in one transaction, where sinks are a few questions to the store for each.
        """
        incoming, entry = request.incoming, request.incoming.entry
        # Nothing is gathered of what has a sink, nor of what had one that was suspended as no more
        # comes: begun anew, at its first byte, that would lose what came of it.
        if entry is not None and entry.ingested and incoming.gathered:
            self._begin_sink(request, entry)

    def _begin_sink(self, request: Request, entry: OpenEntry) -> None:
        incoming = request.incoming
        data = bytes(incoming.gathered)
        incoming.gathered.clear()
        self._to_sink(request, entry, 0)
        if incoming.sink is not None and data:
            self._prover.write(incoming.sink, (data,), len(data))
        elif incoming.entry is not None and not incoming.discarding:
            self._prover.keep_entry(request, incoming.entry)

    # Passing over

    def notify(self, request: Request, count: int) -> None:
        """Packets 2 and 3.

        What we passed ourselves may be notified of, whether we sent it or skipped it: the other
        side cannot always tell what we will call transmitted.
        """
        incoming, base = request.incoming, request.base
        self._end_payload(request)
        if incoming.adrift or base is None:
            return
        if _past_end(request, count):
            finding = f"notify of {count} pieces moves past the end"
            raise miscounted(request, _RULE_SEQUENCE, finding)
        covered = request.outgoing.position - incoming.position
        if count > covered:
            unasked = not request.our_interest.notify_only_ever
            if unasked and self._data_is_due(request, count, covered):
                finding = f"notify of {count} pieces where data is due"
                raise miscounted(request, _RULE_PACKETS, finding)
            first = incoming.position + max(covered, 0)
            first += base.piece(first).kind is PAYLOAD
            if first < incoming.position + count:
                incoming.notified_from = min(incoming.notified_from, first)
        self._pass_over(request, count)

    def _data_is_due(self, request: Request, count: int, covered: int) -> bool:
        """Pieces beyond our cursor may be notified only if they are payloads above eager size."""
        incoming, above = request.incoming, request.our_interest.notify_above
        position = incoming.position + max(covered, 0)
        if above == U64_MAX or incoming.position + count - position > 1 or request.base is None:
            return True
        if request.base.piece(position).kind is not PAYLOAD:
            return True
        if position == incoming.position:
            size = self._size_of_payload(request, "notify")
            return size is not None and size <= above
        return False

    def skip(self, request: Request, packet: int) -> None:
        """Packets 4, 5 and 6."""
        incoming, interest = request.incoming, request.our_interest
        if incoming.adrift and request.proposal.payloads_only:
            return
        if incoming.adrift or incoming.in_piece:
            finding = "skip after the first byte of a payload"
            raise miscounted(request, _RULE_PACKETS, finding)
        piece = _piece(request, PAYLOAD, "skip")
        if packet == 6:
            if interest.mandatory:
                raise Violation(
                    _RULE_PACKETS, f"payload {piece.seq} is skipped but mandatory", request.number
                )
        else:
            size = self._size_of_payload(request, "skip")
            if interest.notify_only_ever and incoming.looked_up == piece.seq:
                # Its metadata was notified of, and may be another one if the log is forked here.
                size = None
            if packet == 4 and size is not None and size >= interest.min_bytes:
                finding = f"payload of {size} bytes is not below the minimum {interest.min_bytes}"
                raise fault(request, _RULE_PACKETS, finding)
            if packet == 5 and size is not None and size <= interest.max_bytes:
                finding = f"payload of {size} bytes is not above the maximum {interest.max_bytes}"
                raise fault(request, _RULE_PACKETS, finding)
        # Who asks for payloads lacks them, and a run of them may be long.
        asked_for = request.ours and request.proposal.payloads_only
        ahead = incoming.position >= request.outgoing.position
        if ahead and not (asked_for or incoming.discarding):
            self._remember_skip(request)
        self._pass_over(request, 1)

    def _remember_skip(self, request: Request) -> None:
        # A skip is a byte for the other side and a number here, for as long as our cursor is
        # behind. They are counted in full only when the quick count says that it may be too many.
        self._skips_counted += 1
        if self._skips_counted > self._config.skipped_max:
            every = self._requests()
            kept = sum(len(each.incoming.skipped) + len(each.outgoing.absent) for each in every)
            self._skips_counted = kept + 1
            if kept >= self._config.skipped_max:
                raise CannotTakeIn(
                    f"more than {self._config.skipped_max} skipped payloads to remember"
                )
        incoming = request.incoming
        incoming.skipped = incoming.skipped or deque()
        incoming.skipped.append(incoming.position)

    def skip_bytes(self, request: Request, count: int) -> None:
        """Packet 7: only to catch up with what we sent ourselves."""
        incoming, outgoing = request.incoming, request.outgoing
        if count == 0:
            raise Violation(_RULE_PACKETS, "skip of 0 bytes", request.number)
        if self._is_lost(request):
            return
        entry = self._entry_of_payload(request, "skip")
        if entry is None:
            self._lose_track(request)
            return
        _judge_length(request, entry, count)
        reached = (incoming.position, incoming.progress + count)
        # What we have taken back may have been passed before our apology arrived.
        if reached > max((outgoing.position, outgoing.progress), outgoing.taken_back):
            finding = f"skip of {count} bytes that we have not sent"
            raise miscounted(request, _RULE_PACKETS, finding)
        if not incoming.in_piece:
            judge_next_piece(request)
        incoming.in_piece = True
        incoming.entry = entry
        incoming.held_already = True
        self._prover.drop_partial(request, discard=False)
        incoming.progress += count
        if incoming.progress == entry.payload_bytes:
            self._payload_whole(request, entry)

    def _pass_over(self, request: Request, count: int) -> None:
        incoming = request.incoming
        judge_next_piece(request)
        self._prover.drop_partial(request, discard=False)
        if incoming.entry is not None:
            self._prover.keep_entry(request, incoming.entry)
        incoming.held_already = False
        incoming.entry = incoming.last_entry = None
        incoming.position += count
        incoming.progress = 0
        incoming.in_piece = incoming.adrift = False
        incoming.last_was_sent = False

    # Shared

    def _size_of_payload(self, request: Request, what: str) -> int | None:
        """The size of the payload at the cursor; None if the other side may know another one."""
        full = not request.proposal.payloads_only
        if full and _is_at_payload(request) and not is_pinned(request, request.incoming.position):
            return None
        entry = self._entry_of_payload(request, what)
        return None if entry is None else entry.payload_bytes

    def _entry_of_payload(self, request: Request, what: str) -> OpenEntry | None:
        """The entry whose payload is at the cursor; None if nobody here knows it."""
        incoming = request.incoming
        piece = _piece(request, PAYLOAD, what)
        if incoming.entry is not None and incoming.entry.seq == piece.seq:
            return incoming.entry
        if incoming.looked_up != piece.seq:
            raise NeedLookUp(piece.seq, (), piece.seq)
        return None


def _piece(request: Request, kind: PieceKind, what: str) -> Piece:
    base, position = request.base, request.incoming.position
    if base is None:
        raise AssertionError("data is read only for confirmed requests")
    if _past_end(request, 1):
        finding = f"{what} past the end"
        if kind is METADATA:
            raise Violation(_RULE_SEQUENCE, finding, request.number)
        raise miscounted(request, _RULE_SEQUENCE, finding)
    piece = base.piece(position)
    if piece.kind is not kind:
        raise Violation(
            _RULE_SEQUENCE,
            f"{what} where the {piece.kind.name.lower()} of entry {piece.seq} is due",
            request.number,
        )
    return piece


def _past_end(request: Request, count: int) -> bool:
    if request.base is None:
        raise AssertionError("data is read only for confirmed requests")
    return request.incoming.position + count > request.base.reach


def _is_at_payload(request: Request) -> bool:
    return not _past_end(request, 1) and _next_kind(request) is PAYLOAD


def _next_kind(request: Request) -> PieceKind:
    if request.base is None:
        raise AssertionError("data is read only for confirmed requests")
    return request.base.piece(request.incoming.position).kind


def _judge_length(request: Request, entry: OpenEntry, length: int) -> None:
    left = entry.payload_bytes - request.incoming.progress
    if length > left:
        finding = f"{length} bytes of a payload of which {left} are left"
        raise fault(request, _RULE_PACKETS, finding)
    if length == 0 and entry.payload_bytes > 0:
        raise fault(request, _RULE_PACKETS, "payload packet of length 0")
