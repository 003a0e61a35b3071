"""Payload files that are made ahead: cheap for many, and no trace of those that were not used."""

import errno
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from logstore import LogVerdict, PayloadSink, QuotaLimits, Store, StoreFailed, StoreOverQuota
from logstore.files import BLANKS_MAX, PAYLOADS
from logstore.schema import FILE_STAGING
from logstore.system import PayloadHandle, System
from tests.logstore.authors import AuthorLog
from wire import yamf_hash

LARGE = 70_000
LOG = AuthorLog(3)


def begin(store: Store, seq: int, *, size: int = LARGE, giver: bytes | None = None) -> PayloadSink:
    """A sink for a payload of zeros."""
    return store.payload_sink(
        LOG.key, seq, size, yamf_hash(bytes(size)), source="peer", giver=giver
    )


def receive(store: Store, seq: int) -> None:
    with begin(store, seq) as sink:
        sink.write(bytes(LARGE))
        assert store.complete_payload(LOG.key, seq, sink.finish())


def blank(store: Store) -> int:
    """How many rows say that nobody has named what their file is for."""
    with store._database.read() as db:
        return int(db.execute("SELECT count(*) FROM files WHERE state = ?", (FILE_STAGING,)).get)


def files(store: Store) -> int:
    assert store.path is not None
    return sum(path.is_file() for path in (store.path / "payloads").rglob("*"))


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Store]:
    """A store that lacks all payloads of a log."""
    with Store.create(tmp_path / "replica") as store:
        entries = [LOG.add(seq, bytes(LARGE))._replace(payload=None) for seq in range(1, 101)]
        store.put_entries(LOG.key, entries, source="peer")
        yield store


def test_many_payloads_take_little_more_than_two_transactions_each(replica: Store) -> None:
    """One that names the file and one that completes it; `finish` has another one here."""
    for seq in range(1, 51):
        receive(replica, seq)
    before = replica._database._commits
    for seq in range(51, 101):
        receive(replica, seq)
    assert replica._database._commits - before <= 3 * 50 + 2 * (50 // BLANKS_MAX + 1)
    assert files(replica) == 100 + blank(replica)
    assert all(isinstance(found, LogVerdict) for found in replica.verify())


def test_one_payload_makes_one_file(replica: Store) -> None:
    receive(replica, 1)
    assert blank(replica) == 0
    assert files(replica) == 1


def test_nothing_is_left_when_the_store_is_closed(replica: Store) -> None:
    for seq in range(1, 5):
        receive(replica, seq)
    assert blank(replica)
    assert replica.path is not None
    replica.close()
    with Store.open(replica.path, readonly=True) as store:
        assert blank(store) == 0
        assert files(store) == 4


def test_another_process_leaves_them_alone_and_a_dead_one_s_go(replica: Store) -> None:
    for seq in range(1, 5):
        receive(replica, seq)
    here = blank(replica)
    assert here
    assert replica.path is not None
    with Store.open(replica.path) as other:
        assert blank(other) == here
        for handle in replica._files._blank.values():
            handle.close()  # as a process that is killed does
        other._files.tidy()
        assert blank(other) == 0
        assert files(other) == 4
    replica._files._blank.clear()
    receive(replica, 5)


def test_garbage_goes_however_many_others_have_made_ahead(
    replica: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logstore.files._COLLECT_ROWS", 2)
    assert replica.path is not None
    with Store.open(replica.path) as other:
        for seq in range(1, 5):
            receive(other, seq)
        assert blank(other) > 2
        receive(replica, 5)
        before = files(replica)
        replica.drop(LOG.key, 5, 5)
        assert files(replica) == before - 1


def test_what_there_is_no_room_for_takes_no_file(replica: Store) -> None:
    replica.set_quotas(QuotaLimits(author_bytes=1, free_bytes=0))
    for seq in range(1, 20):
        with pytest.raises(StoreOverQuota):
            begin(replica, seq, giver=b"giver")
    assert blank(replica) == files(replica) == 1


class FewHandles(System):
    """A process that may have few payload files open at a time."""

    def __init__(self, most: int) -> None:
        self.left = most

    def open_file(self, path: Path, *, create: bool = False, write: bool = True) -> PayloadHandle:
        if not create or PAYLOADS not in path.parts:
            return super().open_file(path, create=create, write=write)
        if not self.left:
            raise OSError(errno.EMFILE, "too many open files")
        self.left -= 1
        return Counted(super().open_file(path, create=create), self)


class Counted(PayloadHandle):
    """Gives its place back when it is closed."""

    __slots__ = ("_of",)

    def __init__(self, handle: PayloadHandle, of: FewHandles) -> None:
        super().__init__(handle._fd)
        self._of: FewHandles | None = of

    def close(self) -> None:
        super().close()
        if self._of is not None:
            self._of.left += 1
            self._of = None


def test_where_handles_run_short_there_is_still_one_for_each_payload(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store", system=FewHandles(4)) as store, ExitStack() as opened:
        for seq in range(1, 5):
            opened.enter_context(begin(store, seq))
        with pytest.raises(StoreFailed, match="too many files are open"):
            begin(store, 5)


def test_a_file_that_somebody_has_tidied_away_is_not_used(replica: Store) -> None:
    for seq in range(1, 5):
        receive(replica, seq)
    gone = list(replica._files._blank)
    assert gone
    for id_ in gone:
        replica._files.path_of(id_).unlink()
    receive(replica, 5)
    with replica.open_payload(LOG.key, 5) as reader:
        assert reader.read(0, LARGE) == bytes(LARGE)
    assert not set(gone) & set(replica._files._blank)
    replica._files.tidy()
    assert all(isinstance(found, LogVerdict) for found in replica.verify())


def test_nobody_has_the_file_of_somebody_else(replica: Store) -> None:
    taken = [replica._files.take_blank() for _ in range(3 * BLANKS_MAX)]
    assert len({id_ for id_, _ in taken}) == len(taken)
    for id_, handle in taken:
        replica._files.give_back(id_, handle)
    receive(replica, 1)
