"""The incremental decoder of the data channel (point2point.md 4).

It is pulled, packet by packet, because the layout of a metadata packet depends on the request that
it belongs to, which only the caller knows. Payloads are handed on in pieces as they arrive.
"""

from collections import deque
from collections.abc import Callable, MutableMapping
from typing import Final

from .bulk import Run, parse_payloads, parse_run
from .data import (
    PIECE_BYTES_MAX,
    RAW_PAYLOAD,
    RULE,
    Apology,
    DataPacket,
    Metadata,
    Notify,
    PayloadBytes,
    PayloadStart,
    RequestCancelled,
    SkipAbove,
    SkipBelow,
    SkipBytes,
    SkipUnavailable,
    Switch,
)
from .entry import SIGNATURE_BYTES, LogKey
from .errors import NeedMore, Violation
from .lzfoo_decoder import LZFooDecoder
from .varu64 import decode_varu64, decode_varu64_canonical
from .yamf import decode_yamf

_WITHOUT_BODY: Final[dict[int, DataPacket]] = {
    2: Notify(1),
    4: SkipBelow(),
    5: SkipAbove(),
    6: SkipUnavailable(),
    16: Apology(),
}
_WITH_NUMBER: Final[dict[int, Callable[[int], DataPacket]]] = {
    0: Switch,
    3: Notify,
    7: SkipBytes,
    32: RequestCancelled,
}


_PIECE_BYTES_LEAST: Final = 4096
"""What comes in smaller pieces is gathered."""


class DataDecoder:
    """Takes the bytes of a data channel in any pieces and gives its packets in order.

    It buffers what it is fed until that is asked for, so the credit that the caller grants bounds
    it; beside that it keeps one decompression window.
    """

    __slots__ = (
        "_data",
        "_fed",
        "_fed_bytes",
        "_lzfoo",
        "_offset",
        "_raw_left",
        "_used",
        "_violation",
        "_window",
        "saved_bytes",
    )

    def __init__(self, decompression_window: int) -> None:
        """`decompression_window`: the negotiated one, in bytes; 0: nothing comes compressed."""
        self.saved_bytes = 0
        """By how much payload bytes that came compressed were fewer than what they stand for."""
        self._window = decompression_window
        self._lzfoo = LZFooDecoder(decompression_window)
        self._data: bytes | memoryview = b""
        self._offset = 0  # of the first unused byte in data
        self._fed: deque[bytes | memoryview] = deque()  # what came after data
        self._fed_bytes = 0
        self._used = 0  # bytes before data[0]
        self._raw_left = 0  # bytes of a raw payload packet that are still to come
        self._violation: Violation | None = None

    @property
    def buffered(self) -> int:
        """Bytes that were fed and not used yet."""
        return len(self._data) - self._offset + self._fed_bytes

    @property
    def consumed(self) -> int:
        """Bytes used since the start: those of all packets, and pieces of payloads, returned."""
        return self._used + self._offset

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Takes the next bytes of the channel.

        Bytes objects, but for small ones, and views of them are not copied: what lies in them of a
        raw payload is handed on as a view.
        """
        if not data:
            return
        self._fed_bytes += len(data)
        if self._fed and len(self._fed[-1]) < _PIECE_BYTES_LEAST and len(data) < _PIECE_BYTES_LEAST:
            # An object for each byte would be forty times as much memory as the credit bounds.
            self._fed[-1] = b"".join((self._fed[-1], data))
        elif type(data) is memoryview and type(data.obj) is bytes:
            self._fed.append(data)
        else:
            self._fed.append(bytes(data))

    @property
    def is_dry(self) -> bool:
        """Whether there is nothing more to be had before more bytes are fed."""
        return self._offset >= len(self._data) and not self._fed and self._lzfoo.finished

    @property
    def next_byte(self) -> int | None:
        """The first byte that is not used yet; None if there is none."""
        if self._offset < len(self._data):
            return self._data[self._offset]
        return self._fed[0][0] if self._fed else None

    def next_packet(self, with_backlink: bool) -> DataPacket | None:
        """The next packet, or the next piece of a payload, or None until more bytes are fed.

        `with_backlink` says whether a metadata packet, if that is what comes next, carries one.
        Raises Violation at bytes that are no packet, after everything before them, and at every
        call after that.
        """
        if self._violation is not None:
            raise self._violation
        try:
            if self._raw_left:
                return self._raw_piece()
            if not self._lzfoo.finished:
                self._join()
                return self._decompressed_piece()
            start = self._raw_start()
            if start is not None:
                return start
            return self._packet(with_backlink)
        except NeedMore:
            return None
        except Violation as violation:
            self._violation = violation
            raise

    def next_run(
        self,
        log: LogKey,
        seq: int,
        hashes: MutableMapping[int, bytes],
        *,
        entries_max: int,
        payload_bytes_max: int,
        with_backlink: bool,
    ) -> Run:
        """Takes as many entries of `log` from `seq` on as are buffered whole in the usual shape.

        That is: metadata, and the payload of the size it states in one raw packet of at most
        `payload_bytes_max` bytes. `with_backlink` is meant for the first metadata packet; later
        ones carry none. `hashes` (seqnum -> yamf hash) has to know the entries that links name;
        those of the entries taken are added. The run ends before anything else, at a packet's
        start, after an end-of-log entry, and after an entry whose payload has another hash; if it
        is empty, go on with `next_packet`. Never raises on bytes; an assertion fails if
        `with_backlink` is set for an entry whose backlink the receiver always has.
        """
        if self._raw_left or self._violation is not None or not self._lzfoo.finished:
            return Run([], None)
        data = self._join()
        run, self._offset = parse_run(
            data,
            self._offset,
            log,
            seq,
            hashes,
            entries_max=entries_max,
            payload_bytes_max=payload_bytes_max,
            with_backlink=with_backlink,
        )
        return run

    def next_payloads(
        self, log_id: int, seq: int, encodings: list[bytes], *, payload_bytes_max: int
    ) -> list[bytes]:
        """Takes as many payloads of consecutive entries as are buffered whole in the usual shape.

        That is: one raw packet each, of the size and hash that the entry names and of at most
        `payload_bytes_max` bytes. The entries, from `seq` on, have these encodings. It ends before
        anything else, at a packet's start; if it takes none, go on with `next_packet`. It never
        raises.
        """
        if self._raw_left or self._violation is not None or not self._lzfoo.finished:
            return []
        data = self._join()
        payloads, self._offset = parse_payloads(
            data, self._offset, log_id, seq, encodings, payload_bytes_max
        )
        return payloads

    def next_pieces(self, bytes_max: int, pieces_max: int) -> tuple[list[bytes | memoryview], int]:
        """Takes what is buffered of a payload that comes raw, and how many packets began in that.

        At most `bytes_max` bytes, which are left of the payload, in up to `pieces_max` pieces. It
        ends before a packet that is not raw, is longer than what is left, empty, or has a header
        that is not whole in one piece: with those go on with `next_packet`. It never raises.
        """
        pieces: list[bytes | memoryview] = []
        begun = 0
        if self._violation is not None or not self._lzfoo.finished:
            return pieces, begun
        while bytes_max and len(pieces) < pieces_max:
            data, offset = self._data, self._offset
            if offset >= len(data):
                if not self._fed:
                    break
                self._go_on()
            elif not self._raw_left:
                header = self._raw_header()
                if header is None or not 0 < header[0] <= bytes_max:
                    break
                self._raw_left, self._offset = header
                begun += 1
            else:
                piece = data[offset : offset + min(self._raw_left, bytes_max)]
                count = len(piece)
                self._offset = offset + count
                self._raw_left -= count
                bytes_max -= count
                pieces.append(piece)
        return pieces, begun

    def _go_on(self) -> None:
        """Goes on to what came next, as it came, where all before it is used."""
        if self._offset >= len(self._data) and self._fed:
            self._used += self._offset
            self._data, self._offset = self._fed.popleft(), 0
            self._fed_bytes -= len(self._data)

    def _join(self) -> bytes:
        """Makes one string of the unused bytes: once for all that came since the last call."""
        data = self._data
        if type(data) is bytes and not self._fed:
            return data
        rest = data[self._offset :]
        self._used += self._offset
        self._data = joined = b"".join((rest, *self._fed))
        self._offset = self._fed_bytes = 0
        self._fed.clear()
        return joined

    def _raw_start(self) -> PayloadStart | None:
        """The beginning of a raw payload packet in a large piece: what follows it needs no copy."""
        self._go_on()
        if type(self._data) is bytes and not (self._fed and type(self._fed[0]) is memoryview):
            # To join small pieces takes less than to hand on each of them.
            return None
        header = self._raw_header()
        return None if header is None else self._begin_raw(*header)

    def _raw_header(self) -> tuple[int, int] | None:
        """The length of a raw packet that is next, and where its bytes begin; None if what is next
        is another one, or the rest of its header is in the next piece."""
        data, offset = self._data, self._offset
        if offset >= len(data) or data[offset] != RAW_PAYLOAD:
            return None
        try:
            return decode_varu64(data, offset + 1)
        except NeedMore:
            return None

    def _begin_raw(self, length: int, offset: int) -> PayloadStart:
        self._raw_left, self._offset = length, offset
        return PayloadStart(length, compressed=False)

    def _take(self, n: int) -> bytes | memoryview:
        """The next bytes, at most n and at least one, of what came at once."""
        taken = self._data[self._offset : self._offset + n]
        if not taken:
            raise NeedMore("payload")
        self._offset += len(taken)
        return taken

    def _raw_piece(self) -> PayloadBytes:
        self._go_on()
        piece = self._take(self._raw_left)
        self._raw_left -= len(piece)
        return PayloadBytes(piece)

    def _decompressed_piece(self) -> PayloadBytes:
        lzfoo = self._lzfoo
        while not (piece := lzfoo.read()):
            lzfoo.feed(bytes(self._take(min(lzfoo.wanted, PIECE_BYTES_MAX))))
        return PayloadBytes(piece)

    # 0 | V request
    # 2
    # 3 | V n
    # 4, 5, 6
    # 7 | V n
    # 8 | V n | n bytes
    # 9 | V uncompressed length | V compressed length | bytes
    # 16
    # 32 | V request
    # 128, 129 | see _metadata
    def _packet(self, with_backlink: bool) -> DataPacket:
        data, offset = self._join(), self._offset
        if offset >= len(data):
            raise NeedMore("packet")
        first = data[offset]
        if first == RAW_PAYLOAD:
            return self._begin_raw(*decode_varu64(data, offset + 1))
        if first >> 1 == 64:
            return self._metadata(first & 1, data, offset + 1, with_backlink)
        bare = _WITHOUT_BODY.get(first)
        if bare is not None:
            self._offset = offset + 1
            return bare
        kind = _WITH_NUMBER.get(first)
        if kind is not None:
            number, self._offset = decode_varu64(data, offset + 1)
            return kind(number)
        if first == 9:
            return self._compressed_start(data, offset + 1)
        raise Violation(RULE, f"unused first byte {first} of a data packet")

    def _compressed_start(self, data: bytes, offset: int) -> PayloadStart:
        if self._window == 0:
            raise Violation(RULE, "a compressed packet (first byte 9) with window 0")
        length, offset = decode_varu64(data, offset)
        compressed_bytes, offset = decode_varu64(data, offset)
        self._lzfoo.start(length, compressed_bytes)
        self.saved_bytes += length - compressed_bytes
        self._offset = offset
        return PayloadStart(length, compressed=True)

    # 128 or 129 | [backlink, 66] | size, canonical V | payload hash, 66 | signature, 64
    def _metadata(self, tag: int, data: bytes, offset: int, with_backlink: bool) -> Metadata:
        backlink = None
        if with_backlink:
            backlink, offset = decode_yamf(data, offset, "backlink")
        _, hash_at = decode_varu64_canonical(data, offset, "size")
        _, signature_at = decode_yamf(data, hash_at, "payload hash")
        end = signature_at + SIGNATURE_BYTES
        if end > len(data):
            raise NeedMore("signature")
        self._offset = end
        return Metadata(tag, backlink, data[offset:end])
