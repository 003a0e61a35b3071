"""What a text of a person stands for (everyday.md 1)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from logstore import Ambiguous, NameTaken, NothingSoCalled, Reference, Store
from wire import U64_MAX, LogKey

TWIN = bytes.fromhex("11" * 31 + "00")
OTHER_TWIN = bytes.fromhex("11" * 31 + "ff")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "store", signing_key=SigningKey(bytes(32))) as made:
        yield made


def test_an_id_stands_for_itself_whether_it_is_known_or_not(store: Store) -> None:
    assert store.resolve(TWIN.hex()) == TWIN
    assert store.resolve(TWIN.hex().upper()) == TWIN
    assert store.resolve(f"{TWIN.hex()}/7") == LogKey(TWIN, 7)


def test_numbers_are_own_logs(store: Store) -> None:
    assert store.resolve("0") == LogKey(store.author, 0)
    assert store.resolve("1234567") == LogKey(store.author, 1234567)
    assert store.resolve(f"/{U64_MAX}") == LogKey(store.author, U64_MAX)


def test_eight_digits_are_no_number_but_a_beginning(store: Store) -> None:
    store.follow(bytes.fromhex("12345678" + "00" * 28))
    assert store.resolve("12345678") == bytes.fromhex("12345678" + "00" * 28)


def test_names_of_authors_and_of_logs(store: Store) -> None:
    assert store.set_name("ben", TWIN)
    assert not store.set_name("ben", TWIN)
    assert store.set_name("Ben", LogKey(TWIN, 3))
    assert store.resolve("ben") == TWIN
    assert store.resolve("ben/3") == LogKey(TWIN, 3)
    assert store.resolve("Ben") == LogKey(TWIN, 3)
    with pytest.raises(ValueError, match="leave /N out"):
        store.resolve("Ben/3")
    with pytest.raises(NameTaken):
        store.set_name("ben", OTHER_TWIN)
    assert store.remove_name("ben") == TWIN
    with pytest.raises(NothingSoCalled):
        store.remove_name("ben")
    with pytest.raises(NothingSoCalled):
        store.resolve("ben")


def test_every_id_of_the_store_makes_a_beginning_ambiguous(store: Store) -> None:
    with pytest.raises(NothingSoCalled):
        store.resolve("1" * 8)
    store.follow(LogKey(TWIN, 5))
    assert store.resolve("1" * 8) == TWIN
    assert store.resolve("1" * 8 + "/9") == LogKey(TWIN, 9)
    # One that begins alike, in whichever way it came here.
    ways: tuple[Callable[[], object], ...] = (
        lambda: store.set_name("twin", LogKey(OTHER_TWIN, 1)),
        lambda: store.peers.block(OTHER_TWIN),
        lambda: store.follow(OTHER_TWIN),
    )
    undone: tuple[Callable[[], object], ...] = (
        lambda: store.remove_name("twin"),
        lambda: store.peers.remove(OTHER_TWIN),
        lambda: store.unfollow(OTHER_TWIN),
    )
    for come, go in zip(ways, undone, strict=True):
        come()
        with pytest.raises(Ambiguous) as caught:
            store.resolve("1" * 61)
        assert TWIN.hex() in str(caught.value)
        assert OTHER_TWIN.hex() in str(caught.value)
        assert store.resolve("1" * 62 + "0") == TWIN
        go()
        assert store.resolve("1" * 61) == TWIN


def test_an_id_of_which_only_logs_are_held(store: Store) -> None:
    store.append([b"x"], log_id=1)
    store.append([b"x"], log_id=2)
    assert store.resolve(store.author.hex()[:8]) == store.author
    assert store.ids() == {store.author}


def test_a_refusal_names_five_candidates_at_most(store: Store) -> None:
    many = [bytes.fromhex("2" * 60) + bytes([0, n]) for n in range(9)]
    for each in many:
        store.follow(each)
    with pytest.raises(Ambiguous, match="and more") as caught:
        store.resolve("2" * 8)
    assert sum(each.hex() in str(caught.value) for each in many) == 5


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "abc", "ABCDEF01", "1234567/1", "all", "-x", "a b", "ä", "x" * 65, "ben/"),
        *("ben/x", f"ben/{U64_MAX + 1}", f"{TWIN.hex()}/1/2", f"{TWIN.hex()}0", "/x", "ben//1"),
    ],
)
def test_what_has_no_form(store: Store, text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        store.resolve(text)


@given(st.text(max_size=70))
def test_any_text_has_one_form_or_none(text: str) -> None:
    try:
        found = Reference.parse(text)
    except ValueError:
        return
    whos = [found.author, found.name, found.beginning]
    assert sum(each is not None for each in whos) <= 1
    assert any(each is not None for each in (*whos, found.log_id))


@given(
    st.binary(min_size=32, max_size=32),
    st.one_of(st.none(), st.integers(0, U64_MAX)),
)
def test_what_is_printed_in_full_is_understood(author: bytes, log_id: int | None) -> None:
    text = author.hex() if log_id is None else str(LogKey(author, log_id))
    found = Reference.parse(text)
    assert (found.author, found.log_id) == (author, log_id)
