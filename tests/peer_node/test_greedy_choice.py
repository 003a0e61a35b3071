"""Each connection is greedy or safe by itself, over real sockets: its setup says so."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from logstore import Store
from peer import SessionConfig, default_setup
from peer.api import ConnectionInfo, Greedy, NodeConfig, Peer
from peer.node import parse_greedy, with_greedy
from tests.records import replace

from .support import PATIENCE_S

CONFIG = NodeConfig(workers=0)
SAFE = replace(
    CONFIG, session=SessionConfig(setup=with_greedy(default_setup(), parse_greedy("none")))
)


def wishes(info: ConnectionInfo) -> tuple[bool, bool]:
    """What this side says that it is ready for."""
    assert info.terms is not None
    return info.terms.send_greedily, info.terms.accept_greedily


def in_force(info: ConnectionInfo) -> tuple[bool, bool]:
    assert info.terms is not None
    return info.terms.greedy_sending, info.terms.greedy_receiving


async def established(peer: Peer, count: int) -> dict[str, ConnectionInfo]:
    """The connections by address, once there are so many."""
    with trio.fail_after(PATIENCE_S):
        while True:
            found = {info.address: info for info in peer.connections() if info.terms is not None}
            if len(found) == count:
                return found
            await trio.testing.wait_all_tasks_blocked()


def setups(trace: Path) -> dict[str, dict[str, Any]]:
    """The setup that was sent to each peer."""
    records = [json.loads(line) for line in trace.read_text().splitlines()]
    return {
        record["peer"]: record
        for record in records
        if record.get("channel") == "setup" and record["way"] == "sent"
    }


@pytest.mark.parametrize(
    ("greedy", "expected"),
    [
        ("both", (True, True)),
        ("send", (True, False)),
        ("receive", (False, True)),
        ("none", (False, False)),
    ],
)
async def test_one_connection_says_what_was_chosen_for_it_and_the_other_does_not(
    greedy: Greedy, expected: tuple[bool, bool], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    with Store.memory() as one, Store.memory() as other, Store.memory() as middle:
        async with (
            Peer(one, config=CONFIG) as first,
            Peer(other, config=CONFIG) as second,
            Peer(middle, config=replace(CONFIG, trace=trace)) as caller,
        ):
            chosen, plain = str(await first.listen()), str(await second.listen())
            caller.connect(chosen, greedy=greedy)
            caller.connect(plain)
            found = await established(caller, 2)
            assert wishes(found[chosen]) == in_force(found[chosen]) == expected
            assert wishes(found[plain]) == in_force(found[plain]) == (True, True)
            # At the other end the directions are the other way round.
            [info] = (await established(first, 1)).values()
            assert wishes(info) == (True, True)
            assert in_force(info) == expected[::-1]
            assert f"({words(expected)})" in "".join(map(str, await caller.why(chosen)))
            assert "(greedy both ways)" in "".join(map(str, await caller.why(plain)))
    sent = setups(trace)
    assert (sent[chosen]["send_greedily"], sent[chosen]["accept_greedily"]) == expected
    assert (sent[plain]["send_greedily"], sent[plain]["accept_greedily"]) == (True, True)


def words(ways: tuple[bool, bool]) -> str:
    if ways[0] is ways[1]:
        return "greedy both ways" if ways[0] else "safe both ways"
    return "greedy out, safe in" if ways[0] else "safe out, greedy in"


async def test_a_peer_may_be_greedy_where_the_node_is_safe_and_who_calls_in_gets_the_nodes() -> (
    None
):
    with Store.memory() as one, Store.memory() as other, Store.memory() as middle:
        async with (
            Peer(one, config=CONFIG) as first,
            Peer(other, config=CONFIG) as second,
            Peer(middle, config=SAFE) as safe,
        ):
            address = str(await first.listen())
            safe.connect(address, greedy="both")
            second.connect(await safe.listen())
            found = await established(safe, 2)
            assert in_force(found.pop(address)) == (True, True)
            [incoming] = found.values()
            assert wishes(incoming) == in_force(incoming) == (False, False)


async def test_what_is_said_again_of_an_address_goes_for_the_next_connection() -> None:
    with Store.memory() as one, Store.memory() as other:
        async with Peer(one, config=CONFIG) as listener, Peer(other, config=CONFIG) as caller:
            address = await listener.listen()
            caller.connect(address)
            assert in_force((await established(caller, 1))[str(address)]) == (True, True)
            caller.connect(address, greedy="none")
            [member] = caller.node.members
            assert in_force(member.info()) == (True, True)
            member.connection.close()
            with trio.fail_after(PATIENCE_S):
                await member.ended.wait()
            assert in_force((await established(caller, 1))[str(address)]) == (False, False)


async def test_a_sync_says_what_was_chosen_for_it(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with Store.memory() as one, Store.memory() as other:
        async with (
            Peer(one, config=CONFIG) as listener,
            Peer(other, config=replace(CONFIG, trace=trace)) as caller,
        ):
            address = await listener.listen()
            with trio.fail_after(PATIENCE_S):
                await caller.sync(address, greedy="receive")
    sent = setups(trace)[str(address)]
    assert (sent["send_greedily"], sent["accept_greedily"]) == (False, True)


async def test_another_word_is_refused_at_once() -> None:
    with Store.memory() as store:
        async with Peer(store, config=CONFIG) as peer:
            with pytest.raises(ValueError, match="none of both, send, receive and none"):
                peer.connect("127.0.0.1:1", greedy="never")  # type: ignore[arg-type]
            assert peer.connections() == []
