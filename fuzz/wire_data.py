"""Data bytes mean the same in any pieces, runs included, and only violations are raised."""

from collections.abc import Sequence

from fuzz.harness import main
from fuzz.wire_samples import LOG, ROWS
from wire import (
    DataDecoder,
    DataPacket,
    LZFooEncoder,
    PayloadBytes,
    Violation,
    encode_apology,
    encode_compressed,
    encode_metadata_packet,
    encode_notify,
    encode_payload_header,
    encode_request_cancelled,
    encode_run,
    encode_skip_bytes,
    encode_switch,
    yamf_hash,
)

_WINDOW = 64
_TEXT = b"bamboo grows, bamboo bends, bamboo grows"
_ENCODER = LZFooEncoder(_WINDOW)
CORPUS = [
    encode_switch(4) + encode_notify(40) + encode_skip_bytes(5),
    encode_apology() + encode_request_cancelled(300) + b"\x02\x04\x05\x06",
    encode_run(ROWS[:3], first_with_backlink=False),
    encode_run(ROWS[3:], first_with_backlink=False),
    b"".join(encode_payload_header(len(row[2])) + row[2] for row in ROWS),
    encode_metadata_packet(ROWS[7][1], LOG.log_id, 8, with_backlink=True),
    encode_compressed(len(_TEXT), _ENCODER.encode(_TEXT)),
    encode_compressed(len(_TEXT), _ENCODER.encode(_TEXT)),
    encode_compressed(5000, b"\x01a" + bytes.fromhex("f9138701")),
]


def decode(
    chunks: Sequence[bytes | memoryview], with_backlink: bool
) -> tuple[list[DataPacket], str | None]:
    """All packets, payload bytes joined, and the text of the violation that ends them, if any."""
    decoder = DataDecoder(_WINDOW)
    packets: list[DataPacket] = []
    fed = 0
    for chunk in chunks:
        decoder.feed(chunk)
        fed += len(chunk)
        try:
            while (packet := decoder.next_packet(with_backlink)) is not None:
                last = packets[-1] if packets else None
                if isinstance(packet, PayloadBytes):
                    assert 0 < len(packet.data) <= 65536
                    if isinstance(last, PayloadBytes):
                        packets[-1] = PayloadBytes(b"".join((last.data, packet.data)))
                        continue
                    packet = PayloadBytes(bytes(packet.data))
                packets.append(packet)
                if sum(len(p.data) for p in packets if isinstance(p, PayloadBytes)) > 2**17:
                    return packets[:-1], None  # a bomb: enough seen
        except Violation as violation:
            return packets, str(violation)
        assert decoder.consumed + decoder.buffered == fed
    return packets, None


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    for with_backlink in (False, True):
        whole = decode([data], with_backlink)
        assert decode([memoryview(data)], with_backlink) == whole
        assert decode([bytes((byte,)) for byte in data], with_backlink) == whole
    decoder = DataDecoder(_WINDOW)
    decoder.feed(data)
    hashes = {seq: yamf_hash(encoded) for seq, encoded, _ in ROWS[:3]}
    for first in (1, 4):
        run = decoder.next_run(
            LOG, first, hashes, entries_max=100, payload_bytes_max=100, with_backlink=False
        )
        assert run.mismatch in (None, len(run.entries) - 1)
        assert decoder.consumed + decoder.buffered == len(data)
        for entry in run.entries:
            assert entry.entry_hash == yamf_hash(entry.encoded) == hashes[entry.seq]
        payloads = decoder.next_payloads(
            LOG.log_id, first, [row[1] for row in ROWS[first - 1 :]], payload_bytes_max=100
        )
        assert payloads == [row[2] for row in ROWS[first - 1 :]][: len(payloads)]
        assert decoder.consumed + decoder.buffered == len(data)


if __name__ == "__main__":
    main(check, CORPUS)
