"""The LZFoo decoder agrees with a naive one, on output and errors, and undoes the encoder.

An input is the window, an eighth of the declared length (one byte each), and the compressed bytes.
"""

from fuzz.harness import main
from tests.wire.naive_lzfoo import NaiveError, decode_packet
from wire import LZFooDecoder, LZFooEncoder, LZFooError

_TEXT = b"bamboo grows, bamboo bends, bamboo grows" * 3
_PACKET = LZFooEncoder(120).encode(_TEXT)
# Long enough for the decoder's way with many short elements, which ends 128 bytes before any end.
_LONG = bytes.fromhex("03616263 8202 0178 8404") * 100
CORPUS = [
    bytes((120, len(_TEXT) // 8)) + _PACKET,
    bytes((120, 125)) + _LONG,
    bytes.fromhex("40 01 03616263 8502"),
    bytes.fromhex("40 19 0161 f8c7 01"),
    bytes.fromhex("40 01 7803616263 7900 03 f803"),
    bytes.fromhex("02 01 03616263 8203"),
]


def decode(window: int, declared: int, chunks: list[bytes]) -> tuple[bytes, int | None]:
    """The output, and the position of the error that ends it, if any."""
    decoder = LZFooDecoder(window)
    out = bytearray()
    try:
        decoder.start(declared, sum(map(len, chunks)))
        for chunk in [*chunks, b""]:
            decoder.feed(chunk)
            while piece := decoder.read():
                out += piece
    except LZFooError as error:
        return bytes(out), error.position
    assert decoder.finished
    return bytes(out), None


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    window, declared, packet = (data[0], 8 * data[1], data[2:]) if len(data) > 1 else (0, 0, data)
    history = bytearray()
    position = None
    try:
        decode_packet(history, declared, packet, window)
    except NaiveError as error:
        position = error.position
    expected = (bytes(history), position)
    assert decode(window, declared, [packet]) == expected
    assert decode(window, declared, [bytes((byte,)) for byte in packet]) == expected
    compressed = LZFooEncoder(window or 1).encode(data)
    assert decode(window or 1, len(data), [compressed]) == (data, None)


if __name__ == "__main__":
    main(check, CORPUS)
