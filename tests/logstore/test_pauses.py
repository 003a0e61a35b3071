"""Pauses: remembered until their end, by the wall clock."""

import pytest

from logstore import Pauses, Store, System, is_in_force

AMY, BEN = b"a" * 32, b"b" * 32


class Clock(System):
    """A wall clock that a test sets."""

    now = 1_000_000

    def now_us(self) -> int:
        return self.now


def test_a_pause_is_of_all_or_of_a_peer_and_ends_by_being_taken_back() -> None:
    with Store.memory(system=Clock()) as store:
        assert not store.resume()
        assert store.pause()
        assert not store.pause()
        assert store.pause(AMY, until_us=5_000_000)
        assert store.pauses() == {None: None, AMY: 5_000_000}
        assert not store.resume(BEN)
        assert store.resume()
        assert store.pauses() == {AMY: 5_000_000}
        assert store.pause(AMY, until_us=6_000_000)
        assert store.resume(AMY)
        assert store.pauses() == {}


def test_one_of_all_goes_for_each_peer_and_for_who_has_proved_to_be_none() -> None:
    forever: Pauses = {None: None}
    soon: Pauses = {AMY: 10}
    assert all(is_in_force(forever, each, 1 << 60) for each in (None, AMY, BEN))
    assert [is_in_force(soon, each, 9) for each in (None, AMY, BEN)] == [False, True, False]
    assert not is_in_force(soon, AMY, 10)


def test_what_has_ended_goes_with_the_next_change() -> None:
    clock = Clock()
    with Store.memory(system=clock) as store:
        store.pause(AMY, until_us=2_000_000)
        clock.now = 2_000_000
        assert not is_in_force(store.pauses(), AMY, clock.now)
        assert not store.resume(AMY)
        store.pause(AMY, until_us=3_000_000)
        clock.now = 4_000_000
        store.pause(BEN)
        assert store.pauses() == {BEN: None}


@pytest.mark.parametrize("peer", [b"", b"a" * 31])
def test_what_is_no_id_is_refused(peer: bytes) -> None:
    with Store.memory() as store:
        for change in (store.pause, store.resume):
            with pytest.raises(ValueError, match="a peer's id has 32 bytes"):
                change(peer)
        assert store.pauses() == {}


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE memory SET value = x'00' WHERE name LIKE 'pause/%'", {AMY: None}),
        ("UPDATE memory SET name = 'pause/6' WHERE name LIKE 'pause/%'", {None: None}),
    ],
)
def test_a_damaged_one_has_no_end(damage: str, found: dict[bytes | None, int | None]) -> None:
    with Store.memory() as store:
        store.pause(AMY, until_us=2_000_000)
        with store._database.write() as transaction:
            transaction.db.execute(damage)
        assert store.pauses() == found
