"""The table of peers: what is decided, what was seen, and whom that lets in."""

from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from logstore import (
    ALL,
    KnownPeer,
    NameTaken,
    NoSuchPeer,
    PeerRule,
    PeerState,
    RuleChange,
    Sighting,
    Store,
    StoreReadOnly,
    WriteScope,
    read_scope,
    written_scope,
)
from logstore.peers import WAITING_MAX, WAITING_PER_PLACE_MAX
from wire import LogKey

BEN, EVE = bytes([2]) * 32, bytes([3]) * 32
LOG = LogKey(BEN, 7)


def seen(at: int, place: str = "192.0.2.1", count: int = 1) -> Sighting:
    return Sighting(count, at, at, f"{place}:40000", place)


def state_of(store: Store, peer_id: bytes) -> PeerState | None:
    found = [each.state for each in store.peers.known() if each.peer_id == peer_id]
    return found[0] if found else None


def test_nobody_is_known_at_first() -> None:
    with Store.memory() as store:
        assert store.peers.known() == []
        assert store.peers.rules() == {}


def test_who_is_allowed_has_the_defaults() -> None:
    with Store.memory() as store:
        rule = store.peers.allow(BEN)
        assert rule == PeerRule(allowed=True)
        assert rule.read == frozenset({ALL})
        assert (rule.write, rule.connections, rule.address) == (WriteScope.FOLLOWED, 4, None)
        assert store.peers.rules() == {BEN: rule}
        assert state_of(store, BEN) is PeerState.ALLOWED


def test_allowing_again_changes_what_is_named_and_nothing_else() -> None:
    with Store.memory() as store:
        store.peers.allow(BEN, RuleChange(name="ben", read=frozenset({LOG}), rate_in=1000))
        rule = store.peers.allow(BEN, RuleChange(write=WriteScope.OWN, address="host:1"))
        assert rule == PeerRule(
            allowed=True,
            read=frozenset({LOG}),
            write=WriteScope.OWN,
            rate_in=1000,
            address="host:1",
        )
        # What takes a limit or an address away is said as such.
        rule = store.peers.allow(BEN, RuleChange(rate_in=0, address=""))
        assert (rule.rate_in, rule.address) == (None, None)
        assert store.names() == {"ben": BEN}


def test_who_was_blocked_is_let_in_again_with_the_defaults() -> None:
    with Store.memory() as store:
        store.peers.allow(BEN, RuleChange(read=frozenset({LOG}), rate_out=5))
        assert store.peers.block(BEN)
        assert not store.peers.block(BEN)
        assert state_of(store, BEN) is PeerState.BLOCKED
        assert store.peers.allow(BEN) == PeerRule(allowed=True)


def test_removing_forgets_the_name_too() -> None:
    with Store.memory() as store:
        store.peers.allow(BEN, RuleChange(name="ben"))
        store.peers.remove(BEN)
        assert store.peers.known() == []
        assert store.names() == {}
        with pytest.raises(NoSuchPeer):
            store.peers.remove(BEN)
        store.peers.allow(EVE, RuleChange(name="ben"))


def test_a_name_is_given_once() -> None:
    with Store.memory() as store:
        store.peers.allow(BEN, RuleChange(name="ben"))
        with pytest.raises(NameTaken, match="ben is taken"):
            store.peers.allow(EVE, RuleChange(name="ben"))
        # Nothing of what was asked for is done.
        assert EVE not in store.peers.rules()
        assert store.peers.rename(BEN, "benjamin")
        assert not store.peers.rename(BEN, "benjamin")
        assert store.names() == {"benjamin": BEN}
        with pytest.raises(NoSuchPeer):
            store.peers.rename(EVE, "eve")


@pytest.mark.parametrize("name", ["", "-ben", "all", "1234", "deadbeef", "b en", "ö", "x" * 65])
def test_what_looks_like_something_else_is_no_name(name: str) -> None:
    with Store.memory() as store, pytest.raises(ValueError, match="is no name"):
        store.peers.allow(BEN, RuleChange(name=name))


def test_the_own_id_has_no_row() -> None:
    with Store.memory() as store:
        with pytest.raises(ValueError, match="always let in"):
            store.peers.allow(store.author)
        with pytest.raises(ValueError, match="always let in"):
            store.peers.block(store.author)
        with pytest.raises(ValueError, match="32 bytes"):
            store.peers.allow(b"short")


def test_who_knocks_waits_until_somebody_decides() -> None:
    with Store.memory() as store:
        store.peers.note_seen({BEN: seen(5, count=2)})
        store.peers.note_seen({BEN: seen(9)})
        [known] = store.peers.known()
        assert known == KnownPeer(
            BEN, None, None, Sighting(3, 5, 9, "192.0.2.1:40000", "192.0.2.1")
        )
        assert known.state is PeerState.WAITING
        assert store.peers.rules() == {}
        store.peers.block(BEN)
        store.peers.note_seen({BEN: seen(11)})
        assert state_of(store, BEN) is PeerState.BLOCKED


def test_seeing_somebody_tells_a_node_nothing_and_deciding_does() -> None:
    with Store.memory() as store:
        before = store.wishes_version()
        store.peers.note_seen({BEN: seen(5)})
        assert store.wishes_version() == before
        store.peers.allow(BEN)
        assert (after := store.wishes_version()) != before
        store.peers.allow(BEN)
        assert store.wishes_version() == after


def test_one_place_pushes_out_its_own_alone() -> None:
    with Store.memory() as store:
        store.peers.note_seen({BEN: seen(1, "198.51.100.7")})
        flood = {number.to_bytes(32): seen(number + 2, "2001:db8::/64") for number in range(300)}
        store.peers.note_seen(flood)
        waiting = {each.peer_id for each in store.peers.known()}
        newest = sorted(flood)[-WAITING_PER_PLACE_MAX:]
        assert waiting == {BEN, *newest}


def test_who_is_decided_is_never_pushed_out() -> None:
    with Store.memory() as store:
        store.peers.allow(BEN)
        store.peers.note_seen({BEN: seen(1, "192.0.2.9")})
        store.peers.note_seen({bytes([n]) * 32: seen(n, "192.0.2.9") for n in range(100, 120)})
        assert state_of(store, BEN) is PeerState.ALLOWED
        assert len(store.peers.known()) == 1 + WAITING_PER_PLACE_MAX


@given(
    st.lists(
        st.dictionaries(st.integers(0, 2000), st.integers(0, 60), max_size=200),
        min_size=1,
        max_size=4,
    )
)
def test_those_who_wait_are_bounded_whoever_comes(rounds: list[dict[int, int]]) -> None:
    with Store.memory() as store:
        for at, who in enumerate(rounds):
            store.peers.note_seen(
                {peer.to_bytes(32): seen(at, f"place {place}") for peer, place in who.items()}
            )
            known = store.peers.known()
            assert len(known) <= WAITING_MAX
            places = [each.seen.place for each in known if each.seen is not None]
            assert all(places.count(each) <= WAITING_PER_PLACE_MAX for each in set(places))


def test_a_damaged_row_lets_nobody_in(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s") as store:
        store.peers.allow(BEN)
        store.peers.note_seen({EVE: seen(1)})
    database = apsw.Connection(str(tmp_path / "s" / "store.sqlite3"))
    database.execute("UPDATE memory SET value = CAST(replace(value, 'true', 'True') AS BLOB)")
    database.execute("UPDATE memory SET value = x'00' WHERE name LIKE 'seen/%'")
    database.close()
    with Store.open(tmp_path / "s") as store:
        assert store.peers.rules() == {BEN: PeerRule(allowed=False)}
        assert [each.peer_id for each in store.peers.known()] == [BEN]
        assert any("memory" in str(fault) for fault in store.verify())


def test_another_process_sees_it_and_nothing_is_lost(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s") as store, Store.open(tmp_path / "s") as other:
        before = other.wishes_version()
        store.peers.allow(BEN, RuleChange(name="ben", read=read_scope([BEN.hex()])))
        assert other.wishes_version() != before
        assert other.peers.rules()[BEN].read == frozenset({BEN})
        assert other.names() == {"ben": BEN}


def test_a_store_that_is_only_read_changes_nothing(tmp_path: Path) -> None:
    Store.create(tmp_path / "s").close()
    with Store.open(tmp_path / "s", readonly=True) as store, pytest.raises(StoreReadOnly):
        store.peers.allow(BEN)


AUTHOR = SigningKey(bytes([9]) * 32).verify_key.encode()


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("all", frozenset({ALL})),
        ("none", frozenset()),
        ([AUTHOR.hex()], frozenset({AUTHOR})),
        ([f"{AUTHOR.hex()}/3"], frozenset({LogKey(AUTHOR, 3)})),
        (sorted([AUTHOR.hex(), f"{BEN.hex()}/0"]), frozenset({AUTHOR, LogKey(BEN, 0)})),
    ],
)
def test_a_scope_as_text(text: str | list[str], scope: frozenset[object]) -> None:
    assert read_scope(text) == scope
    assert written_scope(read_scope(text)) == text


@pytest.mark.parametrize("text", [["all", AUTHOR.hex()], ["none", "all"], ["x"], [""], ["a/b"]])
def test_what_is_no_scope_says_so(text: list[str]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has a message of its own
        read_scope(text)
