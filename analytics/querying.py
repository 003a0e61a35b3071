"""SQL over exports without Spark: DuckDB in this process, for small questions.

Theory. A query sees four views, with the columns and by the rules of docs/spark.md: a test compares
them with what Spark's functions give for the same exports. What a query does not ask for is not
read: three of them are views for DuckDB too, and `forks` is made for queries that have the word.

What counts as exported is what the newest manifest says: its range ends at the bookmark, and every
file up to there has its final name. Beyond it may lie some of the files of a range that is being
written, or was interrupted. They are whole, but an answer in which half a range counts is the
answer for no moment at all.

A query is somebody's text, perhaps copied from elsewhere, and DuckDB can read and write any file,
load machine code and speak HTTP. Three bars, each for what the others let through.

- `allowed_directories` without external access are all that can be opened. But what may be read may
  be written too.
- So one statement alone is taken, a SELECT, in whose syntax tree is nothing but what reads: there
  are SELECTs of which a WITH is a COPY, and table functions that run a text. What DuckDB adds is
  refused until it is named here.
- The configuration is locked, so that no text takes any of this back. Variables of this process are
  tables for DuckDB unless it is told otherwise, and libraries are loaded from the network.

Not taken: a service that waits between queries, since DuckDB starts in a twentieth of a second; and
a pipeline beside Spark's, which would be two to keep equal.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .checks import ENCODED_DDL, ENCODED_INPUT, encode_rows
from .errors import BadQuery, QueryFailed
from .extras import require
from .forks import fork_rows, known_forks
from .inputs import check_files, check_named
from .layout import Part
from .manifest import load_latest
from .schema import COLUMNS, PARTITION, arrow_of_ddl, record_batch
from .states import read_states

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

_Found = TypeVar("_Found")

VIEWS: Final = ("entries", "entries_latest", "logs", "forks")
BATCH_ROWS: Final = 2048
"""Rows of a result in memory at a time: DuckDB makes them as they are taken."""
_INTERRUPTED_S: Final = 0.1
_SEE: Final = f"the views are {', '.join(VIEWS)}, their columns in docs/spark.md"
_DUCKDB_TYPES: Final = {
    "STRING": "VARCHAR",
    "BINARY": "BLOB",
    "TIMESTAMP": "TIMESTAMP WITH TIME ZONE",
}
_FAILURES: Final = ("IO Error", "Out of Memory Error", "INTERNAL Error", "FATAL Error")
"""How DuckDB begins to tell of what is no fault of the query's."""
_READING_NODES: Final = frozenset(
    ("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE")
)
_READING_FUNCTIONS: Final = frozenset(
    (
        "generate_series",
        "glob",
        "json_each",
        "json_tree",
        "parquet_file_metadata",
        "parquet_kv_metadata",
        "parquet_metadata",
        "parquet_scan",
        "parquet_schema",
        "range",
        "read_blob",
        "read_csv",
        "read_json",
        "read_parquet",
        "read_text",
        "repeat",
        "unnest",
    )
)
_TOLD_DDL: Final = "author STRING, log_id DECIMAL(20,0), state STRING"

# Of several rows of one entry the one with the largest arrival counts. The few entries that have
# several are looked for among hashes of the keys first: what the keys themselves would take in
# memory is a gigabyte for five million rows.
_LATEST: Final = """
CREATE VIEW entries_latest AS
WITH several AS (
    SELECT hash(node, author, log_id, seq, entry_hash) AS place
    FROM entries GROUP BY place HAVING count(*) > 1
), outdated AS (
    SELECT node, ingest_seq FROM entries
    WHERE hash(node, author, log_id, seq, entry_hash) IN (SELECT place FROM several)
    QUALIFY row_number() OVER (
        PARTITION BY node, author, log_id, seq, entry_hash ORDER BY ingest_seq DESC) > 1
)
SELECT * FROM entries ANTI JOIN outdated USING (node, ingest_seq)
"""

_VARU64_BYTES: Final = (
    "CREATE MACRO varu64_bytes(n) AS CASE WHEN n < 248 THEN 1 "
    + " ".join(f"WHEN n < {1 << 8 * count} THEN {1 + count}" for count in range(1, 8))
    + " ELSE 9 END"
)

# As `describe_logs` has it, whose words these are: the first arrival and the last state count.
_LOGS: Final = """
CREATE VIEW logs AS
WITH once AS (
    SELECT node, author, log_id, seq, entry_hash, is_end, payload_size,
        1 + 32 + 66 + 64
            + 66 * ((backlink IS NOT NULL)::INTEGER + (lipmaalink IS NOT NULL)::INTEGER)
            + varu64_bytes(log_id) + varu64_bytes(seq) + varu64_bytes(payload_size)
            AS encoded_bytes,
        min(received_at) AS received_at,
        arg_max(payload_state = 'present', ingest_seq) AS held
    FROM entries GROUP BY ALL
), ranked AS (
    SELECT *, encoded_bytes + CASE WHEN held THEN payload_size ELSE 0 END AS bytes,
        dense_rank() OVER in_order AS place,
        coalesce(lag(seq) OVER in_order = seq, false) AS twin
    FROM once WINDOW in_order AS (PARTITION BY node, author, log_id ORDER BY seq)
), grouped AS (
    SELECT node, author, log_id,
        coalesce(max(seq) FILTER (place = seq), 0) AS height,
        max(seq) AS newest,
        count(*) AS entries,
        count(*) FILTER (held) AS payloads,
        sum(bytes)::BIGINT AS bytes,
        min(received_at) AS first_arrival,
        max(received_at) AS last_arrival,
        bool_or(twin) AS forked,
        bool_or(is_end) AS ended
    FROM ranked GROUP BY node, author, log_id
), states AS (
    SELECT author, log_id, bool_or(state = 'forked') AS forked,
        bool_or(state = 'invalid') AS invalid, bool_or(state = 'ended') AS ended
    FROM told GROUP BY author, log_id
)
SELECT grouped.* EXCLUDE (forked, ended),
    CASE WHEN grouped.forked OR states.forked THEN 'forked' WHEN states.invalid THEN 'invalid'
        WHEN grouped.ended OR states.ended THEN 'ended' ELSE 'live' END AS state
FROM grouped LEFT JOIN states USING (author, log_id)
"""

# Two entries of one number, each right by itself, among all exports; and what nodes have proofs of.
_SEVERAL: Final = """
SELECT COLUMNS FROM entries SEMI JOIN (
    SELECT author, log_id, seq FROM entries
    GROUP BY ALL HAVING min(entry_hash) <> max(entry_hash)
) USING (author, log_id, seq)
""".replace("COLUMNS", ", ".join(ENCODED_INPUT))
_FORKS: Final = """
CREATE TABLE forks AS
WITH twins AS (
    SELECT * FROM sound
    WINDOW number AS (PARTITION BY author, log_id, seq)
    QUALIFY min(entry_hash) OVER number <> max(entry_hash) OVER number
), shown AS (SELECT * FROM twins UNION ALL SELECT * FROM known)
SELECT DISTINCT ON (author, log_id, seq, entry_hash) * FROM shown
ORDER BY author, log_id, seq, entry_hash, node
"""


class _Thread:
    """A thread for DuckDB, so that Ctrl-C is heard: what waits inside a library hears no signal."""

    def __init__(self, db: "DuckDBPyConnection") -> None:
        self._db = db
        self._pool = ThreadPoolExecutor(1, "sql")

    def run(self, work: Callable[[], _Found]) -> _Found:
        """What `work` returns or raises. KeyboardInterrupt ends it."""
        future = self._pool.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            # Whoever presses it twice ends no interpreter that DuckDB still runs in.
            while not future.done():
                self._db.interrupt()
                with suppress(KeyboardInterrupt):
                    wait([future], _INTERRUPTED_S)
            raise

    def end(self) -> None:
        """Returns once nothing runs any more."""
        self._pool.shutdown()


class Answer:
    """What a query has found: columns, and rows that DuckDB makes as they are taken."""

    def __init__(self, reader: "pa.RecordBatchReader", thread: _Thread) -> None:
        self._reader = reader
        self._thread = thread

    @property
    def names(self) -> list[str]:
        """Of the columns; there may be equal ones."""
        return list(self._reader.schema.names)

    @property
    def are_numbers(self) -> list[bool]:
        """Whether a column is one of numbers."""
        from pyarrow import types

        kinds = self._reader.schema.types
        tests = (types.is_integer, types.is_floating, types.is_decimal)
        return [any(test(kind) for test in tests) for kind in kinds]

    def batches(self) -> Iterator[list[tuple[object, ...]]]:
        """The rows, at most BATCH_ROWS at a time, with Python's values. Raises what
        `query_exports` does."""
        while True:
            with _query_errors():
                batch = self._thread.run(lambda: next(self._reader, None))
                if batch is None:
                    return
                columns = [column.to_pylist() for column in batch.columns]
            yield [*zip(*columns, strict=True)]


@contextmanager
def query_exports(roots: Sequence[Path | str], query: str) -> Iterator[Answer]:
    """The answer to one SELECT over exports on this machine, which is there inside of the block.

    Raises BadQuery for what is no SELECT, or names what is not there or not to be read; QueryFailed
    where it came to no end; MissingExtra without DuckDB or pyarrow; for the exports what
    `check_exports` does.
    """
    check_named(roots)
    require("duckdb", "pyarrow")
    files = [(Path(root).absolute(), exported_files(Path(root))) for root in roots]
    with tempfile.TemporaryDirectory(prefix="bamboo-sql-") as folder:
        db = _connect(folder)
        thread = _Thread(db)
        try:
            with _query_errors():
                _check_query(db, query)
            _make_views(db, files)
            if "forks" in query.casefold():
                thread.run(lambda: _make_forks(db, [root for root, _ in files]))
            _bar(db, [root for root, _ in files])
            with _query_errors():
                reader = thread.run(lambda: db.sql(query).to_arrow_reader(BATCH_ROWS))
            yield Answer(reader, thread)
        finally:
            # Of an answer of which nobody takes the rest, DuckDB would look for the next rows.
            db.interrupt()
            thread.end()
            db.close()


def exported_files(root: Path) -> list[Part]:
    """The files of which the newest manifest says that they are exported; without any, all.

    Raises what `check_exports` does.
    """
    # Before the files are listed: what is exported meanwhile counts next time.
    newest = load_latest(root)
    return [part for part in check_files(root) if newest is None or part.last <= newest.last]


def _connect(folder: str) -> "DuckDBPyConnection":
    import duckdb

    return duckdb.connect(
        ":memory:",
        config={
            "temp_directory": folder,
            "python_enable_replacements": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
        },
    )


def _check_query(db: "DuckDBPyConnection", query: str) -> None:
    """Raises BadQuery unless it is one SELECT that reads and does nothing else."""
    import duckdb

    statements = db.extract_statements(query)
    if [each.type for each in statements] != [duckdb.StatementType.SELECT]:
        raise BadQuery("the query is not one SELECT, and nothing else is taken", "sql", _SEE)
    [(text,)] = db.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    try:
        tree = json.loads(text)
    except RecursionError as error:
        raise BadQuery("the query is too deep", "sql", _SEE) from error
    if tree["error"]:
        raise BadQuery(tree["error_message"], "sql", _SEE)
    waiting = [tree]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            _check_node(each)
            waiting += each.values()


def _check_node(node: Mapping[str, Any]) -> None:
    kind = node.get("type")
    if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _READING_NODES:
        what = kind.removesuffix("_NODE").removesuffix("_QUERY")
        raise BadQuery(f"{what} inside a SELECT is not taken", "sql", _SEE)
    if kind == "TABLE_FUNCTION":
        name = node["function"]["function_name"].casefold()
        if name not in _READING_FUNCTIONS:
            raise BadQuery(f"the table function {name} is not taken", "sql", _SEE)


def _make_views(db: "DuckDBPyConnection", exports: Sequence[tuple[Path, list[Part]]]) -> None:
    told = [
        (each["author"], int(each["log_id"]), each["state"])
        for root, _ in exports
        for each in read_states(root)
    ]
    _make_table(db, "told", record_batch(told, _TOLD_DDL))
    db.execute(_entries(exports))
    for statement in (_LATEST, _VARU64_BYTES, _LOGS):
        db.execute(statement)


def _make_forks(db: "DuckDBPyConnection", roots: Sequence[Path]) -> None:
    """The table `forks`. It is no view, since what is no entry is no fork either: encodings and
    signatures are checked in Python, and DuckDB calls it from a query only where numpy is."""
    import pyarrow as pa

    rows = db.cursor().sql(_SEVERAL).to_arrow_reader(BATCH_ROWS)
    sound = pa.RecordBatchReader.from_batches(arrow_of_ddl(ENCODED_DDL), encode_rows(rows))
    _make_table(db, "sound", sound)
    _make_table(db, "known", record_batch(fork_rows(known_forks(roots)), ENCODED_DDL))
    db.execute(_FORKS)


def _make_table(db: "DuckDBPyConnection", name: str, rows: object) -> None:
    db.register("rows_here", rows)
    db.execute(f"CREATE TABLE {name} AS SELECT * FROM rows_here")  # noqa: S608 - ours
    db.unregister("rows_here")


def _entries(exports: Sequence[tuple[Path, list[Part]]]) -> str:
    """The view of all rows. Columns by name: a later version of the schema may have more."""
    names = ", ".join(name for name, _, _ in (*COLUMNS, PARTITION))
    read = [
        f"SELECT {names} FROM read_parquet([{_files(root, parts)}],"  # noqa: S608 - quoted
        " hive_partitioning = true, hive_types = {'date': DATE})"
        for root, parts in exports
        if parts
    ]
    typed = ", ".join(
        f"NULL::{_DUCKDB_TYPES.get(kind, kind)} AS {name}"
        for name, kind, _ in (*COLUMNS, PARTITION)
    )
    return "CREATE VIEW entries AS " + (" UNION ALL ".join(read) or f"SELECT {typed} WHERE false")


def _files(root: Path, parts: Sequence[Part]) -> str:
    return ", ".join(_literal(_plain(str(root / each.name))) for each in parts)


def _literal(path: str) -> str:
    """A path as DuckDB's text."""
    return "'" + path.replace("'", "''") + "'"


def _plain(path: str) -> str:
    """A path as a pattern in which nothing stands for another: what DuckDB takes files by."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def _bar(db: "DuckDBPyConnection", roots: Sequence[Path]) -> None:
    """From here on nothing but the exports can be opened, and all times are UTC."""
    # A pattern is looked at before what it stands for, and both have to be allowed.
    allowed = dict.fromkeys(
        each for root in roots for each in (f"{root}/", f"{_plain(str(root))}/")
    )
    named = ", ".join(map(_literal, allowed))
    db.execute("SET TimeZone = 'UTC'")
    db.execute(f"SET allowed_directories = [{named}]")
    db.execute("SET enable_external_access = false")
    db.execute("SET lock_configuration = true")


@contextmanager
def _query_errors() -> Iterator[None]:
    """Turns what DuckDB raises into one line. What is raised as rows are taken is Arrow's."""
    import duckdb
    import pyarrow as pa

    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError, ValueError) as error:
        what = " ".join(str(error).partition("\n\nLINE ")[0].split())
        if what.startswith(_FAILURES):
            raise QueryFailed(
                what, "sql", "look at memory, disk and files, or ask for less"
            ) from error
        raise BadQuery(what, "sql", _SEE) from error
