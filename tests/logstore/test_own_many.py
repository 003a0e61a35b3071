"""Several own logs are appended to at once: all of it, or nothing."""

from pathlib import Path

import pytest

from logstore import Appended, LogClosed, LogMoved, LogVerdict, OwnLogsReadOnly, Store
from logstore.witness import Noted
from wire import LogKey


def held(store: Store) -> dict[int, list[bytes | None]]:
    """The payloads of each own log."""
    return {
        info.key.log_id: [
            entry.payload
            for entry in store.read(
                info.key, 1, entries_max=1_000, bytes_max=1 << 30, with_payload=False
            )
        ]
        for info in store.logs(store.author)
    }


def test_each_log_gets_its_payloads_in_order(store: Store) -> None:
    store.append([b"before"], log_id=2)
    appended = store.append_many([(2, [b"a", b"b"]), (9, [b"c"]), (2, [b"d"])])
    assert [[(each.key.log_id, each.seq) for each in batch] for batch in appended] == [
        [(2, 2), (2, 3)],
        [(9, 1)],
        [(2, 4)],
    ]
    assert held(store) == {2: [b"before", b"a", b"b", b"d"], 9: [b"c"]}
    verdicts = list(store.verify())
    assert all(isinstance(each, LogVerdict) and not each.faults for each in verdicts)
    assert store.append([b"after"], log_id=9) == [
        Appended(LogKey(store.author, 9), 2, store.hashes(LogKey(store.author, 9), [2])[2])
    ]
    assert store.own_logs_read_only is None
    assert store.own_entries_lost == 0


def test_nothing_is_appended_if_one_log_cannot_be(store: Store) -> None:
    store.append([b"last"], log_id=3, end_of_log=True)
    before, position = held(store), store.position()
    with pytest.raises(LogClosed, match="/3") as failed:
        store.append_many([(1, [b"a"]), (3, [b"b"]), (4, [b"c"])])
    assert failed.value.log == LogKey(store.author, 3)
    assert (held(store), store.position()) == (before, position)
    store.append_many([(1, [b"a"])])
    assert held(store)[1] == [b"a"]


def test_a_log_ends_with_its_last_batch(store: Store) -> None:
    store.append_many([(1, [b"a"]), (2, [b"b"]), (1, [b"c", b"d"])], ending=[1])
    infos = {info.key.log_id: info for info in store.logs(store.author)}
    assert (infos[1].end_seq, infos[2].end_seq) == (3, None)
    with pytest.raises(LogClosed):
        store.append_many([(2, [b"e"]), (1, [b"f"])], ending=[2])
    assert held(store)[2] == [b"b"]
    with pytest.raises(ValueError, match="nothing to append to log 7, which is to end"):
        store.append_many([(2, [b"e"])], ending=[7])


def test_a_copied_store_is_not_appended_to(store: Store, tmp_path: Path) -> None:
    store.append([b"x"])
    store.backup(tmp_path / "copy")
    with Store.open(tmp_path / "copy") as copy:
        with pytest.raises(OwnLogsReadOnly, match="read-only"):
            copy.append_many([(0, [b"y"])])
        assert held(copy) == {0: [b"x"]}


def test_nothing_to_append_is_an_error(store: Store) -> None:
    with pytest.raises(ValueError, match="nothing to append"):
        store.append_many([])
    with pytest.raises(ValueError, match="log 7"):
        store.append_many([(1, [b"x"]), (7, [])])
    with pytest.raises(TypeError, match="list of payloads"):
        store.append_many([(1, b"x")])  # type: ignore[list-item]
    assert held(store) == {}


def test_the_witness_reserves_and_notes_all_of_it_before_anybody_may_see_it(store: Store) -> None:
    store.append_many([(1, [b"x"] * 800), (2, [b"y"] * 800)])
    assert store._identity is not None
    noted = store._identity.witness.read()
    assert isinstance(noted, Noted)
    assert noted.signed == 1_600 <= noted.reserved
    assert noted.newest is not None
    assert (noted.newest.log_id, noted.newest.seq) == (2, 800)


def test_an_append_that_is_one_more_than_was_reserved_reserves_anew(store: Store) -> None:
    """Else a power cut takes back numbers that others may have, and they are signed again."""
    store.append_many([(1, [b"x"])])
    assert store._identity is not None
    noted = store._identity.witness.read()
    assert isinstance(noted, Noted)
    left = noted.reserved - noted.signed
    store.append_many([(1, [b"x"] * (left - 1)), (2, [b"y"]), (3, [b"z"])])
    noted = store._identity.witness.read()
    assert isinstance(noted, Noted)
    assert noted.signed == left + 2 <= noted.reserved


def test_a_log_that_others_have_appended_to_stops_all_of_it(store: Store) -> None:
    store.append_many([(1, [b"a"]), (2, [b"b"])], expected_seqs=[1, None])
    before = held(store)
    with pytest.raises(LogMoved, match="/2"):
        store.append_many([(1, [b"c"]), (2, [b"d"])], expected_seqs=[2, 1])
    with pytest.raises(ValueError, match="expected_seqs"):
        store.append_many([(1, [b"c"])], expected_seqs=[1, 2])
    assert held(store) == before


def test_the_next_payload_that_is_held_is_found(store: Store) -> None:
    key = store.append([b"1", b"2", b"3", b"x" * 100_000, b"5"])[0].key
    store.drop(key, 2, 3)
    assert [store.next_payload(key, seq) for seq in (0, 1, 2, 3, 4, 5, 6)] == [
        *(1, 1, 4, 4, 4, 5),
        None,
    ]
    assert store.next_payload(LogKey(bytes(32), 0), 1) is None
