"""Control bytes mean the same in any pieces; messages encode and decode to themselves."""

from fuzz.harness import main
from fuzz.wire_samples import LOG, ROWS
from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    ControlDecoder,
    ControlMessage,
    Eagerness,
    Grant,
    Propose,
    Violation,
    encode_control,
    yamf_hash,
)

_MESSAGES: list[ControlMessage] = [
    Grant(64),
    Adjust(2, Eagerness.LIMITED, 1000, end=20, upper_info=40, min_bytes=1, max_bytes=2**40),
    Adjust(2, Eagerness.ALL),
    Cancel(3, CancelReason.COMPLETE),
    Cancel(3, CancelReason.LOG_ENDED, seq=300),
    Cancel(3, CancelReason.HASH_MISMATCH, (ROWS[4][1],)),
    Cancel(300, CancelReason.FORKED, (ROWS[7][1], ROWS[12][1])),
    Propose(0, LOG, 1, 1, 0, U64_MAX, None, Eagerness.ALL),
    Propose(2, LOG, 5, 5, 0, 9, yamf_hash(b""), Eagerness.LIMITED, 9, 13, 13, sparse=True),
    Propose(4, LOG, 9, None, 0, 9, yamf_hash(b""), Eagerness.NOTIFY, offset=70, mandatory=True),
]
CORPUS = [encode_control(message) for message in _MESSAGES]


def decode(chunks: list[bytes]) -> tuple[list[ControlMessage], str | None]:
    """All messages, and the text of the violation that ends them, if any."""
    decoder = ControlDecoder()
    messages: list[ControlMessage] = []
    for chunk in chunks:
        decoder.feed(chunk)
        try:
            while (message := decoder.next_message()) is not None:
                messages.append(message)
        except Violation as violation:
            return messages, str(violation)
        assert decoder.buffered < 1024
    return messages, None


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    messages, violation = decode([data])
    assert decode([bytes((byte,)) for byte in data]) == (messages, violation)
    half = len(data) // 2
    assert decode([data[:half], data[half:]]) == (messages, violation)
    for message in messages:
        assert decode([encode_control(message)]) == ([message], None)


if __name__ == "__main__":
    main(check, CORPUS)
