"""The native core compresses and decompresses as Python does, error for error.

An input is the window, an eighth of the declared length (one byte each), how much is fed at a time,
and the compressed bytes; and it is text to compress, and LZ4's block of such.
"""

import lz4.block

from fuzz.harness import main
from fuzz.wire_lzfoo import CORPUS as PACKETS
from wire import NATIVE, NATIVE_STATE, LZFooError
from wire.lzfoo_decoder import PythonLZFooDecoder
from wire.lzfoo_encoder import python_lz4_to_lzfoo
from wire.native import NativeLZFooDecoder

CORPUS = [packet[:2] + bytes((255,)) + packet[2:] for packet in PACKETS]

Told = tuple[bytes, str | None, int, bool]


def told(
    decoder: NativeLZFooDecoder | PythonLZFooDecoder,
    declared: int,
    packets: list[bytes],
    at_once: int,
) -> list[Told]:
    """After each piece that was fed: output, error, what is wanted, whether that was all."""
    found: list[Told] = []
    for packet in packets:
        out, error = bytearray(), None
        try:
            decoder.start(declared, len(packet))
            for at in range(0, len(packet) + 1, at_once):
                decoder.feed(packet[at : at + at_once])
                while piece := decoder.read():
                    out += piece
                found.append((bytes(out), None, decoder.wanted, decoder.finished))
        except LZFooError as fault:
            error = f"{fault.position}: {fault}"
        except (AssertionError, ValueError) as fault:
            error = str(fault)
        found.append((bytes(out), error, decoder.wanted, decoder.finished))
    return found


def check_decoder(window: int, declared: int, packets: list[bytes], at_once: int) -> None:
    """Both decoders tell the same of these packets."""
    assert NATIVE is not None
    native = told(NATIVE.LZFooDecoder(window, LZFooError), declared, packets, at_once)
    assert native == told(PythonLZFooDecoder(window), declared, packets, at_once)


def check_rewriting(data: bytes, window: int) -> None:
    """Both make the same of LZ4's block of `data`."""
    assert NATIVE is not None
    block = lz4.block.compress(data, store_size=False)
    if data:
        assert NATIVE.lz4_to_lzfoo(block, data, window) == python_lz4_to_lzfoo(block, data, window)


def check_block(block: bytes, data: bytes, window: int) -> None:
    """What is no block of LZ4's is refused, or means the same."""
    assert NATIVE is not None
    try:
        native = NATIVE.lz4_to_lzfoo(block, data, window)
    except ValueError:
        return
    # Python ends with a literal even where that is empty, which LZ4 never lets be.
    assert python_lz4_to_lzfoo(block, data, window) in {native, native + b"\x00"}


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    window, eighth, at_once = data[:3] if len(data) > 2 else (0, 0, 0)
    packet = data[3:]
    check_decoder(window, 8 * eighth, [packet, packet], at_once + 1)
    check_decoder(window, 8 * eighth, [packet[: len(packet) // 2], packet], at_once + 1)
    check_rewriting(data, window or 1)
    check_rewriting(data * 300, 65535)
    check_block(packet, data, window)
    check_block(packet + data, data * 3, 65535)


if __name__ == "__main__":
    if NATIVE is None:
        print(f"nothing to compare, native core: {NATIVE_STATE}")
    else:
        main(check, CORPUS)
