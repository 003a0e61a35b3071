"""`logs`, `entry`, `cat`, `forks` and `dump`."""

import json
from pathlib import Path

import apsw
import pytest

from bamboo_cli import opening
from logstore import Store
from tests.cli.harness import AUTHOR_KEY, CommandLine, Result, lines_of, make_log, words
from wire import U64_MAX, LogKey, decode_entry

AUTHOR = bytes(AUTHOR_KEY.verify_key).hex()
READERS = (
    ("logs", AUTHOR),
    ("entry", AUTHOR, "1"),
    ("cat", AUTHOR),
    ("dump", AUTHOR),
)


def test_logs_of_an_empty_store(own: CommandLine) -> None:
    assert own("logs", "--json") == Result(0, b"", "")


def test_logs_says_what_is_held(own: CommandLine) -> None:
    own("append", "--lines", stdin=b"one\ntwo\n")
    made = make_log(words(3), ended=True)
    own("import", stdin="\n".join(each.line(payload=each.seq != 2) for each in made).encode())
    records = {record["author"]: record for record in own("logs", "--json").records}
    theirs, ours = records[AUTHOR], records[own.author]
    assert ours["own"] is True
    assert {name: theirs[name] for name in ("log_id", "height", "newest", "entries")} == {
        "log_id": 0,
        "height": 3,
        "newest": 3,
        "entries": 3,
    }
    assert (theirs["payloads"], theirs["missing_payloads"], theirs["state"]) == (2, 1, "ended")
    sizes = [len(each.encoded) for each in made] + [len(made[0].payload), len(made[2].payload)]
    assert theirs["bytes"] == sum(sizes)
    assert (theirs["own"], theirs["end_seq"], theirs["fork_seq"]) == (False, 3, None)
    assert theirs["newest_at"].endswith("Z")


def test_logs_of_one_log(own: CommandLine) -> None:
    own("append", stdin=b"x")
    own("append", "--log-id", 1, stdin=b"x")
    assert [record["log_id"] for record in own("logs", "--json").records] == [0, 1]
    assert own("logs", f"{own.author}/1", "--json").record["log_id"] == 1
    assert own("logs", own.author, "--json").record["log_id"] == 0


def test_logs_is_a_table_with_a_heading_on_a_terminal_only(own: CommandLine) -> None:
    own("append", stdin=b"x")
    plain = own("logs")
    [line] = plain.lines
    assert line.split() == [f"{own.author}/0", "1", "1", "1", "1", "167", "B", "live"]
    own.setenv("NO_COLOR", "1")
    own.setenv("TERM", "xterm")
    heading, shown = own("logs", terminal=True).lines
    assert heading.split()[0] == "LOG"
    assert shown.split() == [own.author[:12], "1", "1", "1", "1", "167", "B", "live"]
    own.setenv("NO_COLOR", "")
    assert own("logs", terminal=True).lines[0] == f"\x1b[1m{heading}\x1b[0m"
    own.setenv("TERM", "dumb")
    assert own("logs", terminal=True).lines[0] == heading
    assert own("logs", "--json", terminal=True).records


@pytest.mark.parametrize("argv", READERS, ids=lambda argv: argv[0])
def test_a_log_of_which_nothing_is_held(own: CommandLine, argv: tuple[str, ...]) -> None:
    result = own(*argv)
    assert (result.status, result.out) == (1, b"")
    assert f"{AUTHOR}/0: nothing is held of this log" in result.err


@pytest.mark.parametrize("argv", [*READERS, ("forks",), ("follows",)], ids=lambda argv: argv[0])
def test_reading_without_a_store(cli: CommandLine, argv: tuple[str, ...]) -> None:
    result = cli(*argv)
    assert (result.status, result.out) == (1, b"")
    assert str(cli.store) in result.err
    assert "`init` makes one" in result.err


@pytest.mark.parametrize("text", ["", "abc", AUTHOR + "0", AUTHOR + "/", AUTHOR + "/-1", "x" * 65])
def test_what_is_no_log_is_wrong_usage(own: CommandLine, text: str) -> None:
    result = own("cat", text)
    assert (result.status, result.out) == (2, b"")
    assert "argument LOG" in result.err


def test_entry_shows_every_field(own: CommandLine) -> None:
    made = make_log(words(4), log_id=9)
    own("import", stdin=lines_of(made))
    entry = decode_entry(made[3].encoded)
    record = own("entry", f"{AUTHOR}/9", 4, "--json").record
    assert entry.lipmaalink is not None
    assert entry.backlink is not None
    assert (record["author"], record["log_id"], record["seq"]) == (AUTHOR, 9, 4)
    assert record["lipmaalink"] == entry.lipmaalink.hex()
    assert record["backlink"] == entry.backlink.hex()
    assert record["payload_bytes"] == len(made[3].payload)
    assert record["payload_hash"] == entry.payload_hash.hex()
    assert record["signature"] == entry.signature.hex()
    assert (record["end_of_log"], record["payload_state"]) == (False, "present")
    listing = dict(line.split() for line in own("entry", f"{AUTHOR}/9", 4).lines)
    assert listing["lipmaalink"] == record["lipmaalink"]
    assert listing["end_of_log"] == "no"
    assert set(listing) == set(record) - {"name"}


def test_entry_1_has_no_links(own: CommandLine) -> None:
    own("append", stdin=b"x")
    record = own("entry", own.author, 1, "--json").record
    assert (record["lipmaalink"], record["backlink"]) == (None, None)
    assert "backlink       -" in own("entry", own.author, 1).lines


def test_entry_raw_is_the_canonical_encoding(own: CommandLine) -> None:
    made = make_log(words(2))
    own("import", stdin=lines_of(made))
    assert own("entry", AUTHOR, 2, "--raw").out == made[1].encoded


@pytest.mark.parametrize("seq", [3, U64_MAX])
def test_an_entry_that_is_not_held(own: CommandLine, seq: int) -> None:
    own("append", stdin=b"x")
    result = own("entry", own.author, seq)
    assert (result.status, result.out) == (1, b"")
    assert f"{own.author}/0/{seq}: this entry is not held" in result.err


@pytest.mark.parametrize("text", ["0", "-1", "x", "1..2", str(U64_MAX + 1)])
def test_what_is_no_seq_is_wrong_usage(own: CommandLine, text: str) -> None:
    assert own("entry", AUTHOR, text).status == 2


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ((), b"abcde"),
        (("3",), b"c"),
        (("2..4",), b"bcd"),
        (("4..",), b"de"),
        (("..2",), b"ab"),
        (("..",), b"abcde"),
        (("6..",), b""),
        ((f"{U64_MAX}..",), b""),
    ],
)
def test_cat_concatenates_payloads(
    own: CommandLine, span: tuple[str, ...], expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "READ_ENTRIES", 2)
    own("append", "--lines", stdin=b"a\nb\nc\nd\ne\n")
    assert own("cat", own.author, *span) == Result(0, expected, "")


@pytest.mark.parametrize(
    ("span", "printed", "missing"),
    [("2..7", b"bc", 4), ("4..", b"", 4), ("4", b"", 4), ("5..9", b"e", 6), ("9", b"", 9)],
)
def test_cat_stops_at_a_payload_that_is_not_held(
    own: CommandLine, span: str, printed: bytes, missing: int
) -> None:
    own("append", "--lines", stdin=b"a\nb\nc\nd\ne\n")
    own("drop", own.author, 4)
    result = own("cat", own.author, span)
    assert (result.status, result.out) == (1, printed)
    assert f"{own.author}/0/{missing}: " in result.err


def test_cat_says_why_a_payload_is_not_held(own: CommandLine) -> None:
    made = make_log(words(3))
    own("import", stdin=made[0].line(payload=False).encode())
    assert "its payload is not held" in own("cat", AUTHOR).err
    own("append", stdin=b"x")
    own("drop", own.author, 1)
    assert "its payload was deleted here" in own("cat", own.author).err


def test_what_lies_behind_the_end_or_a_fork_is_named_so(own: CommandLine) -> None:
    made, other = make_log(words(3), ended=True), make_log([*words(1), b"other"])
    own("import", stdin=lines_of(made))
    assert f"{AUTHOR}/0/4: the log ended with entry 3" in own("entry", AUTHOR, 4).err
    own("import", stdin=other[1].line().encode())
    for command in ("entry", "cat"):
        result = own(command, AUTHOR, 3)
        assert result.status == 1
        assert f"{AUTHOR}/0/3: nothing from 2 on is valid" in result.err


def test_cat_stops_at_a_gap(own: CommandLine) -> None:
    made = make_log(words(5))
    own("import", stdin=lines_of([made[0], made[3], made[4]]))
    result = own("cat", AUTHOR)
    assert (result.status, result.out) == (1, b"payload 1")
    assert f"{AUTHOR}/0/2: this entry is not held" in result.err
    assert own("cat", AUTHOR, "4..").out == b"payload 4payload 5"


def test_cat_prints_bytes_as_they_are(own: CommandLine) -> None:
    hostile = bytes(range(256)) + b"\x1b[2J\r"
    own("append", stdin=hostile)
    assert own("cat", own.author, terminal=True).out == hostile


def test_a_fork_is_listed_and_hides_what_follows(own: CommandLine) -> None:
    made = make_log(words(3))
    other = make_log([*words(1), b"another"])
    own("import", stdin=lines_of(made))
    assert own("forks") == Result(0, b"", "")
    own("import", stdin=other[1].line().encode())
    assert own("forks").lines == [f"{AUTHOR}/0/2"]
    record = own("forks", "--json").record
    assert (record["author"], record["log_id"], record["seq"]) == (AUTHOR, 0, 2)
    assert {record["first"], record["second"]} == {made[1].encoded.hex(), other[1].encoded.hex()}
    held = own("logs", AUTHOR, "--json").record
    assert (held["state"], held["fork_seq"], held["newest"]) == ("forked", 2, 1)
    assert own("cat", AUTHOR).out == b"payload 1"
    assert own("dump", AUTHOR).dumped == lines_of(made[:1])


def test_dump_prints_what_import_takes(own: CommandLine) -> None:
    made = make_log([b"", b"\x00\xff", *words(3)])
    own("import", stdin=lines_of(made))
    assert own("dump", AUTHOR).dumped == lines_of(made)
    assert own("dump", AUTHOR, "2..3").dumped == lines_of(made[1:3])


def test_dump_has_null_for_a_payload_that_is_not_held(own: CommandLine) -> None:
    made = make_log(words(2))
    own("import", stdin=lines_of(made))
    own("drop", AUTHOR, 1)
    lines = [made[0].line(payload=False), made[1].line()]
    assert own("dump", AUTHOR).dumped == "".join(f"{each}\n" for each in lines).encode()
    shown = own("dump", AUTHOR).records[1]
    assert list(shown) == ["encoded", "author", "log_id", "seq", "received_at", "payload"]
    assert (shown["author"], shown["log_id"], shown["seq"]) == (AUTHOR, 0, 2)


def test_dump_of_a_large_payload_is_one_line(own: CommandLine) -> None:
    data = bytes(range(256)) * 3000
    own("append", stdin=data)
    record = json.loads(own("dump", own.author).out)
    assert bytes.fromhex(record["payload"]) == data


def test_dump_of_a_range_of_which_nothing_is_held(own: CommandLine) -> None:
    own("append", stdin=b"x")
    assert own("dump", own.author, "2..") == Result(0, b"", "")
    result = own("dump", own.author, "2..3")
    assert (result.status, result.out) == (1, b"")
    assert "no entry of this range is held" in result.err


def damage_of(name: str, path: Path) -> None:
    """What may happen to a payload file."""
    if name == "missing":
        path.unlink()
    elif name == "short":
        path.write_bytes(path.read_bytes()[:1000])
    else:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)


@pytest.mark.parametrize("damage", ["missing", "short", "changed"])
def test_dump_passes_over_a_damaged_payload_file(own: CommandLine, damage: str) -> None:
    large = [bytes([n]) * 300_000 for n in range(3)]
    for data in (large[0], large[1], b"small", large[2]):
        own("append", stdin=data)
    with Store.open(own.store) as store:
        key = LogKey.parse(own.author)
        with store.open_payload(key, 2) as reader:
            held = reader.read(0, 300_000)
    (path,) = (
        each for each in own.store.glob("payloads/??/*") if each.read_bytes() == held == large[1]
    )
    damage_of(damage, path)
    dumped = own("dump", own.author)
    assert dumped.status == 1
    assert dumped.err.count("\n") == 1
    assert f"{own.author}/0/2" in dumped.err
    payloads = [record["payload"] for record in dumped.records]
    assert payloads == [large[0].hex(), None, b"small".hex(), large[2].hex()]
    # What was rescued goes into another store, and the payload that it lacks is no damage there.
    other = own.folder / "other"
    own("init", "--store", other)
    assert own("import", "--store", other, stdin=dumped.out).status == 0
    assert own("verify", "--store", other).status == 0
    with Store.open(other) as store:
        info = store.log(key)
    assert info is not None
    assert (info.height, info.payloads, info.missing_payloads) == (4, 3, 1)


@pytest.mark.parametrize("column", ["payload", "encoded"])
def test_dump_passes_over_entries_whose_rows_are_damaged(own: CommandLine, column: str) -> None:
    made = make_log(words(600))
    own("import", stdin=lines_of(made))
    damaged = [2, 3, 300, 600]
    database = apsw.Connection(str(own.store / "store.sqlite3"))
    for seq in damaged:
        query = f"UPDATE entries SET {column} = CAST('x' AS BLOB) WHERE seq = ?"
        database.execute(query, (seq.to_bytes(8, "big"),))
    database.close()
    dumped = own("dump", AUTHOR)
    assert dumped.status == 1
    assert dumped.dumped == lines_of(each for each in made if each.seq not in damaged)
    assert [line.split(": ")[1].split(";")[0] for line in dumped.err.splitlines()] == [
        f"{AUTHOR}/0/{seq}" for seq in damaged
    ]
    part = own("dump", AUTHOR, "2..3")
    assert (part.status, part.out, part.err.count("\n")) == (1, b"", 2)
    assert own("dump", AUTHOR, "4..9").status == 0
