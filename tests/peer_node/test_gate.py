"""Where there are too many connections somebody gives way. peer/node/links/gate.py, limits.py."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.node.links.gate import (
    BUCKETS_MAX,
    LOOPBACK_TIMES,
    Gate,
    Slot,
    TooManyConnectionsError,
    place_of,
)
from peer.node.links.limits import Limits, limit_table

FAR, FARTHER = "192.0.2.1", "198.51.100.1"


class Door:
    """A gate, and who had to give way."""

    def __init__(self, limits: Limits) -> None:
        self.gate = Gate(limits)
        self.gone: list[str] = []
        self.reasons: list[str] = []

    def come(self, name: str, host: str = FAR, *, at: float = 0.0, known: bool = False) -> Slot:
        def give_way(reason: str) -> None:
            self.gone.append(name)
            self.reasons.append(reason)

        slot = self.gate.enter(host, at, give_way)
        try:
            if not known:
                self.gate.count_stranger(slot)
        except TooManyConnectionsError:
            slot.leave()
            raise
        return slot

    def stay(self, name: str, host: str = FAR, *, useful: bool = True, known: bool = False) -> Slot:
        slot = self.come(name, host, known=known)
        slot.established(lambda: useful)
        return slot

    def refuses(self, host: str = FAR, at: float = 0.0) -> str:
        with pytest.raises(TooManyConnectionsError) as caught:
            self.come("refused", host, at=at)
        return str(caught.value)


def limits(**numbers: int) -> Limits:
    settings: dict[str, int] = {
        "accepts_burst": 10_000,
        "unestablished_max": 10_000,
        "outgoing_reserved": 0,
        "per_address_max": 10_000,
    }
    return Limits(**(settings | numbers))


def test_the_oldest_that_says_nothing_gives_way_and_not_the_newest() -> None:
    door = Door(limits(connections_max=3))
    for name in ("a", "b", "c"):
        door.come(name)
    door.come("d")
    door.come("e")
    assert door.gone == ["a", "b"]
    assert "3 connections are open" in door.reasons[0]
    assert (door.gate.incoming, door.gate.gave_way, door.gate.refused) == (3, 2, 0)
    assert door.gate.hits == {"connections": 2}


def test_who_is_not_set_up_gives_way_before_who_is_idle() -> None:
    door = Door(limits(connections_max=3))
    door.stay("idle", useful=False)
    door.come("silent")
    door.stay("useful")
    door.stay("next")
    assert door.gone == ["silent"]
    door.stay("after", useful=True)
    assert door.gone == ["silent", "idle"]
    assert "as many as are allowed" in door.refuses()
    assert door.gate.refused == 1


def test_only_the_busiest_address_gives_way() -> None:
    door = Door(limits(connections_max=4))
    door.stay("alone", FARTHER, useful=False)
    for name in ("a", "b", "c"):
        door.stay(name, useful=name == "a")
    door.stay("newcomer", "203.0.113.1")
    assert door.gone == ["b"]
    door.stay("another", "203.0.113.2", useful=False)
    # Nobody has more than another now: the oldest idle one, wherever it is.
    assert door.gone == ["b", "c"]
    door.stay("last", "203.0.113.3")
    assert door.gone == ["b", "c", "alone"]


def test_the_busiest_gives_nothing_where_all_of_it_is_useful() -> None:
    door = Door(limits(connections_max=3))
    for name in ("a", "b"):
        door.stay(name)
    door.stay("alone", FARTHER, useful=False)
    assert "connections are open" in door.refuses("203.0.113.1")
    assert door.gone == []


def test_an_address_has_a_limit_of_its_own_and_gives_way_to_itself() -> None:
    door = Door(limits(connections_max=1000, per_address_max=2))
    door.stay("other", FARTHER, useful=False)
    door.stay("a", useful=False)
    door.stay("b")
    door.stay("c")
    assert door.gone == ["a"]
    assert "2 connections come from its address" in door.refuses()
    assert door.gate.hits == {"per-address": 2}


@pytest.mark.parametrize(
    ("hosts", "count"),
    [(["2001:db8::1", "2001:db8::2", "2001:db8::ffff"], 2), (["127.0.0.1", "::1"], 16)],
)
def test_an_address_is_what_one_person_has(hosts: list[str], count: int) -> None:
    door = Door(limits(connections_max=1000, per_address_max=2))
    for number in range(count):
        door.stay(str(number), hosts[number % len(hosts)])
    assert "come from its address" in door.refuses(hosts[0])
    door.stay("elsewhere")


def test_places_are_kept_for_what_is_called_and_for_allowed_peers() -> None:
    door = Door(limits(connections_max=10, outgoing_reserved=4))
    for number in range(6):
        door.stay(str(number))
    assert "connections are open" in door.refuses()
    for number in range(20):
        door.stay(f"known {number}", known=True)
    assert door.gone == []
    # They take none from the strangers that are here, but no more of those get in.
    assert "connections are open" in door.refuses()


def test_who_is_known_is_never_made_to_give_way_by_strangers() -> None:
    door = Door(limits(connections_max=4, outgoing_reserved=2, per_address_max=1))
    door.stay("peer", known=True, useful=False)
    for number in range(5):
        door.stay(str(number), useful=False)
    assert door.gone == ["0", "1", "2", "3"]


def test_those_without_setup_have_a_limit_of_their_own() -> None:
    door = Door(limits(connections_max=1000, unestablished_max=3))
    door.come("alone", FARTHER)
    first = door.come("a")
    door.come("b")
    door.come("c")
    assert door.gone == ["a"]
    first.leave()
    door.stay("d")
    assert door.gone == ["a", "b"]
    assert "have not finished their setup" in door.reasons[0]
    # A peer that will be known gets in as well.
    door.come("e", "203.0.113.1", known=True)
    assert door.gone == ["a", "b"]


@pytest.mark.parametrize(("host", "times"), [(FAR, 1), ("127.0.0.1", LOOPBACK_TIMES)])
def test_an_address_may_not_come_too_often(host: str, times: int) -> None:
    door = Door(Limits(accepts_per_s=10, accepts_burst=40))
    for _ in range(40 * times):
        door.come("", host, at=100.0).leave()
    assert "a second" in door.refuses(host, 100.005)
    door.come("", host, at=100.11).leave()
    door.come("", FARTHER, at=100.11).leave()
    assert door.gone == []


@pytest.mark.parametrize("accepts_per_s", [10.0, 0.0])
def test_addresses_are_not_remembered_without_end(accepts_per_s: float) -> None:
    door = Door(Limits(accepts_per_s=accepts_per_s))
    for number in range(3 * BUCKETS_MAX):
        door.come("", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}").leave()
        assert len(door.gate._buckets) <= BUCKETS_MAX + 1
    assert door.gate.incoming == 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["come", "set up", "leave"]),
        st.sampled_from([FAR, FARTHER, "203.0.113.1", "127.0.0.1"]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_no_number_is_ever_passed_and_everybody_is_told_once(
    steps: list[tuple[str, str, bool, bool]],
) -> None:
    allowed = limits(connections_max=6, outgoing_reserved=2, per_address_max=3, unestablished_max=4)
    door = Door(allowed)
    here: dict[str, Slot] = {}
    for number, (what, host, known, useful) in enumerate(steps):
        if what == "come":
            name = str(number)
            with suppress(TooManyConnectionsError):
                here[name] = door.come(name, host, known=known)
        elif here:
            name = list(here)[number % len(here)]
            if what == "leave":
                here.pop(name).leave()
            elif not here[name].is_set_up:
                here[name].established(_say(useful))
        for name in door.gone:
            here.pop(name, None)
        slots = list(door.gate.slots)
        strangers = [slot for slot in slots if slot.is_stranger]
        assert slots == list(here.values())
        assert len(strangers) <= allowed.connections_max - allowed.outgoing_reserved
        assert sum(not slot.is_set_up for slot in slots) <= allowed.unestablished_max
        for place in {slot.place for slot in strangers}:
            most = allowed.per_address_max * (LOOPBACK_TIMES if place == "loopback" else 1)
            assert sum(slot.place == place for slot in strangers) <= most
    assert len(door.gone) == len(set(door.gone)) == door.gate.gave_way


def _say(useful: bool) -> Callable[[], bool]:
    return lambda: useful


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.8.8", "loopback"),
        ("::1", "loopback"),
        ("memory", "loopback"),
        ("192.0.2.7", "192.0.2.7"),
        ("0.0.0.0", "0.0.0.0"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:127.0.0.1", "loopback"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_where_somebody_comes_from(host: str, place: str) -> None:
    assert place_of(host) == place


def test_the_table_of_limits_in_the_docs_is_the_one_that_is_in_force() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/limits.md").read_text()
    for each in limit_table():
        assert f"| `{each.key}` |" in text
        (row,) = (line for line in text.splitlines() if line.startswith(f"| `{each.key}` |"))
        assert each.beyond in row
        assert each.why in row
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(limit_table())
