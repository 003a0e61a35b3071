"""Stores that earlier versions wrote are opened by this one: tests/logstore/fixtures."""

import shutil
from pathlib import Path

import pytest

from logstore import ALL, LogState, LogVerdict, PayloadState, Store, Subscription
from tests.logstore.authors import AuthorLog, signing_key
from tests.logstore.make_fixture import LARGE
from wire import LogKey, signature_is_valid, yamf_hash

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(params=["format-1", "format-2", "format-3", "format-4"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a store of each format."""
    path = tmp_path.joinpath(request.param, "store")
    shutil.copytree(FIXTURES / request.param, path)
    # Version control keeps no modes and no empty folders.
    (path / "author.key").chmod(0o600)
    return path


@pytest.mark.parametrize("readonly", [True, False])
def test_an_earlier_store_is_read_whole(kept: Path, readonly: bool) -> None:
    own = bytes(signing_key(1000).verify_key)
    log, forked, sparse = AuthorLog(1), AuthorLog(2), AuthorLog(3)
    with Store.open(kept, readonly=readonly) as store:
        assert store.author == own
        infos = {info.key: info for info in store.logs()}
        since_2 = {sparse.key: (1, 40, LogState.LIVE)} if sparse.key in infos else {}
        assert bool(since_2) == (kept.parent.name != "format-1")
        assert {key: (i.height, i.newest, i.state) for key, i in infos.items()} == {
            LogKey(own, 0): (10, 10, LogState.LIVE),
            LogKey(own, 2**64 - 1): (2, 2, LogState.ENDED),
            log.key: (9, 9, LogState.LIVE),
            forked.key: (2, 2, LogState.FORKED),
            **since_2,
        }
        read = store.read(LogKey(own, 0), 1, entries_max=100, bytes_max=1 << 20, with_payload=False)
        assert [entry.payload for entry in read] == [b"own %d" % n for n in range(1, 11)]
        assert all(signature_is_valid(entry.encoded) for entry in read)
        with store.open_payload(LogKey(own, 2**64 - 1), 1) as large:
            assert large.read(0, 1 << 20) == LARGE
        states = [
            e.payload_state
            for e in store.read(log.key, 1, entries_max=9, bytes_max=9999, with_payload=False)
        ]
        assert states[1:3] == [PayloadState.DELETED] * 2
        assert states[8] is PayloadState.PARTIAL
        sums = {k: (i.payload_bytes_held, i.payload_bytes_total) for k, i in infos.items()}
        assert sums == {
            LogKey(own, 0): (51, 51),
            LogKey(own, 2**64 - 1): (len(LARGE) + 4,) * 2,
            log.key: (54, 72 + len(LARGE) + 1),
            forked.key: (36, 36),
            **({sparse.key: (38, 38)} if since_2 else {}),
        }
        assert [fork.seq for fork in store.forks()] == [3]
        assert store.follows() == [ALL, log.key, forked.key.author]
        assert store.recall("name") == b"value"
        assert len(store.changes(0, 100)) == 23 + 4 * bool(since_2)
        assert store.missing_payloads(log.key, 4, limit=9) == [9]
        if since_2:
            assert store.runs(sparse.key, limit=9) == [(1, 1), (4, 4), (13, 13), (40, 40)]
            assert store.subscriptions()[log.key] == Subscription.parse("range:1..9")
            assert store.wants() == {log.key: [(3, 3)]}
        assert all(isinstance(found, LogVerdict) for found in store.verify())


def test_an_earlier_store_is_written_to(kept: Path) -> None:
    log = AuthorLog(1)
    log.add_all(range(1, 9))
    log.add(9, LARGE + b"?")
    with Store.open(kept) as store:
        store.confirm_identity()
        assert store.append([b"next"])[0].seq == 11
        store.put_entries(log.key, [log.add(10)], source="peer")
        wanted = (log.key, 9, len(LARGE) + 1, yamf_hash(LARGE + b"?"))
        with store.payload_sink(*wanted, source="other") as sink:
            assert sink.offset == 1000
            sink.write((LARGE + b"?")[1000:])
            store.complete_payload(log.key, 9, sink.finish())
        assert all(isinstance(found, LogVerdict) for found in store.verify())
