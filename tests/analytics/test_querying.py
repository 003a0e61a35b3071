"""`sql` answers from exports alone, with the rules of Spark's functions."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from analytics import Answer, BadQuery, audit, latest, logs, query_exports, read_export
from analytics.layout import TEMPORARY
from analytics.schema import NAMES, PARTITION
from tests.analytics.faulty import plant, write_rows
from tests.analytics.makers import Clock, export, files, filled_store, make_store, put
from tests.cli.harness import CommandLine
from tests.logstore.authors import AuthorLog
from wire import lower_pool

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A command line without a store: `sql` needs none."""
    return CommandLine.isolated(tmp_path, monkeypatch)


def asked(roots: list[Path], query: str) -> tuple[list[str], list[tuple[object, ...]]]:
    with query_exports(roots, query) as answer:
        return answer.names, [row for rows in answer.batches() for row in rows]


def eventful_exports(folder: Path) -> list[Path]:
    """Two nodes: payloads that come and go, gaps, ends, and forks of both kinds."""
    first, second = AuthorLog(1), AuthorLog(2, log_id=2**64 - 1)
    known, ended = AuthorLog(3), AuthorLog(4, log_id=300)
    other = AuthorLog(1)
    with make_store(folder / "sa", 91) as store:
        put(store, first, range(1, 20))
        store.put_entries(second.key, [second.make(1, b"late", held=False)], source="test")
        put(store, known, range(1, 6))
        store.put_entries(
            ended.key, [*ended.add_all(range(1, 4)), ended.add(4, b"", is_end=True)], source="test"
        )
        export(store, folder / "a")
        store.complete_payload(second.key, 1, b"late")
        store.drop(first.key, 2, 9)
        twin = known.make(3, b"twin").encoded
        store.record_fork(known.key, known.entries[3].encoded, twin)
        export(store, folder / "a")
    with make_store(folder / "sb", 92, Clock(Clock().now + 10**7)) as store:
        entries = other.add_all(range(1, 9))
        store.put_entries(other.key, entries[:6], source="test")
        sparse = AuthorLog(5)
        numbers = sorted({*lower_pool(29), 30})
        store.put_entries(sparse.key, sparse.add_all(numbers), source="test")
        export(store, folder / "b")
    with make_store(folder / "sc", 93) as store:
        parted = AuthorLog(1)
        parted.add_all(range(1, 3))
        another = parted.add(3, b"another history")
        history = [parted.entries[1], parted.entries[2], another]
        store.put_entries(parted.key, history, source="test")
        export(store, folder / "c")
    with make_store(folder / "sd", 94) as store:
        export(store, folder / "d")
    return [folder / name for name in "abcd"]


def comparable(value: object) -> object:
    match value:
        case bytearray():
            return bytes(value)
        case Decimal():
            return int(value)
        case _:
            return getattr(value, "timestamp", lambda: value)()


def rows_of(frame: DataFrame) -> Counter[tuple[object, ...]]:
    return Counter(tuple(map(comparable, row)) for row in frame.collect())


def test_views_say_what_sparks_functions_say(spark: SparkSession, tmp_path: Path) -> None:
    planted, _ = plant(entries_in_each=12, logs=10)
    write_rows(tmp_path / "planted", planted)
    states = set()
    for roots in (eventful_exports(tmp_path), [tmp_path / "planted"]):
        frame = read_export(spark, roots)
        found = audit(frame, roots)
        for view, wanted in (
            ("entries", frame),
            ("entries_latest", latest(frame)),
            ("logs", logs(frame)),
            ("forks", found.forks.drop("node")),
        ):
            names, rows = asked(roots, f"SELECT * FROM {view}")
            if view == "forks":
                assert names.pop(3) == "node"
                rows = [(*row[:3], *row[4:]) for row in rows]
                assert rows
            assert names == wanted.columns, view
            assert Counter(tuple(map(comparable, row)) for row in rows) == rows_of(wanted), view
        found.close()
        states |= {row[0] for row in asked(roots, "SELECT state FROM logs")[1]}
    assert states == {"forked", "ended", "live"}


def test_an_export_without_rows_has_views_with_all_columns(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    names, rows = asked([tmp_path / "out"], "SELECT * FROM entries")
    assert (names, rows) == ([*NAMES, PARTITION[0]], [])
    assert asked([tmp_path / "out"], "SELECT count(*) FROM logs, forks, entries_latest")[1] == [
        (0,)
    ]


def test_only_what_the_manifest_says_counts(tmp_path: Path) -> None:
    root = tmp_path / "out"
    with filled_store(tmp_path / "s", logs=1, entries=6) as store:
        export(store, root)
        store.append([b"more"])
        export(store, root)
    whole, more = files(root)
    half = root / Path(more).with_name(f".{Path(more).name}{TEMPORARY}")
    half.write_bytes((root / whole).read_bytes()[:100])
    question = "SELECT count(*) FROM entries"
    assert asked([root], question)[1] == [(7,)]
    for name in ("_latest.json", "00000002.json"):
        (root / "_manifests" / name).unlink()
    assert asked([root], question)[1] == [(6,)]


def test_a_name_of_a_directory_is_no_pattern(tmp_path: Path) -> None:
    root = tmp_path / "node's [ab] *lake? a=1"
    with filled_store(tmp_path / "s", logs=1) as store:
        export(store, root)
    # Which a pattern of that name would find.
    with filled_store(tmp_path / "s2", logs=2) as store:
        export(store, tmp_path / "node's a mylakes a=1")
    assert asked([root], "SELECT count(*) FROM entries_latest")[1] == [(10,)]


PERMISSION = "Permission Error"
SELECT_ONLY = "the query is not one SELECT"
NO_SUCH = "Catalog Error"


def hostile(folder: Path) -> dict[str, tuple[str, str]]:
    """Queries for what is not theirs, and what they are refused with."""
    lake, outside = folder / "out", folder / "secret.csv"
    copy = f"COPY (SELECT 1) TO '{lake}/made.csv'"
    quoted = copy.replace("'", "''")
    within = f"WITH x AS ({copy}) FROM x"
    with duckdb.connect() as db:
        [(text,)] = db.execute("SELECT json_serialize_sql(?)", [within]).fetchall()
    tree = text.replace("'", "''")
    return {
        "a file": (f"SELECT * FROM read_csv('{outside}')", PERMISSION),
        "passwords": ("SELECT * FROM read_csv('/etc/passwd')", PERMISSION),
        "a text": (f"SELECT content FROM read_text('{outside}')", PERMISSION),
        "a way up": (f"SELECT content FROM read_text('{lake}/../secret.csv')", PERMISSION),
        "a name that begins alike": (
            f"SELECT content FROM read_text('{lake}side/secret.csv')",
            PERMISSION,
        ),
        "a pattern": (f"SELECT * FROM glob('{folder}/*.csv')", PERMISSION),
        "a network": ("SELECT * FROM read_csv('https://localhost:9/a.csv')", PERMISSION),
        "a copy": (f"COPY (SELECT 1) TO '{folder}/made.csv'", SELECT_ONLY),
        "a copy into the lake": (copy, SELECT_ONLY),
        "an explained copy": (f"EXPLAIN ANALYZE {copy}", SELECT_ONLY),
        "all of it": (f"EXPORT DATABASE '{lake}/made'", SELECT_ONLY),
        "another database": (f"ATTACH '{lake}/made.db' AS made", SELECT_ONLY),
        "an extension": ("INSTALL httpfs", SELECT_ONLY),
        "machine code": (f"LOAD '{lake}/made.duckdb_extension'", SELECT_ONLY),
        "a setting": ("SET enable_external_access = true", SELECT_ONLY),
        "a pragma": ("PRAGMA enable_external_access = true", SELECT_ONLY),
        "a second statement": ("SELECT 1; SET lock_configuration = false", SELECT_ONLY),
        "a table": ("CREATE TABLE made AS SELECT 1", SELECT_ONLY),
        "a prepared statement": (f"PREPARE made AS {copy}", SELECT_ONLY),
        "a call": ("CALL enable_logging()", SELECT_ONLY),
        "a copy within": (within, "COPY inside a SELECT is not taken"),
        "a copy within parts": (f"{within} UNION ALL FROM x", "COPY inside a SELECT is not taken"),
        "a copy below": (f"FROM ({within})", "COPY inside a SELECT is not taken"),
        "a table that is written": (
            "WITH x AS (INSERT INTO told VALUES ('a', 1, 'b') RETURNING *) FROM x",
            "INSERT inside a SELECT is not taken",
        ),
        "a query in a text": (
            f"SELECT * FROM query('{quoted}')",
            "the table function query is not taken",
        ),
        "a query in a tree": (
            f"FROM system.main.\"JSON_execute_serialized_SQL\"('{tree}')",
            "the table function json_execute_serialized_sql is not taken",
        ),
        "a log": (
            f"FROM enable_logging(storage = 'file', storage_path = '{lake}/made')",
            "the table function enable_logging is not taken",
        ),
        "a variable of the program": ("SELECT * FROM roots", NO_SUCH),
        "a variable of the process": ("SELECT getenv('HOME')", NO_SUCH),
    }


@pytest.mark.parametrize("name", sorted(hostile(Path("x"))))
def test_a_query_reaches_nothing_else(cli: CommandLine, tmp_path: Path, name: str) -> None:
    with filled_store(tmp_path / "s", logs=1) as store:
        export(store, tmp_path / "out")
    (tmp_path / "outside").mkdir()
    for path in (tmp_path / "secret.csv", tmp_path / "outside/secret.csv"):
        path.write_text("a,b\n1,2\n")
    before = sorted(tmp_path.rglob("*"))
    query, words = hostile(tmp_path)[name]
    result = cli("sql", tmp_path / "out", query)
    assert (result.status, result.out, len(result.err.splitlines())) == (2, b"", 1)
    assert result.err.startswith(f"bamboo-peer: {words}")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT", "Parser Error"),
        ("", "not one SELECT"),
        ("SELECT colour FROM entries", "colour"),
        ("SELECT * FROM entry", "Did you mean"),
        ("SELECT seq + payload FROM entries", "Binder Error"),
        ("SELECT decode('\\xff'::BLOB)", "Conversion Error"),
        ("SELECT error('mine') FROM entries", "mine"),
    ],
)
def test_a_wrong_query_is_a_line_and_status_2(
    cli: CommandLine, tmp_path: Path, query: str, words: str
) -> None:
    with filled_store(tmp_path / "s", logs=1) as store:
        export(store, tmp_path / "out")
    result = cli("sql", tmp_path / "out", query)
    assert (result.status, len(result.err.splitlines())) == (2, 1)
    assert words in result.err
    assert "the views are entries, entries_latest, logs, forks" in result.err


def test_no_such_lake_is_a_line_and_status_1(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled_store(tmp_path / "s", logs=1) as store:
        export(store, tmp_path / "out")
    (tmp_path / "empty").mkdir()
    for name, words in (
        ("nowhere", "there is no export"),
        ("empty", "the directory holds no export"),
        ("s3://bucket/lake", "there is no export"),
    ):
        result = cli(
            "sql", tmp_path / "out", name if "://" in name else tmp_path / name, "FROM logs"
        )
        assert (result.status, len(result.err.splitlines())) == (1, 1)
        assert words in result.err
    [name] = files(tmp_path / "out")
    (tmp_path / "out" / name).unlink()
    result = cli("sql", tmp_path / "out", "FROM logs")
    assert (result.status, len(result.err.splitlines())) == (1, 1)
    assert "a file of the export is gone" in result.err
    monkeypatch.setitem(sys.modules, "duckdb", None)
    result = cli("sql", tmp_path / "out", "FROM logs")
    assert (result.status, len(result.err.splitlines())) == (1, 1)
    assert "pip install 'bamboo-peer[parquet]'" in result.err
    result = cli("sql", tmp_path / "out")
    assert (result.status, len(result.err.splitlines())) == (2, 1)


VALUES = """
SELECT 1 AS one, 9007199254740993 AS large, -9007199254740993 AS low, 1.5 AS exact,
    0.1::DOUBLE AS inexact, 'NaN'::DOUBLE AS nothing, true AS yes, NULL AS none,
    '\\xAB\\x01'::BLOB AS bytes, TIMESTAMPTZ '2026-01-31 12:00:00.5+02' AS moment,
    DATE '2026-01-31' AS day, [1, 2] AS list, {'a': '\\xFF'::BLOB} AS record, 'a"b,c' AS words,
    sum(seq) AS one FROM entries
"""


def test_values_are_written_for_pipes_programs_and_people(cli: CommandLine, tmp_path: Path) -> None:
    with filled_store(tmp_path / "s", logs=1) as store:
        export(store, tmp_path / "out")
    [heading, line] = cli("sql", tmp_path / "out", VALUES).lines
    assert heading == (
        "one,large,low,exact,inexact,nothing,yes,none,bytes,moment,day,list,record,words,one"
    )
    assert line == (
        "1,9007199254740993,-9007199254740993,1.5,0.1,nan,true,,ab01,2026-01-31T10:00:00.500000Z,"
        '2026-01-31,"[1, 2]","{""a"": ""ff""}","a""b,c",55'
    )
    record = cli("sql", tmp_path / "out", VALUES, "--json").record
    assert record == {
        "one": 1,
        "large": "9007199254740993",
        "low": "-9007199254740993",
        "exact": 1.5,
        "inexact": 0.1,
        "nothing": "nan",
        "yes": True,
        "none": None,
        "bytes": "ab01",
        "moment": "2026-01-31T10:00:00.500000Z",
        "day": "2026-01-31",
        "list": [1, 2],
        "record": {"a": "ff"},
        "words": 'a"b,c',
        "one_1": 55,
    }


def test_a_table_fits_the_terminal(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled_store(tmp_path / "s", logs=2) as store:
        export(store, tmp_path / "out")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    query = "SELECT author, seq, payload_hash, backlink FROM entries ORDER BY author, seq"
    result = cli("sql", tmp_path / "out", query, terminal=True)
    assert result.status == 0
    heading, first, *_ = result.lines
    assert len(result.lines) == 21
    assert max(map(len, result.lines)) <= 60
    assert heading.split() == ["author", "seq", "payload_hash", "backlink"]
    assert first.split()[0].endswith("…")
    assert first.split()[1:4:2] == ["1", "-"]
    ends = [re.match(r"\S+ +\S+", line) for line in result.lines[9:11]]
    assert len({found and found.end() for found in ends}) == 1
    nasty = "SELECT 'a' || chr(27) || '[2J' || chr(10) || 'b' AS words"
    assert cli("sql", tmp_path / "out", nasty, terminal=True).lines[1] == "a\\x1b[2J\\nb"
    none = "SELECT seq FROM entries WHERE false"
    assert cli("sql", tmp_path / "out", none, terminal=True).lines == ["seq"]


def test_rows_come_in_batches(cli: CommandLine, tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    with query_exports([tmp_path / "out"], "SELECT range FROM range(10_000)") as answer:
        assert isinstance(answer, Answer)
        sizes = [len(rows) for rows in answer.batches()]
    assert sum(sizes) == 10_000
    assert max(sizes) <= 2048
    # What goes wrong in the middle is a line too.
    late = "SELECT CASE WHEN range = 9000 THEN error('mine') ELSE range END FROM range(10_000)"
    with (
        pytest.raises(BadQuery, match="mine"),
        query_exports([tmp_path / "out"], late) as answer,
    ):
        assert sum(map(len, answer.batches())) < 10_000


def test_it_needs_neither_spark_nor_pandas(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s", logs=1) as store:
        export(store, tmp_path / "out")
        twin = AuthorLog(1)
        twin.add_all(range(1, 11))
        pair = (twin.entries[5].encoded, twin.make(5, b"twin").encoded)
        store.record_fork(twin.key, *pair)
        export(store, tmp_path / "out")
    program = (
        "import sys\n"
        "absent = {'pyspark', 'py4j', 'pandas', 'numpy', 'pytz', 'polars'}\n"
        "class Refuses:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in absent: raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Refuses())\n"
        "from bamboo_cli import main\n"
        "raise SystemExit(main(sys.argv[1:]))\n"
    )
    query = "SELECT received_at, encoded FROM entries JOIN forks USING (author, log_id, seq)"
    command: list[Any] = [sys.executable, "-c", program, "sql", tmp_path / "out", query, "--json"]
    environment = os.environ | {"PYTHONPATH": str(TOP), "HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    encoded = {json.loads(line)["encoded"] for line in done.stdout.splitlines()}
    assert encoded == {each.hex() for each in pair}


def test_a_long_query_ends_by_ctrl_c(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    (tmp_path / "tmp").mkdir()
    # Rows at first, more than DuckDB keeps back, and then a while without any.
    query = "SELECT range FROM range(1_000_000_000_000) WHERE range < 1_000_000"
    program = "from bamboo_cli import main; raise SystemExit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", program, "sql", str(tmp_path / "out"), query],
        env=os.environ | {"PYTHONPATH": str(TOP), "TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert len(process.stdout.read(100_000)) == 100_000
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (130, b"")
    assert list((tmp_path / "tmp").iterdir()) == []
