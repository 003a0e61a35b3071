"""RLP: any bytes are the one encoding of an item or an error, and of any field of a type too."""

from contextlib import suppress

from fuzz.harness import main
from gateways.reading import CodecError
from gateways.swarm import rlp

CORPUS = [
    rlp.encode(b""),
    rlp.encode(b"\x7f"),
    rlp.encode(b"\x80"),
    rlp.encode(bytes(55)),
    rlp.encode(bytes(56)),
    rlp.encode(bytes(300)),
    rlp.encode(()),
    rlp.encode((b"cat", b"dog", ((), (b"",)))),
    rlp.encode([bytes(32)] * 9),
    rlp.encode(("SYNC", "g", True)) + rlp.encode(2**64 - 1) + rlp.encode(7),
    b"\xc1" * 20 + b"\xc0",
    b"\xbf" + b"\xff" * 8,
    b"\xff" + b"\xff" * 8,
    b"\x81\x00",
    b"\xb8\x01\x00",
]


def check(data: bytes) -> None:
    """The invariants, for any bytes."""
    try:
        item = rlp.decode(data)
    except CodecError:
        pass
    else:
        assert rlp.encode(item) == data
    for first in range(6):
        with suppress(CodecError):
            _check_fields(rlp.Reader(data), data, first)


def _check_fields(reader: rlp.Reader, data: bytes, kind: int) -> None:
    """Reads fields of one type after the other. Raises CodecError."""
    while reader.left:
        start = reader.at
        value: rlp.Value
        match kind % 6:
            case 0:
                value = reader.data("it")
            case 1:
                value = reader.text("it", 256)
                assert len(value.encode()) <= 256
            case 2:
                value = reader.integer("it")
            case 3:
                value = reader.flag("it")
            case 4:
                value = reader.item("it")
            case _:
                inner = reader.fields("it")
                inside = data[reader.at - inner.left : reader.at]
                _check_fields(inner, inside, kind + 1)
                inner.end()
                continue
        assert rlp.encode(value) == data[start : reader.at]
        kind += 1
    reader.end()


if __name__ == "__main__":
    main(check, CORPUS)
