"""However the rows of logs are cut into pieces, the pieces together find what one piece finds."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics import chains
from analytics.chains import FOUND, HELD, KNOWN, ROWS, Fault, Piece, Record, SoundRow, judge
from analytics.checks import check_piece, judge_logs
from analytics.rows import RowBuilder
from logstore import StoredEntry
from tests.analytics.faulty import NODE, PLANTED_KINDS, plant
from wire import has_distinct_lipmaalink, lipmaa

LOGS = ("aa", "bb")
SEQ_MAX = 15
"""Past 13, whose lipmaalink spans the longest way: to 4."""


def digest(seq: int, variant: int) -> bytes:
    """The hash of one of several entries of a number."""
    return bytes([seq, variant]) * 32


@st.composite
def sound_rows(draw: st.DrawFn) -> SoundRow:
    """One of many rows that may stand beside each other, mostly of one history."""
    seq = draw(st.integers(1, SEQ_MAX))
    variants = st.sampled_from([0, 0, 0, 0, 1])
    return SoundRow(
        author=draw(st.sampled_from(LOGS)),
        log_id=Decimal(1),
        seq=seq,
        is_end=draw(st.sampled_from([False] * 20 + [True])),
        entry_hash=digest(seq, draw(variants)),
        backlink=digest(seq - 1, draw(variants)) if seq > 1 else None,
        lipmaalink=digest(lipmaa(seq), draw(variants)) if has_distinct_lipmaalink(seq) else None,
        node=draw(st.sampled_from(["n1", "n2"])),
        ingest_seq=draw(st.integers(1, 1000)),
    )


def naive(rows: Sequence[SoundRow]) -> set[tuple[str | None, int | None, str | None]]:
    """(author, seq, kind) of every fault, rule by rule, from all rows at once."""
    found: set[tuple[str | None, int | None, str | None]] = set()
    for author in LOGS:
        mine = [row for row in rows if row.author == author]
        held: dict[int, set[bytes]] = {}
        for row in mine:
            held.setdefault(row.seq, set()).add(row.entry_hash)
        for row in mine:
            links = [("backlink", row.seq - 1, row.backlink)]
            links += [("lipmaalink", lipmaa(row.seq), row.lipmaalink)]
            for kind, target, link in links:
                if link is not None and target in held and link not in held[target]:
                    found.add((author, row.seq, kind))
            if any(other.is_end and other.seq < row.seq for other in mine):
                found.add((author, row.seq, "after_end"))
        found |= {(author, seq, "fork") for seq, hashes in held.items() if len(hashes) > 1}
        for seq in held:
            if seq > 1 and seq - 1 not in held:
                before = max((other for other in held if other < seq), default=0)
                found.add((author, before + 1, "gap"))
    return found


def in_order(told: Sequence[Record]) -> list[Record]:
    """As Spark's sort brings the records."""
    return sorted(told, key=lambda each: (each.author or "", each.log_id or 0, each.at, each.tag))


def faults_of(pieces: Sequence[Sequence[SoundRow]]) -> list[Fault]:
    """What is found in pieces whose rows come in these orders."""
    told: list[Record] = []
    for rows in pieces:
        piece = Piece()
        for row in rows:
            piece.add(row)
        piece.end_run()
        told += piece.records
    return sorted(judge(in_order(told)), key=repr)


@given(st.data())
def test_any_cutting_of_any_rows_finds_what_the_rules_say(data: st.DataObject) -> None:
    rows = data.draw(st.lists(sound_rows(), max_size=40))
    sizes = st.integers(1, 4)
    with (
        patch.object(chains, "RUN_ENTRIES_MAX", data.draw(sizes)),
        patch.object(chains, "_NAMEABLE_MAX", data.draw(sizes)),
    ):
        whole = faults_of([rows])
        assert {(each.author, each.seq, each.kind) for each in whole} == naive(rows)
        assert faults_of([[row] for row in rows]) == whole
        assert faults_of([sorted(rows, key=lambda row: (row.author, row.seq))]) == whole
        pieces: dict[int, list[SoundRow]] = {}
        for row in data.draw(st.permutations(rows)):
            pieces.setdefault(data.draw(st.integers(0, 3)), []).append(row)
        assert faults_of([*pieces.values()]) == whole


ROWS_PLANTED, PLANTED = plant(entries_in_each=20, logs=len(PLANTED_KINDS) + 1)


def batches(rows: Sequence[StoredEntry], size: int, node: str = NODE) -> Iterator[pa.RecordBatch]:
    """The rows as an export has them, some at a time."""
    builder = RowBuilder(node, payload_bytes_max=1 << 30)
    for at in range(0, len(rows), size):
        yield builder.batch(rows[at : at + size])


def found_in(pieces: Sequence[Iterator[pa.RecordBatch]]) -> tuple[list[Fault], int]:
    """The faults, and how many rows were counted, by the functions that Spark runs."""
    tables = [pa.Table.from_batches(check_piece(piece)) for piece in pieces]
    told = pa.concat_tables(tables).sort_by(
        [(name, "ascending") for name in ("author", "log_id", "at", "tag")]
    )
    records = [
        Fault(**row) for out in judge_logs(iter(told.to_batches())) for row in out.to_pylist()
    ]
    counts = [each.seq or 0 for each in records if each.kind == ROWS]
    return sorted((each for each in records if each.kind != ROWS), key=repr), sum(counts)


@given(st.data())
def test_any_cutting_finds_each_planted_fault_once(data: st.DataObject) -> None:
    whole, count = found_in([batches(ROWS_PLANTED, len(ROWS_PLANTED))])
    assert count == len(ROWS_PLANTED)
    found = [(each.kind, each.author, each.seq) for each in whole]
    assert sorted(found, key=repr) == sorted(PLANTED, key=repr)
    cuts = data.draw(st.sets(st.integers(1, len(ROWS_PLANTED) - 1), max_size=12))
    places = [0, *sorted(cuts), len(ROWS_PLANTED)]
    parts = [ROWS_PLANTED[a:b] for a, b in pairwise(places)]
    size = data.draw(st.integers(1, 50))
    assert found_in([batches(part, size) for part in parts]) == (whole, count)
    # One piece holds every third row, and so on: each link but a few crosses a cut.
    scattered = [ROWS_PLANTED[start::3] for start in range(3)]
    assert found_in([batches(part, size) for part in scattered]) == (whole, count)


def test_rows_that_two_nodes_export_are_no_faults_but_theirs() -> None:
    once, _ = found_in([batches(ROWS_PLANTED, 1000)])
    both, count = found_in(
        [batches(ROWS_PLANTED, 1000), batches(list(reversed(ROWS_PLANTED)), 7, "cd" * 32)]
    )
    assert count == 2 * len(ROWS_PLANTED)
    by_place = {(each.kind, each.author, each.seq) for each in both}
    assert by_place == {(each.kind, each.author, each.seq) for each in once}


def test_no_rows_are_counted_too() -> None:
    assert found_in([iter(())]) == ([], 0)


def test_a_log_in_order_is_told_of_in_runs_without_claims() -> None:
    rows = [
        SoundRow(
            "aa",
            1,
            seq,
            False,
            digest(seq % 200, seq // 200),
            digest((seq - 1) % 200, (seq - 1) // 200) if seq > 1 else None,
            digest(lipmaa(seq) % 200, lipmaa(seq) // 200) if has_distinct_lipmaalink(seq) else None,
            "n",
            seq,
        )
        for seq in range(1, 10_001)
    ]
    piece = Piece()
    most = 0
    for row in rows:
        piece.add(row)
        most = max(most, len(piece._nameable))
    piece.end_run()
    assert {each.tag for each in piece.records} == {HELD}
    assert len(piece.records) == 40
    assert most < 30
    # Cut in the middle, only links across the cut are claims.
    behind = Piece()
    for row in rows[5_000:]:
        behind.add(row)
    behind.end_run()
    crossing = [row for row in rows[5_000:] if lipmaa(row.seq) <= 5_000 and row.lipmaalink]
    assert sum(each.tag != HELD for each in behind.records) == len(crossing) + 1
    assert len(crossing) < 10


def test_what_a_node_tells_of_a_fork_counts_once_and_makes_no_gap() -> None:
    def known(seq: int) -> Record:
        return Record("aa", 1, seq, KNOWN, seq or None, detail="told", node="n")

    [told] = judge([known(3)])
    assert told == Fault("aa", 1, 3, "fork", "told", "n", None)
    [nowhere] = judge([known(0)])
    assert nowhere.seq is None
    twins = [SoundRow("aa", 1, 1, False, digest(1, n), None, None, "n", n) for n in range(2)]
    piece = Piece()
    for row in twins:
        piece.add(row)
    piece.end_run()
    [shown] = judge(in_order([*piece.records, known(1)]))
    assert (shown.kind, shown.seq, shown.ingest_seq) == ("fork", 1, 1)


def test_a_fault_that_needs_no_judging_passes() -> None:
    told = Record("aa", 1, 0, FOUND, 7, "signature", "wrong", "n", 3)
    assert list(judge([told])) == [Fault("aa", 1, 7, "signature", "wrong", "n", 3)]


def test_records_out_of_order_are_a_bug() -> None:
    held = Record("aa", 1, 2, HELD, node="n", hashes=digest(2, 0), ingests=bytes(8), is_end=False)
    with pytest.raises(AssertionError, match="not in order"):
        list(judge([held, held._replace(at=1)]))


def test_a_row_without_an_arrival_number_is_checked_like_others() -> None:
    log = [row for row in ROWS_PLANTED if row.key == ROWS_PLANTED[0].key]
    [batch] = batches(log, len(log))
    at = batch.schema.get_field_index("ingest_seq")
    without = batch.set_column(at, "ingest_seq", pa.nulls(len(log), pa.int64()))
    found, count = found_in([iter([without])])
    assert count == len(log)
    assert [(each.kind, each.ingest_seq) for each in found] == [("signature", 0)]
