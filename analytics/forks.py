"""Forks that an export's `_states.jsonl` tells of.

A node that meets a second entry of a number keeps the proof and takes the log no further, so the
rows hardly ever show both entries. The proof is checked again here, by nobody's word.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from logstore import LogState
from wire import EntryError, LogKey, decode_entry, signature_is_valid

from .chains import KNOWN, RECORDS_DDL, Record
from .checks import ENCODED_DDL
from .manifest import load_latest
from .schema import local_frame
from .states import read_states

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BIGINT_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class KnownFork:
    """A fork that a node knows of."""

    author: str
    log_id: int
    seq: int | None
    """None where it is above 2^63 - 1, or not said."""
    node: str | None
    entries: tuple[bytes, ...]
    """Both encodings; empty unless they prove it."""
    detail: str


def known_forks(roots: Sequence[Path | str]) -> list[KnownFork]:
    """The forks that exports on this machine tell of, each once."""
    found: dict[tuple[str, int, int | None], KnownFork] = {}
    for root in roots:
        forked = [each for each in read_states(root) if each["state"] == LogState.FORKED]
        if not forked:
            continue
        manifest = load_latest(Path(root))
        for fields in forked:
            fork = _known(fields, None if manifest is None else manifest.node)
            key = (fork.author, fork.log_id, fork.seq)
            if key not in found or not found[key].entries:
                found[key] = fork
    return list(found.values())


def _known(fields: dict[str, Any], node: str | None) -> KnownFork:
    author, log_id, told = fields["author"], int(fields["log_id"]), fields["fork_seq"]
    seq = None if told is None else int(told)
    try:
        pair = tuple(bytes.fromhex(fields[name]) for name in ("fork_first", "fork_second"))
    except (TypeError, ValueError):
        pair = ()
    proven = _proves(pair, LogKey(bytes.fromhex(author), log_id), seq)
    detail = f"there are two entries of number {told}, as the node knows"
    if not proven:
        detail += ", but what it gives as proof is none"
    if seq is not None and seq > _BIGINT_MAX:
        seq = None
    return KnownFork(author, log_id, seq, node, pair if proven else (), detail)


def _proves(pair: tuple[bytes, ...], key: LogKey, seq: int | None) -> bool:
    """Whether two encodings are different entries of one number, signed by the log's author."""
    try:
        entries = [decode_entry(each) for each in pair]
    except EntryError:
        return False
    return (
        len(set(pair)) == 2
        and all((e.author, e.log_id, e.seq) == (key.author, key.log_id, seq) for e in entries)
        and all(map(signature_is_valid, pair))
    )


def fork_records(spark: "SparkSession", forks: Sequence[KnownFork]) -> "DataFrame":
    """A record for each, as if a piece of the rows had told of it."""
    rows = []
    for each in forks:
        record = Record(each.author, each.log_id, each.seq or 0, KNOWN, each.seq)
        rows.append(record._replace(detail=each.detail, node=each.node))
    return local_frame(spark, rows, RECORDS_DDL)


def fork_entries(spark: "SparkSession", forks: Sequence[KnownFork]) -> "DataFrame":
    """`fork_rows` for Spark."""
    return local_frame(spark, fork_rows(forks), ENCODED_DDL)


def fork_rows(forks: Sequence[KnownFork]) -> list[Sequence[object]]:
    """Both entries of each that is proven: the columns of `Audit.forks`."""
    return [
        (each.author, each.log_id, each.seq, each.node, blake2b(encoded).digest(), encoded)
        for each in forks
        for encoded in each.entries
    ]
