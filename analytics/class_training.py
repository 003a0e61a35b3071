"""What is analysed so that Java has loaded the classes of an analysis: `prepare_classes` runs it.

    python -m analytics.class_training FOLDER ARCHIVE

Two nodes' exports, made in FOLDER, with all that an analysis has a part for: an entry that both
have, a fork, payloads that are JSON and that are none.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from logstore import NewEntry, Store
from wire import LogKey, sign_entry, yamf_hash

from .class_archive import writing_settings
from .export import Exporter
from .java import end_java
from .session import start_spark
from .stages import analyze

_PAYLOADS = [b'{"text": "a", "number": 1}', b"no JSON"]
_SCHEMA = "text STRING, number BIGINT"


def make_exports(folder: Path) -> list[Path]:
    """Exports of two nodes. Raises StoreError, AnalyticsError."""
    roots = [folder / "lake-a", folder / "lake-b"]
    with Store.create(folder / "a") as first, Store.create(folder / "b") as second:
        first.append(_PAYLOADS)
        first.append(_PAYLOADS, log_id=1)
        # Of log 0 what the first node has, of log 1 something else: a fork.
        for log_id, payload in enumerate(_PAYLOADS):
            _put_first(second, first, log_id, payload)
        for store, root in zip((first, second), roots, strict=True):
            Exporter(store, root).run()
    return roots


def _put_first(store: Store, author: Store, log_id: int, payload: bytes) -> None:
    """Stores a first entry of another store's author, signed for it."""
    key = author.signing_key()
    encoded = sign_entry(
        key,
        log_id=log_id,
        seq=1,
        is_end=False,
        lipmaalink=None,
        backlink=None,
        payload_bytes=len(payload),
        payload_hash=yamf_hash(payload),
    )
    entry = NewEntry(1, encoded, yamf_hash(encoded), payload)
    store.put_entries(LogKey(bytes(key.verify_key), log_id), [entry], source="classes")


def main(argv: Sequence[str]) -> int:
    """Returns the exit status, which is Java's own."""
    folder, archive = map(Path, argv)
    roots = make_exports(folder)
    with start_spark("local[2]", "bamboo-peer classes", writing_settings(archive)) as spark:
        for _ in analyze(spark, roots, folder / "results", payload_schema=_SCHEMA):
            pass
        context = spark.sparkContext
    return end_java(context)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
