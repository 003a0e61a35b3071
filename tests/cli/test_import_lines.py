"""Lines of an import are read in bounded memory, and every way to be wrong has a name."""

import io
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bamboo_cli import import_lines
from bamboo_cli.import_lines import BadLine, Line, LongLine, parse_line, parse_long_line, read_lines
from tests.cli.harness import Made, make_log
from tests.cli.test_lines import Pieces, expected

[MADE] = make_log([b"hello"])


def long_line(data: bytes, piece_bytes: int) -> LongLine:
    pieces = [data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes)]
    return LongLine(1, iter(pieces))


def whole(line: Line | LongLine) -> bytes:
    return line.data if isinstance(line, Line) else b"".join(line.pieces)


@given(st.lists(st.binary(max_size=6) | st.just(b"\n")), st.integers(0, 8))
def test_lines_do_not_depend_on_how_their_bytes_arrive(pieces: list[bytes], bytes_max: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_lines, "LINE_BYTES_MAX", bytes_max)
        found = [(line.number, whole(line)) for line in read_lines(Pieces(pieces))]
    assert found == list(enumerate(expected(b"".join(pieces)), 1))


@given(st.lists(st.binary(max_size=6) | st.just(b"\n")))
def test_a_long_line_that_nobody_reads_is_passed_over(pieces: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_lines, "LINE_BYTES_MAX", 3)
        found = {
            line.number: whole(line) for line in read_lines(Pieces(pieces)) if type(line) is Line
        }
    lines = enumerate(expected(b"".join(pieces)), 1)
    short = {number: line for number, line in lines if len(line) <= 3}
    assert short.items() <= found.items()


def test_a_line_is_held_in_memory_up_to_its_limit() -> None:
    data = b"x" * (import_lines.LINE_BYTES_MAX + 1)
    [line] = [type(line) for line in read_lines(io.BytesIO(data))]
    assert line is LongLine
    [line] = [type(line) for line in read_lines(io.BytesIO(data[:-1]))]
    assert line is Line


def test_a_line_of_dump_is_an_entry() -> None:
    found = parse_line(Line(7, MADE.line().encode()))
    assert found is not None
    assert (found.number, found.encoded, found.payload) == (7, MADE.encoded, b"hello")
    without = parse_line(Line(7, MADE.line(payload=False).encode()))
    assert without is not None
    assert without.payload is None


def test_more_fields_and_any_spacing_are_fine() -> None:
    fields = json.loads(MADE.line()) | {"note": [1, {"deep": None}]}
    assert parse_line(Line(1, json.dumps(fields, indent=1).encode().replace(b"\n", b" ")))


@pytest.mark.parametrize("data", [b"", b"  ", b"\r"])
def test_a_blank_line_is_none(data: bytes) -> None:
    assert parse_line(Line(1, data)) is None


def spoiled(position: int) -> str:
    encoded = bytearray(MADE.encoded)
    encoded[position] ^= 1
    return encoded.hex()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "not JSON"),
        (b"\x00", "not JSON"),
        (b'{"encoded": "00\x00"}', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 10_000, "not JSON"),
        (b"NaN", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b'{"payload": null}', 'no "encoded"'),
        (b'{"encoded": "00"}', 'no "payload"'),
        (b'{"encoded": 5, "payload": null}', '"encoded" is not a string'),
        (b'{"encoded": "0", "payload": null}', '"encoded" is not hex: Odd-length'),
        (b'{"encoded": "0x", "payload": null}', '"encoded" is not hex'),
        (b'{"encoded": "00 00", "payload": null}', '"encoded" is not hex'),
        ('{"encoded": "é", "payload": null}'.encode(), '"encoded" is not hex'),
        (b'{"encoded": "", "payload": null}', "no entry: "),
        (b'{"encoded": "00", "payload": null}', "no entry: "),
        (json.dumps({"encoded": spoiled(-1), "payload": None}).encode(), "signature"),
        (json.dumps({"encoded": spoiled(0), "payload": None}).encode(), "signature"),
        (json.dumps({"encoded": MADE.encoded.hex() + "00", "payload": None}).encode(), "no entry"),
        (
            json.dumps({"encoded": MADE.encoded.hex(), "payload": b"hellO".hex()}).encode(),
            "not the one whose hash",
        ),
        (
            json.dumps({"encoded": MADE.encoded.hex(), "payload": b"hell".hex()}).encode(),
            "a payload of 4 bytes; the entry says 5",
        ),
        (json.dumps({"encoded": MADE.encoded.hex(), "payload": "f"}).encode(), '"payload" is not'),
        (json.dumps({"encoded": MADE.encoded.hex(), "payload": 7}).encode(), '"payload" is not'),
    ],
)
def test_a_bad_line_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadLine) as caught:
        parse_line(Line(1, data))
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 200


@given(st.binary(max_size=200))
def test_any_bytes_are_an_entry_or_a_bad_line(data: bytes) -> None:
    try:
        found = parse_line(Line(1, data))
    except BadLine:
        return
    assert found is None


def long_of(made: Made, digits: str) -> bytes:
    return f'{{"encoded": "{made.encoded.hex()}", "payload": "{digits}"}}'.encode()


def read_long(data: bytes, piece_bytes: int) -> bytes:
    _, pieces = parse_long_line(long_line(data, piece_bytes))
    return b"".join(pieces)


# The first piece of a long line always holds the whole head.
HEAD_BYTES = len(long_of(MADE, "").removesuffix(b'"}'))


@given(st.integers(HEAD_BYTES, HEAD_BYTES + 20))
def test_a_long_line_does_not_depend_on_how_it_arrives(piece_bytes: int) -> None:
    data = long_of(MADE, b"hello".hex())
    pieces: Iterator[bytes] = iter(
        [data[:piece_bytes], *(bytes([byte]) for byte in data[piece_bytes:])]
    )
    candidate, payload = parse_long_line(LongLine(3, pieces))
    assert (candidate.number, candidate.encoded) == (3, MADE.encoded)
    assert b"".join(payload) == b"hello"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"x" * 5000, "has to be"),
        (b'{"payload": "00", "encoded": "00"}', "has to be"),
        (b'{"encoded": "0", "payload": "00"}', '"encoded" is not hex'),
        (b'{"encoded": "00", "payload": "00"}', "no entry: "),
        (long_of(MADE, "zz"), '"payload" is not hex'),
        (long_of(MADE, b"hello".hex() + "0"), '"payload" is not hex'),
        (long_of(MADE, b"hell".hex()), "a payload of 4 bytes; the entry says 5"),
        (long_of(MADE, b"hello!".hex()), "a payload of 6 bytes; the entry says 5"),
        (long_of(MADE, "00" * 5000), "longer than the 5 bytes of the entry"),
        (long_of(MADE, b"hello".hex()) + b"x", "something follows the payload"),
        (long_of(MADE, b"hello".hex()) + b" " * 5000, "something follows the payload"),
        (long_of(MADE, b"hello".hex())[:-2], "the line ends inside a string"),
    ],
)
def test_a_bad_long_line_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadLine) as caught:
        read_long(data, 1000)
    assert reason in str(caught.value)
