"""What people type, and how numbers, times and sizes are printed."""

import pytest

from bamboo_cli import naming
from local_api import SeqRange, values
from wire import U64_MAX, LogKey

AUTHOR = "ab" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", SeqRange(7, 7)),
        ("2..5", SeqRange(2, 5)),
        ("5..5", SeqRange(5, 5)),
        ("3..", SeqRange(3, None)),
        ("..9", SeqRange(1, 9)),
        ("..", SeqRange(1, None)),
        ("007", SeqRange(7, 7)),
        (f"1..{U64_MAX}", SeqRange(1, U64_MAX)),
    ],
)
def test_a_range_includes_both_ends(text: str, expected: SeqRange) -> None:
    assert values.seq_range(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "0", "0..3", "5..4", "-1", "+1", "a", "1...3", "1..2..3", "1 ", "\u0661", str(2**64)],
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        values.seq_range(text)


@pytest.mark.parametrize("text", ["x", "1..3,5", "1...3"])
def test_what_a_range_looks_like_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no range: write 7, 3\.\.9"):
        values.seq_range(text)
    with pytest.raises(ValueError, match="is no sequence number"):
        values.seq(text)


def test_an_entry_where_a_log_is_due_is_told_how_to_be_written() -> None:
    with pytest.raises(ValueError, match=f"{AUTHOR}/0 7$"):
        naming.log_key(f"{AUTHOR}/0/7")


def test_numbers_go_up_to_u64() -> None:
    assert values.u64(str(U64_MAX)) == U64_MAX
    with pytest.raises(ValueError, match=r"2\^64 - 1"):
        values.u64(str(U64_MAX + 1))
    with pytest.raises(ValueError, match=r"2\^64 - 1"):
        values.u64("9" * 100_000)


def test_an_author_alone_means_all_their_logs_when_followed_and_log_0_elsewhere() -> None:
    author = bytes.fromhex(AUTHOR)
    assert naming.follow_target(AUTHOR) == author
    assert naming.follow_target(f"{AUTHOR}/3") == LogKey(author, 3)
    assert naming.log_key(AUTHOR) == LogKey(author, 0)


def test_times_are_rfc_3339_in_utc() -> None:
    assert values.rfc3339(0) == "1970-01-01T00:00:00.000000Z"
    assert values.rfc3339(1_700_000_000_123_456) == "2023-11-14T22:13:20.123456Z"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_048_575, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 50, "3072.0 TiB"),
    ],
)
def test_sizes_are_short(count: int, text: str) -> None:
    assert values.size(count) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("1000", 1000),
        ("10k", 10 << 10),
        ("10K", 10 << 10),
        ("4M", 4 << 20),
        ("1G", 1 << 30),
        ("64MiB", 64 << 20),
        ("64 MiB", 64 << 20),
        ("7B", 7),
    ],
)
def test_sizes_have_units(text: str, count: int) -> None:
    assert values.byte_size(text) == count


@pytest.mark.parametrize(
    "text", ["", "k", "-1", "1T", "1.5k", "10iB", "64MB", "9" * 21, f"{U64_MAX}k"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no number of bytes, like 1000, 10k, 4M or 1G"):
        values.byte_size(text)
