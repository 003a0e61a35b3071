"""What is written is hashed beside that. logstore/hashing.py."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import Store, StoreFull
from logstore.hashing import Hashing
from wire import PayloadHasher, yamf_hash

FEW = 1000


@pytest.fixture(scope="module", autouse=True)
def small_pieces() -> object:
    patch = pytest.MonkeyPatch()
    patch.setattr("logstore.hashing.BESIDE_BYTES_MIN", FEW)
    yield
    patch.undo()


def threads() -> int:
    """Those that hash: others of the process end when they like."""
    return sum(each.name == "hashing" for each in threading.enumerate())


@given(st.lists(st.integers(0, 3 * FEW), max_size=12), st.booleans())
def test_it_is_the_hash_of_all_pieces_in_order(sizes: list[int], views: bool) -> None:
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
    before = threads()
    with Hashing() as hashing:
        for piece in pieces:
            hashing.update(memoryview(piece) if views else piece)
        beside = threads() - before
    assert hashing.digest_yamf() == yamf_hash(b"".join(pieces))
    assert beside == any(size >= FEW for size in sizes), "small ones are not worth a thread"
    assert threads() == before


def test_where_no_thread_is_to_be_had_it_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with Hashing() as hashing:
        hashing.update(bytes(5 * FEW))
        hashing.update(b"and more")
    assert hashing.digest_yamf() == yamf_hash(bytes(5 * FEW) + b"and more")


def test_what_hashing_raises_is_raised_in_the_end_and_nobody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: PayloadHasher, piece: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(PayloadHasher, "update", fail)
    with Hashing() as hashing:
        for _ in range(10):
            hashing.update(bytes(FEW))
    with pytest.raises(MemoryError):
        hashing.digest_yamf()


def test_a_disk_that_fails_leaves_no_thread(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("logstore.system.PayloadHandle.write", fail)
        with pytest.raises(StoreFull):
            store.append([bytes(1 << 20)])
    assert threading.active_count() == before
    store.append([bytes(1 << 20)])
