"""Commands on a replica that holds some entries of a log, and payloads of some of these."""

import pytest

from logstore import Store
from tests.cli.harness import CommandLine, lines_of, make_log, words
from wire import LogKey, lower_pool

HELD = sorted({*lower_pool(40), *lower_pool(31)})
WITHOUT_PAYLOAD = {4, 31}


@pytest.fixture
def log(own: CommandLine) -> str:
    made = make_log(words(40))
    own("import", stdin=lines_of([made[seq - 1] for seq in reversed(HELD)]))
    key = str(made[0].key)
    with Store.open(own.store) as store:
        for seq in WITHOUT_PAYLOAD:
            store.drop(made[0].key, seq, seq)
    return key


def test_entries_are_imported_and_listed_with_their_gaps(own: CommandLine, log: str) -> None:
    assert HELD == [1, 4, 13, 26, 30, 31, 40]
    record = own("logs", log, "--json").record
    assert (record["height"], record["newest"], record["entries"]) == (1, 40, 7)


def test_cat_stops_at_the_first_entry_or_payload_that_is_not_held(
    own: CommandLine, log: str
) -> None:
    for span, printed, due, why in (
        ("..", words(40)[0], 2, "this entry is not held"),
        ("30..", words(40)[29], 31, "its payload was deleted here"),
        ("13..14", words(40)[12], 14, "this entry is not held"),
        ("2", b"", 2, "this entry is not held"),
    ):
        result = own("cat", log, span)
        assert (result.status, result.out) == (1, printed)
        assert f"{log}/{due}: {why}" in result.err
    assert own("cat", log, "40..").out == words(40)[39]


def test_what_is_dumped_is_imported_elsewhere(own: CommandLine, log: str) -> None:
    dumped = own("dump", log)
    assert dumped.status == 0
    assert len(dumped.lines) == len(HELD)
    own("init", "--store", own.folder / "other")
    result = own("import", "--store", own.folder / "other", stdin=dumped.out)
    assert (result.status, result.lines) == (0, [f"{log}/{seq}" for seq in HELD])
    with Store.open(own.folder / "other") as store:
        assert store.runs(LogKey.parse(log), limit=9) == [
            (1, 1),
            (4, 4),
            (13, 13),
            (26, 26),
            (30, 31),
            (40, 40),
        ]


def test_gaps_are_no_faults(own: CommandLine, log: str) -> None:
    result = own("verify")
    assert (result.status, result.err) == (0, "")


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        (None, 9),
        ((), 9),
        (("--policy", "metadata"), 0),
        (("--policy", "sparse"), len(lower_pool(9))),
        (("--policy", "latest:2"), 2),
        (("--policy", "range:3..5"), 3),
        (("--min-payload", "3"), 7),
        (("--policy", "range:1..5", "--max-payload", "3"), 3),
    ],
)
def test_only_payloads_that_are_wanted_are_missing(
    own: CommandLine, flags: tuple[str, ...] | None, missing: int
) -> None:
    made = make_log([bytes(seq) for seq in range(1, 10)])
    own("import", stdin="".join(each.line(payload=False) + "\n" for each in made).encode())
    if flags is not None:
        own("follow", str(made[0].key), *flags)
    assert own("logs", str(made[0].key), "--json").record["missing_payloads"] == missing


@pytest.mark.parametrize(
    ("policy", "incomplete", "said"),
    [
        (None, 0, None),
        ("full", 1, "7 entries up to 40, 33 entries missing"),
        ("sparse", 0, None),
        ("latest:2", 1, "7 entries up to 40, 1 entry missing"),
        ("range:26..31", 1, "7 entries up to 40, 3 entries missing"),
    ],
)
def test_status_misses_only_what_is_wanted(
    own: CommandLine, log: str, policy: str | None, incomplete: int, said: str | None
) -> None:
    if policy is not None:
        own("follow", log, "--policy", policy)
    lines = own("status").lines
    assert any(f"; {incomplete} with something missing" in line for line in lines)
    assert [line for line in lines if log in line] == ([f"  {log}: {said}"] if said else [])


def test_status_lists_what_is_fetched(own: CommandLine, log: str) -> None:
    with Store.open(own.store) as store:
        store.want(LogKey.parse(log), 3, 5)
    line = f"  {log}: fetching 3..5, 1 of 3 entries held, 0 with payloads"
    assert line in own("status").lines
    assert line in own("status", log).lines
    [fetching] = own("status", "--json").record["fetching"]
    assert (fetching["first"], fetching["last"]) == (3, 5)
    assert (fetching["held_entries"], fetching["held_payloads"]) == (1, 0)
    own("drop", log, "4")
    assert own("status", "--json").record["fetching"] == []
