"""Stores between which bundles are carried, and what is in them."""

import io
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import strategies as st

from logstore import (
    BundleImported,
    Follow,
    PayloadState,
    Store,
    export_bundle,
    import_bundle,
    write_have,
)
from logstore.bundle_records import BundleDecoder, Record
from tests.logstore.authors import AuthorLog, signing_key
from wire import LogKey

Content = dict[LogKey, list[tuple[int, bytes, bytes | None]]]
LARGE = 150_000


def payload_of(store: Store, key: LogKey, seq: int) -> bytes:
    with store.open_payload(key, seq) as reader:
        data = b""
        while piece := reader.read(len(data), 1 << 20):
            data += piece
        return data


def content(store: Store) -> Content:
    """All that is held and valid, with the payloads."""
    found: Content = {}
    for info in store.logs():
        rows = store.read(info.key, 1, entries_max=100_000, bytes_max=1 << 40, with_payload=False)
        if rows:
            found[info.key] = [
                (
                    row.seq,
                    row.encoded,
                    payload_of(store, info.key, row.seq)
                    if row.payload_state is PayloadState.PRESENT
                    else None,
                )
                for row in rows
            ]
    return found


def faults(store: Store) -> list[object]:
    return [each for each in store.verify() if not hasattr(each, "info")]


def exported(
    store: Store,
    targets: list[Follow] | None = None,
    *,
    have: bytes | None = None,
    payloads: bool = True,
) -> bytes:
    out = io.BytesIO()
    held = None if have is None else io.BytesIO(have)
    done = export_bundle(store, out, targets, have=held, payloads=payloads)
    assert done.bytes == len(out.getvalue())
    return out.getvalue()


def imported(store: Store, data: bytes) -> tuple[BundleImported, list[tuple[int, str]]]:
    named: list[tuple[int, str]] = []
    done = import_bundle(store, io.BytesIO(data), lambda offset, why: named.append((offset, why)))
    assert done.bad == len(named)
    return done, named


def had(store: Store) -> bytes:
    out = io.BytesIO()
    write_have(store, out)
    return out.getvalue()


def records(data: bytes) -> list[Record]:
    decoder, found = BundleDecoder(), []
    decoder.feed(data)
    while (record := decoder.next_record()) is not None:
        found.append(record)
    return found


def filled(store: Store, *logs: AuthorLog) -> Store:
    for log in logs:
        store.put_entries(log.key, list(log.entries.values()), source="test")
    return store


def log_of(number: int, payloads: list[bytes | None], log_id: int = 0) -> AuthorLog:
    log = AuthorLog(number, log_id)
    for seq, payload in enumerate(payloads, 1):
        log.add(seq, b"not held" if payload is None else payload, held=payload is not None)
    return log


@contextmanager
def two(tmp_path: Path | None = None) -> Iterator[tuple[Store, Store]]:
    with (
        Store.memory(signing_key=signing_key(99)) as source,
        Store.memory(signing_key=signing_key(98)) as target,
    ):
        yield source, target


SOME = [b"one", b"", None, bytes(LARGE), b"x" * 65_536, None, random.Random(1).randbytes(70_000)]


@st.composite
def logs_strategy(draw: st.DrawFn) -> list[AuthorLog]:
    sizes = st.sampled_from([None, 0, 1, 300, 65_536, 65_537, LARGE])
    made = []
    for number, log_id in draw(
        st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), max_size=4, unique=True)
    ):
        log = AuthorLog(number, log_id)
        for seq, size in enumerate(draw(st.lists(sizes, max_size=6)), 1):
            log.add(seq, bytes((seq,)) * (size or 0), held=size is not None)
        made.append(log)
    return made
