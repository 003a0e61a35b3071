"""Who is asked about own logs, and how long each of them is waited for."""

from collections.abc import Callable, Iterable

import pytest
import trio
from nacl.signing import SigningKey
from trio.testing import MockClock

from bench.support.logs import signed_log
from logstore import RuleChange, Store, WriteScope
from peer.node import (
    Address,
    Doors,
    NodeConfig,
    PeerAddress,
    addresses_reached,
    asking,
    forget_reached,
    running_node,
)
from wire import LogKey


async def test_an_answer_is_waited_for_as_long_as_there_are_some(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two say something every two seconds; one of them ends, and then the other has half a second.

    The third says nothing, and costs nobody more time than that.
    """
    ends_after = {"first": 10, "second": 1000}

    async def answering(
        stream: trio.abc.Stream,
        name: str,
        logs: Iterable[LogKey],
        *_: object,
        heard: Callable[[], object],
        **__: object,
    ) -> dict[LogKey, int]:
        async with stream:
            if names[name] == "silent":
                await trio.sleep_forever()
            for _n in range(ends_after[names[name]]):
                await trio.sleep(2.0)
                heard()
        return dict.fromkeys(logs, 0)

    monkeypatch.setattr(asking, "newest_held_by", answering)
    names = {}
    addresses = []
    with Store.memory() as store:
        logs = [LogKey(store.author, number) for number in range(10)]
        async with trio.open_nursery() as nursery:
            for who in ("first", "second", "silent"):
                [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
                host, port = listener.socket.getsockname()
                addresses.append(PeerAddress.parse(f"{host}:{port}"))
                names[str(addresses[-1])] = who
                nursery.start_soon(trio.serve_listeners, leave_alone, [listener])
            began = trio.current_time()
            asked = await asking.ask_peers(store, logs, addresses)
            took_s = trio.current_time() - began
            nursery.cancel_scope.cancel()
    assert {names[each] for each in asked.newest} == {"first"}
    assert {names[each]: why for each, why in asked.failed.items()} == dict.fromkeys(
        ("second", "silent"), "no answer in 3 s"
    )
    assert took_s == pytest.approx(20.0 + asking.GRACE_S, abs=1.0)
    assert not asked.behind
    assert not asked.brought


async def test_nobody_is_asked_about_what_he_may_not_read_nor_called_once_he_is_removed() -> None:
    """To ask of a log is to say that there is one."""
    amy, ben = (SigningKey(bytes([n]) * 32) for n in (1, 2))
    ben_id = bytes(ben.verify_key)
    doors = NodeConfig(workers=0, poll_s=0.001, doors=Doors(tls=True))
    with Store.memory(signing_key=amy) as mine, Store.memory(signing_key=ben) as theirs:
        told, hidden = LogKey(mine.author, 1), LogKey(mine.author, 2)
        for log in (told, hidden):
            mine.append([b"one"], log_id=log.log_id)
            theirs.put_entries(log, signed_log(amy, log.log_id, [b"one"]), source="a test")
        mine.peers.allow(ben_id, RuleChange(read=frozenset((told,)), write=WriteScope.NONE))
        theirs.peers.allow(mine.author)
        async with running_node(theirs, doors) as node:
            [address] = await node.listen(Address("127.0.0.1", 0))
            called = PeerAddress(address, peer=ben_id.hex())
            asked = await asking.ask_peers(mine, [told, hidden], [called])
            assert asked.newest == {str(called): {told: 1}}
            asked = await asking.ask_peers(mine, [hidden], [called])
            assert (asked.newest, [*asked.failed.values()]) == (
                {},
                ["it may not read what it would be asked"],
            )
        mine.remember("called", called.written.encode())
        assert addresses_reached(mine) == [called]
        forget_reached(mine, bytes(32))
        assert addresses_reached(mine) == [called]
        forget_reached(mine, ben_id)
        assert addresses_reached(mine) == []


async def leave_alone(stream: trio.SocketStream) -> None:
    """Nothing is said at this end."""
    async with stream:
        await trio.sleep_forever()
