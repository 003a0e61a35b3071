"""A second decoder of LZFoo, written from encodings.md alone: slow, simple, byte by byte."""


class NaiveError(Exception):
    """The position of an element that is not legal."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def read_length(packet: bytes, at: int) -> tuple[int, int]:
    low = packet[at] % 128
    if low < 120:
        return low, at + 1
    k = low - 119
    digits = packet[at + 1 : at + 1 + k]
    if len(digits) < k:
        raise IndexError
    return sum(digit << 8 * place for place, digit in enumerate(reversed(digits))), at + 1 + k


def read_varu64(packet: bytes, at: int) -> tuple[int, int]:
    if packet[at] < 248:
        return packet[at], at + 1
    k = packet[at] - 247
    digits = packet[at + 1 : at + 1 + k]
    if len(digits) < k:
        raise IndexError
    return sum(digit << 8 * place for place, digit in enumerate(reversed(digits))), at + 1 + k


def decode_packet(history: bytearray, declared: int, packet: bytes, window: int) -> bytes:
    """What `packet` decompresses to; appended to `history`, which holds all output before it."""
    if len(packet) > 4 * declared + 64:
        raise NaiveError(0)
    start = len(history)
    at = 0
    while at < len(packet):
        element = at
        try:
            length, at = read_length(packet, at)
            if length == 0 or len(history) - start + length > declared:
                raise NaiveError(element)
            if packet[element] >= 128:
                offset, at = read_varu64(packet, at)
                if offset == 0 or offset > len(history) or offset > window:
                    raise NaiveError(element)
                for _ in range(length):
                    history.append(history[-offset])
            else:
                if at + length > len(packet):
                    raise NaiveError(element)
                for _ in range(length):
                    history.append(packet[at])
                    at += 1
        except IndexError:
            raise NaiveError(element) from None
    if len(history) - start < declared:
        raise NaiveError(at)
    return bytes(history[start:])
