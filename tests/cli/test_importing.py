"""`import`: what is good is stored whatever its order, what is bad is named by line and reason."""

import json
import random

import pytest
from nacl.signing import SigningKey

from bamboo_cli import import_lines, importing
from logstore import PayloadState, Store
from tests.cli.harness import AUTHOR_KEY, CommandLine, Made, lines_of, make_log, shuffled, words
from wire import U64_MAX, LogKey, has_distinct_lipmaalink, lipmaa, lower_pool, sign_entry, yamf_hash

KEY = LogKey(bytes(AUTHOR_KEY.verify_key), 0)


def held(own: CommandLine, key: LogKey = KEY) -> list[tuple[int, bytes | None]]:
    with Store.open(own.store, readonly=True) as store:
        rows = store.read(key, 1, entries_max=10_000, bytes_max=1 << 30, with_payload=False)
        return [(row.seq, row.payload) for row in rows]


@pytest.fixture(params=[1, 3, 256])
def batch_lines(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    lines: int = request.param
    monkeypatch.setattr(importing, "BATCH_LINES", lines)
    return lines


@pytest.mark.parametrize("seed", range(4))
def test_lines_may_come_in_any_order(own: CommandLine, seed: int, batch_lines: int) -> None:
    made = make_log(words(30)) + make_log(words(9), log_id=2)
    result = own("import", stdin=lines_of(shuffled(made, seed)))
    assert (result.status, result.err) == (0, "")
    assert sorted(result.lines) == sorted(each.name for each in made)
    assert held(own) == [(seq, f"payload {seq}".encode()) for seq in range(1, 31)]
    assert own("verify").status == 0


def test_lines_in_order_are_stored_in_order(own: CommandLine, batch_lines: int) -> None:
    made = make_log(words(30))
    assert own("import", stdin=lines_of(made)).lines == [each.name for each in made]


def test_a_file_is_read_as_standard_input_is(own: CommandLine) -> None:
    made = make_log(words(3))
    path = own.file("lines", lines_of(made))
    assert own("import", path).lines == [each.name for each in made]
    missing = own("import", own.folder / "missing")
    assert (missing.status, missing.out) == (1, b"")
    assert missing.err.endswith("missing: No such file or directory\n")


def test_no_lf_at_the_end_and_blank_lines_are_fine(own: CommandLine) -> None:
    one, two = make_log(words(2))
    result = own("import", stdin=f"\n{one.line()}\r\n  \n{two.line()}".encode())
    assert (result.status, result.lines) == (0, [one.name, two.name])


def test_the_path_may_come_by_the_lipmaalink(own: CommandLine) -> None:
    made = make_log(words(13))
    path = [made[seq - 1] for seq in (13, 1, 4)]
    assert own("import", stdin=lines_of(path)).status == 0
    assert [seq for seq, _ in held(own)] == [1, 4, 13]


def test_the_path_may_be_in_the_store(own: CommandLine) -> None:
    made = make_log(words(4))
    own("import", stdin=lines_of(made[:2]))
    assert own("import", stdin=lines_of(made[2:])).lines == [each.name for each in made[2:]]


def test_an_entry_without_a_path_is_a_bad_line(own: CommandLine, batch_lines: int) -> None:
    made = make_log(words(9))
    result = own("import", stdin=lines_of([made[8], made[0], made[6], made[1]]))
    assert result.status == 1
    assert result.lines == [made[0].name, made[1].name]
    assert sorted(result.err.splitlines()) == [
        f"line 1: {made[8].name}: there is no path to entry 1, neither here nor in the input",
        f"line 3: {made[6].name}: there is no path to entry 1, neither here nor in the input",
    ]


def test_what_hangs_on_a_bad_line_is_bad_too(own: CommandLine) -> None:
    made = make_log(words(3))
    wrong = json.dumps({"encoded": made[1].encoded.hex(), "payload": "00"})
    result = own("import", stdin=f"{made[0].line()}\n{wrong}\n{made[2].line()}\n".encode())
    assert (result.status, result.lines) == (1, [made[0].name])
    assert [line.split(":")[0] for line in result.err.splitlines()] == ["line 2", "line 3"]


def test_the_good_lines_around_a_bad_one_are_kept(own: CommandLine, batch_lines: int) -> None:
    made = make_log(words(4))
    lines = [each.line() for each in made]
    bad = ["{", "\x00", '{"encoded": "0", "payload": null}', lines[3][:-20]]
    mixed = [lines[0], bad[0], bad[1], lines[1], bad[2], lines[2], bad[3]]
    result = own("import", stdin="\n".join(mixed).encode())
    assert (result.status, result.lines) == (1, [each.name for each in made[:3]])
    numbers = [line.split(":")[0] for line in result.err.splitlines()]
    assert numbers == ["line 2", "line 3", "line 5", "line 7"]


def test_a_wrong_link_is_a_bad_line(own: CommandLine) -> None:
    made = make_log(words(4))
    other = make_log([b"different", *words(4)[1:]])
    result = own("import", stdin=lines_of([made[0], other[1], made[1], made[2]]))
    assert (result.status, result.lines) == (1, [each.name for each in made[:3]])
    assert result.err == f"line 2: {made[1].name}: the backlink is not the hash of entry 1\n"


def test_an_entry_after_the_end_is_a_bad_line(own: CommandLine) -> None:
    ended, longer = make_log(words(2), ended=True), make_log(words(3))
    own("import", stdin=lines_of(ended[:1]))
    result = own("import", stdin=lines_of([ended[1], longer[2]]))
    assert (result.status, result.lines) == (1, [ended[1].name])
    assert "line 2" in result.err


def test_a_payload_of_the_right_hash_and_the_wrong_size_ends_the_log(own: CommandLine) -> None:
    encoded = sign_entry(
        AUTHOR_KEY,
        log_id=0,
        seq=1,
        is_end=False,
        lipmaalink=None,
        backlink=None,
        payload_bytes=6,
        payload_hash=yamf_hash(b"hello"),
    )
    result = own("import", stdin=Made(KEY, 1, encoded, b"hello").line().encode())
    assert (result.status, result.out) == (1, b"")
    assert "the log is invalid from here on" in result.err


def test_a_known_entry_is_no_error_and_not_stored_again(own: CommandLine) -> None:
    made = make_log(words(3))
    own("import", stdin=lines_of(made[:2]))
    result = own("import", "-v", stdin=lines_of([made[0], *made]))
    assert (result.status, result.lines) == (0, [made[2].name])
    assert result.err.splitlines()[-1] == "1 entry stored, 3 held already, 0 bad lines"


def test_a_payload_that_was_missing_or_deleted_is_added(own: CommandLine) -> None:
    one, two = make_log(words(2))
    own("import", stdin=f"{one.line(payload=False)}\n{two.line()}\n".encode())
    own("drop", str(KEY), 2)
    result = own("import", stdin=lines_of([one, two]))
    assert (result.status, result.lines) == (0, [one.name, two.name])
    assert held(own) == [(1, b"payload 1"), (2, b"payload 2")]


@pytest.mark.parametrize("in_one_go", [True, False])
def test_a_fork_is_a_bad_line_and_its_proof_is_kept(own: CommandLine, in_one_go: bool) -> None:
    made = make_log(words(4))
    other = make_log([*words(2), b"other", b"branch", b"more"])
    if in_one_go:
        result = own("import", stdin=lines_of([*made, *other[2:]]))
    else:
        assert own("import", stdin=lines_of(made)).status == 0
        result = own("import", stdin=lines_of(other[2:]))
    assert result.status == 1
    assert f"{made[2].name}: two different entries have this number" in result.err
    assert "the log is forked at entry 3, nothing after it is taken in" in result.err
    assert own("forks").lines == [made[2].name]
    again = own("import", stdin=lines_of(other[3:]))
    assert (again.status, again.out) == (1, b"")
    # One of them has a path by its lipmaalink, the other leads to the fork only.
    assert again.err.count("the log is forked at entry 3, nothing after it is taken in") == 2


def test_as_json_each_entry_stored_is_an_object(own: CommandLine) -> None:
    [made] = make_log(words(1))
    record = own("import", "--json", stdin=made.line().encode()).record
    entry = own("entry", str(KEY), 1, "--json").record
    assert record == {name: entry[name] for name in ("author", "log_id", "seq", "hash", "name")}


def test_an_entry_at_the_end_of_u64_is_no_endless_loop(own: CommandLine) -> None:
    seqs = sorted(lower_pool(U64_MAX))
    hashes: dict[int, bytes] = {}
    made: list[Made] = []
    for seq in seqs:
        encoded = sign_entry(
            AUTHOR_KEY,
            log_id=0,
            seq=seq,
            is_end=False,
            lipmaalink=hashes[lipmaa(seq)] if has_distinct_lipmaalink(seq) else None,
            backlink=None if seq == 1 else hashes.get(seq - 1, yamf_hash(b"not held")),
            payload_bytes=1,
            payload_hash=yamf_hash(b"x"),
        )
        hashes[seq] = yamf_hash(encoded)
        made.append(Made(KEY, seq, encoded, b"x"))
    result = own("import", stdin=lines_of(shuffled(made, 1)))
    assert (result.status, len(result.lines)) == (0, len(seqs))
    record = own("logs", str(KEY), "--json").record
    assert (record["height"], record["newest"]) == (1, str(U64_MAX))
    assert own("dump", str(KEY)).dumped == lines_of(made)
    assert own("cat", str(KEY)).out == b"x"
    assert own("cat", str(KEY), U64_MAX).out == b"x"
    assert own("entry", str(KEY), U64_MAX, "--json").record["seq"] == str(U64_MAX)
    assert own("verify").status == 0
    assert own("drop", str(KEY), "1..").text.startswith(f"{len(seqs)} payloads")


LARGE = random.Random(7).randbytes(300_000)


@pytest.fixture
def long_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_lines, "LINE_BYTES_MAX", 2000)


@pytest.mark.usefixtures("long_lines")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_lines_too_long_for_memory_are_stored_in_any_order(
    own: CommandLine, order: tuple[int, ...]
) -> None:
    made = make_log([b"small", LARGE, b"y" * 3000])
    result = own("import", stdin=lines_of([made[place] for place in order]))
    assert (result.status, result.err) == (0, "")
    assert sorted(result.lines) == [each.name for each in made]
    assert own("cat", str(KEY)).out == b"small" + LARGE + b"y" * 3000
    assert own("dump", str(KEY)).dumped == lines_of(made)
    assert own("verify").status == 0


@pytest.mark.usefixtures("long_lines")
def test_a_long_line_that_is_known_or_adds_its_payload(own: CommandLine) -> None:
    [made] = make_log([LARGE])
    own("import", stdin=made.line(payload=False).encode())
    assert own("import", stdin=made.line().encode()).lines == [made.name]
    assert own("import", stdin=made.line().encode()).out == b""
    assert own("cat", str(KEY)).out == LARGE


@pytest.mark.usefixtures("long_lines")
@pytest.mark.parametrize("path_is_there", [True, False])
def test_a_long_line_with_a_wrong_payload_leaves_nothing(
    own: CommandLine, path_is_there: bool
) -> None:
    one, two, three = make_log([b"1", LARGE, LARGE])
    wrong = bytes([LARGE[0] ^ 1]) + LARGE[1:]
    bad = [
        Made(KEY, 2, two.encoded, wrong).line(),
        Made(KEY, 2, two.encoded, LARGE[:-1]).line(),
        Made(KEY, 2, two.encoded, LARGE + b"!").line(),
    ]
    lines = [one.line(), *bad] if path_is_there else [*bad, one.line()]
    result = own("import", stdin="\n".join(lines).encode())
    assert (result.status, result.lines) == (1, [one.name])
    assert result.err.count("line ") == 3
    assert [path for path in (own.store / "payloads").rglob("*") if path.is_file()] == []
    assert own("import", stdin=lines_of([two, three])).status == 0


@pytest.mark.usefixtures("long_lines")
def test_a_long_line_that_the_log_refuses_leaves_no_file(own: CommandLine) -> None:
    made, other = make_log([b"1", b"2", b"3"]), make_log([b"x", LARGE])
    own("import", stdin=lines_of(made[:1]))
    result = own("import", stdin=other[1].line().encode())
    assert (result.status, result.out) == (1, b"")
    assert "line 1" in result.err
    assert "the backlink is not the hash of entry 1" in result.err
    assert [path for path in (own.store / "payloads").rglob("*") if path.is_file()] == []


@pytest.mark.usefixtures("long_lines")
def test_a_long_line_without_a_path_is_a_bad_line(own: CommandLine) -> None:
    made = make_log([b"1", LARGE])
    result = own("import", stdin=made[1].line().encode())
    assert (result.status, result.out) == (1, b"")
    assert "no path to entry 1" in result.err


@pytest.mark.usefixtures("long_lines")
def test_what_a_peer_sent_of_a_payload_before_is_not_trusted(own: CommandLine) -> None:
    [made] = make_log([LARGE])
    with Store.open(own.store) as store:
        with store.payload_sink(KEY, 1, len(LARGE), yamf_hash(LARGE), source="peer") as sink:
            sink.write(b"\x00" * 100_000)
        store.close()
    assert own("import", stdin=made.line().encode()).status == 0
    assert own("cat", str(KEY)).out == LARGE


@pytest.mark.usefixtures("long_lines")
def test_a_payload_that_another_process_is_receiving_is_a_bad_line(own: CommandLine) -> None:
    [made] = make_log([LARGE])
    with (
        Store.open(own.store) as store,
        store.payload_sink(KEY, 1, len(LARGE), yamf_hash(LARGE), source="peer") as sink,
    ):
        sink.write(b"\x00")
        result = own("import", stdin=made.line().encode())
        sink.discard()
    assert (result.status, result.out) == (1, b"")
    assert "line 1: another connection or process is receiving this payload" in result.err


def test_logs_of_many_authors_may_be_mixed(own: CommandLine) -> None:
    keys = [SigningKey(bytes([number]) * 32) for number in range(1, 6)]
    made = [each for key in keys for each in make_log(words(5), signing_key=key)]
    result = own("import", stdin=lines_of(shuffled(made, 3)))
    assert (result.status, len(result.lines)) == (0, 25)
    assert {record["height"] for record in own("logs", "--json").records} == {5}


def test_the_payload_states_after_an_import(own: CommandLine) -> None:
    one, two = make_log(words(2))
    own("import", stdin=f"{one.line()}\n{two.line(payload=False)}\n".encode())
    with Store.open(own.store, readonly=True) as store:
        states = [
            row.payload_state
            for row in store.read(KEY, 1, entries_max=9, bytes_max=9999, with_payload=False)
        ]
    assert states == [PayloadState.PRESENT, PayloadState.MISSING]
