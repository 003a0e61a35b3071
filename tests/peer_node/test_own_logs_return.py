"""What a store has lost, or never had, of its own author's logs comes back from any peer.

Whoever signs before that signs numbers twice, and forks the logs for ever.
"""

from pathlib import Path

import pytest

from logstore import ALL, OwnLogsReadOnly, PolicyKind, Store, Subscription
from wire import LogKey

from .support import synced


async def lost(folder: Path) -> tuple[Store, dict[int, int]]:
    """A friend's store with all logs of an author, whose own is gone but for a backup.

    Log 5 was begun after that. And the number of entries in each log.
    """
    friend = Store.create(folder / "friend")
    friend.follow(ALL, Subscription(PolicyKind.FULL))
    with Store.create(folder / "own") as own:
        own.append([b"a"] * 4)
        own.backup(folder / "backup")
        own.append([b"b"] * 3)
        own.append([b"c"] * 2, log_id=5)
        assert await synced(own, friend) is None
    return friend, {0: 7, 5: 2}


async def returns(store: Store, friend: Store, counts: dict[int, int]) -> None:
    with pytest.raises(OwnLogsReadOnly):
        store.append([b"too early"])
    assert await synced(friend, store) is None
    assert {info.key.log_id: info.height for info in store.logs(store.author)} == counts
    with pytest.raises(OwnLogsReadOnly):
        store.append([b"not confirmed yet"])
    store.confirm_identity()
    for log_id, count in counts.items():
        assert store.append([b"new"], log_id=log_id)[0].seq == count + 1
    assert await synced(friend, store) is None
    assert not list(friend.forks())
    for log_id, count in counts.items():
        info = friend.log(LogKey(store.author, log_id))
        assert info is not None
        assert info.height == count + 1


async def test_a_restored_store_gets_logs_that_it_has_never_held(tmp_path: Path) -> None:
    friend, counts = await lost(tmp_path)
    with friend, Store.open(tmp_path / "backup") as restored:
        await returns(restored, friend, counts)


async def test_a_store_with_an_imported_key_gets_all_logs_of_that_key(tmp_path: Path) -> None:
    """Nothing is followed, and what is said of all logs does not make one's own smaller."""
    friend, counts = await lost(tmp_path)
    with Store.open(tmp_path / "own", readonly=True) as own:
        key = own.signing_key()
    with friend, Store.create(tmp_path / "new", signing_key=key, imported=True) as new:
        new.follow(ALL, Subscription(PolicyKind.METADATA))
        await returns(new, friend, counts)
        assert {info.missing_payloads for info in new.logs()} == {0}


async def test_who_merely_holds_the_first_log_gives_it_back(tmp_path: Path) -> None:
    friend, _ = await lost(tmp_path)
    friend.unfollow(ALL)
    with Store.open(tmp_path / "own", readonly=True) as own:
        key = own.signing_key()
    with friend, Store.create(tmp_path / "new", signing_key=key, imported=True) as new:
        assert await synced(friend, new) is None
        assert [(info.key.log_id, info.height) for info in new.logs()] == [(0, 7)]
