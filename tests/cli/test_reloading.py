"""What is read again at SIGHUP, what of it is applied, and that a bad file changes nothing."""

from argparse import Namespace
from functools import partial
from pathlib import Path

import pytest

from bamboo_cli.errors import Problem, WrongUsage
from bamboo_cli.online import describe
from bamboo_cli.reloading import Applied, Reloading, applied_to
from logstore import Store, StoreError, StoreFull
from peer.api import NodeConfig, Peer, PeerAddress
from peer.node import Limits
from wire import LogKey

SETTINGS: dict[str, object] = {"listen": "a", "max_rate": None, "connect": [], "config": None}


class Settings:
    """What the file says next, and what was made of it."""

    def __init__(self, *kinds: Applied, refuse: Exception | None = None) -> None:
        self.wanted = dict(SETTINGS)
        self.refuse = refuse
        self.applied: list[tuple[str, object]] = []
        running = self._read()
        self.reloading = Reloading(running, kinds or [self.kind("max_rate")], self._check)

    def kind(self, name: str, error: StoreError | None = None) -> Applied:
        async def apply(args: Namespace) -> None:
            if error is not None:
                raise error
            self.applied.append((name, getattr(args, name)))

        return Applied(frozenset((name,)), apply)

    def _read(self) -> Namespace:
        return Namespace(**self.wanted, read_again=self._read)

    def _check(self, _: Namespace) -> None:
        if self.refuse is not None:
            raise self.refuse

    async def reload(self, **wanted: object) -> dict[str, object]:
        self.wanted |= wanted
        return {k: v for k, v in (await self.reloading.reload()).items() if k != "event"}


def event(
    changed: list[str], needs_restart: list[str], error: str | None = None
) -> dict[str, object]:
    return {"changed": changed, "needs_restart": needs_restart, "error": error}


async def test_what_can_be_applied_is_and_the_rest_is_named_until_it_is_taken_back() -> None:
    settings = Settings()
    assert await settings.reload() == event([], [])
    assert await settings.reload(max_rate=5, listen="b") == event(["max-rate"], ["listen"])
    assert settings.applied == [("max_rate", 5)]
    assert await settings.reload() == event([], ["listen"])
    assert await settings.reload(listen="a", max_rate=None) == event(["max-rate"], [])
    assert settings.applied == [("max_rate", 5), ("max_rate", None)]


@pytest.mark.parametrize(
    "refuse", [WrongUsage("bad"), Problem("bad"), StoreError("bad", Path("x"), "mend it")]
)
async def test_what_a_start_would_refuse_changes_nothing(refuse: Exception) -> None:
    settings = Settings(refuse=refuse)
    assert await settings.reload(max_rate=5, listen="b") == event([], [], str(refuse))
    assert settings.applied == []


async def test_a_full_disk_leaves_the_rest_for_the_next_time() -> None:
    settings = Settings()
    full = StoreFull("full", Path("x"), "make room")
    kinds = [settings.kind("max_rate"), settings.kind("connect", full)]
    settings.reloading = Reloading(settings._read(), kinds, settings._check)
    assert await settings.reload(max_rate=5, connect=[1]) == event(["max-rate"], [], str(full))
    settings.reloading._applied = [settings.kind("connect")]
    assert await settings.reload() == event(["connect"], [])


def named(*connect: str, **others: object) -> Namespace:
    found: dict[str, object] = {
        "connect": [PeerAddress.parse(each) for each in connect],
        "follow": [],
        "follow_all": False,
        "policy": None,
        "min_payload": None,
        "max_payload": None,
        "eager": None,
        "max_rate": None,
        "max_rate_per_peer": None,
        "limit": [],
    }
    return Namespace(**(found | others))


async def test_a_running_node_takes_on_whom_it_calls_what_it_follows_and_its_limits() -> None:
    log = LogKey(b"f" * 32, 3)
    limits = Limits(bytes_per_s_max=7, peer_bytes_per_s_max=5, connections_max=3, author_bytes=9)
    first = named("127.0.0.1:9", "127.0.0.1:8", "127.0.0.1:6")
    with Store.memory() as store:
        async with Peer(store, config=NodeConfig(workers=0)) as peer:
            for target in first.connect:
                peer.connect(target)
            wanted = named(
                *("127.0.0.1:8,greedy=none", "127.0.0.1:7", "127.0.0.1:6"),
                follow=[log],
                max_rate=7,
                max_rate_per_peer=5,
                limit=[("connections_max", 3), ("author_bytes", 9)],
            )
            read = partial(Namespace, **vars(wanted))
            running = Namespace(**vars(first), read_again=read)
            reloading = Reloading(running, applied_to(peer, first), lambda _: None)
            told = await reloading.reload()
            names = ["connect", "follow", "limit", "max-rate", "max-rate-per-peer"]
            assert told["changed"] == names
            assert sorted(each.written for each in peer.node.called) == [
                "127.0.0.1:6",
                "127.0.0.1:7",
                "127.0.0.1:8,greedy=none",
            ]
            assert peer.node.follows == [log]
            assert peer.node.config.limits == limits
            assert peer.node.gate.limits == limits
            assert (await peer.status())["max_rate"] == 7


def test_people_read_what_came_of_it() -> None:
    told: dict[str, object] = {
        "event": "config_reloaded",
        "changed": [],
        "needs_restart": [],
        "error": None,
    }
    begin = "configuration read again: "
    assert describe(told) == f"{begin}nothing changed"
    both = told | {"changed": ["max-rate", "connect"], "needs_restart": ["listen"]}
    assert describe(both) == f"{begin}max-rate, connect changed; needs a restart: listen"
    assert describe(told | {"error": "x.toml: bad"}) == (
        f"{begin}nothing changed; error: x.toml: bad"
    )
