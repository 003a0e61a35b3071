"""What others have of own logs, and entries signed elsewhere that contradict the rest."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import EntryRejected, LogClosed, NewEntry, OwnLogsReadOnly, Store
from wire import LogKey

from .authors import AuthorLog, signing_key


@pytest.fixture
def elsewhere() -> AuthorLog:
    """The same key on another machine."""
    log = AuthorLog(99)
    log.add_all(range(1, 8))
    return log


@pytest.fixture
def store(tmp_path: Path, elsewhere: AuthorLog) -> Iterator[Store]:
    with Store.create(tmp_path / "store", signing_key=signing_key(99)) as store:
        yield store


def test_what_came_from_others_is_shared_and_what_was_signed_here_is_not(
    store: Store, elsewhere: AuthorLog
) -> None:
    log = elsewhere.key
    assert store.shared() == {}
    store.put_entries(log, [elsewhere.entries[seq] for seq in (1, 2, 3)], source="peer")
    store.append([b"x"], log_id=log.log_id)
    assert store.shared() == {log: 3}
    store.note_shared({log: 4})
    store.note_shared({log: 2})
    assert store.shared() == {log: 4}


def test_an_entry_that_is_held_already_is_shared_once_somebody_brings_it(
    store: Store, tmp_path: Path
) -> None:
    with Store.create(tmp_path / "other", signing_key=signing_key(99), imported=True) as other:
        store.append([b"1", b"2"])
        log = LogKey(store.author, 0)
        held = store.read(log, 1, entries_max=2, bytes_max=1 << 20, with_payload=False)
        new = [NewEntry(each.seq, each.encoded, each.hash, None) for each in held]
        other.put_entries(log, new, source="peer")
        store.put_entries(log, new, source="other")
        assert store.shared() == other.shared() == {log: 2}


@pytest.mark.parametrize("brought", [4, 5])
def test_what_contradicts_entries_that_nobody_has_contests_the_log_and_forks_nothing(
    store: Store, elsewhere: AuthorLog, brought: int
) -> None:
    log = elsewhere.key
    store.put_entries(log, [elsewhere.entries[seq] for seq in (1, 2, 3)], source="peer")
    store.append([b"mine", b"mine too"], log_id=log.log_id)
    with pytest.raises(EntryRejected):
        store.put_entries(log, [elsewhere.entries[brought]], source="a friend")
    (contested,) = store.contested()
    assert (contested.key, contested.seq, contested.source) == (log, brought, "a friend")
    assert contested.encoded == elsewhere.entries[brought].encoded
    assert store.fork(log) is None
    for log_id in (log.log_id, log.log_id + 1):
        with pytest.raises(OwnLogsReadOnly, match=f"entry {brought} of log .* signed elsewhere"):
            store.append([b"more"], log_id=log_id)
    store.confirm_identity()
    assert store.own_logs_read_only is None
    assert store.append([b"more"], log_id=log.log_id + 1)
    with pytest.raises(LogClosed, match="use another log id"):
        store.append([b"more"], log_id=log.log_id)


def test_a_proof_of_which_one_half_was_never_given_away_is_none(
    store: Store, elsewhere: AuthorLog
) -> None:
    log = elsewhere.key
    store.put_entries(log, [elsewhere.entries[seq] for seq in (1, 2, 3)], source="peer")
    store.append([b"mine"], log_id=log.log_id)
    mine = store.entry(log, 4)
    assert mine is not None
    theirs = elsewhere.entries[4].encoded
    for pair in ((mine.encoded, theirs), (theirs, mine.encoded)):
        store.record_fork(log, *pair, source="a friend")
        assert store.fork(log) is None
        assert store.contested()[0].encoded == theirs


def test_what_others_have_is_forked_as_ever(store: Store, elsewhere: AuthorLog) -> None:
    log = elsewhere.key
    store.put_entries(log, [elsewhere.entries[seq] for seq in (1, 2, 3)], source="peer")
    store.append([b"mine"], log_id=log.log_id)
    store.note_shared({log: 4})
    store.put_entries(log, [elsewhere.entries[4]], source="peer")
    assert store.fork(log) is not None
    assert not store.contested()
