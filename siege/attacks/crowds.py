"""Many connections, and little on them: who keeps places occupied, or comes all the time."""

from typing import Final

import trio

from siege.attack import Attack
from siege.hostile import Hostile
from siege.line import GREEDY, Line, LineEndedError
from wire import encode_setup

SILENT: Final = 32
IDLE: Final = 224
TURN_S: Final = 0.25
CLIENT_HELLO: Final = bytes.fromhex("16030140000100 3ffc 0303") + bytes(32)
"""The beginning of a ClientHello of 16 KiB, whose end never comes."""
ROUNDS: Final = 8


async def _hold(hostile: Hostile, greeting: bytes, drip: bytes) -> None:
    """A socket that says something, and then a byte now and then, until it is closed; again."""
    while True:
        try:
            stream = await hostile.socket()
        except LineEndedError as error:
            hostile.ends[str(error)] += 1
            await trio.sleep(TURN_S)
            continue
        began = trio.current_time()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_drip, hostile, stream, greeting, drip)
                while data := await stream.receive_some(4096):
                    hostile.counts["heard_bytes"] += len(data)
                hostile.ends["closed"] += 1
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            hostile.ends["cut"] += 1
        finally:
            await trio.aclose_forcefully(stream)
        hostile.gone_s.append(trio.current_time() - began)
        await trio.sleep(TURN_S)


async def _drip(hostile: Hostile, stream: trio.SocketStream, greeting: bytes, drip: bytes) -> None:
    said = greeting
    while said:
        await stream.send_all(said)
        hostile.counts["sent_bytes"] += len(said)
        await trio.sleep(1)
        said = drip


async def _held(hostile: Hostile, greeting: bytes, drip: bytes) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(hostile.connections):
            nursery.start_soon(_hold, hostile, greeting, drip)


async def _silent(hostile: Hostile) -> None:
    await _held(hostile, b"", b"")


async def _slow_setup(hostile: Hostile) -> None:
    # A number that is eight bytes long, of which one comes each second.
    await _held(hostile, encode_setup(GREEDY)[:1] + b"\xff", b"\xff")


async def _hello(hostile: Hostile) -> None:
    await _held(hostile, CLIENT_HELLO, b"\x00")


async def _idle(hostile: Hostile) -> None:
    async def play(line: Line, _: int) -> None:
        await line.begin()
        await line.until(lambda: False)

    await hostile.crowd(play)


async def _connects(hostile: Hostile) -> None:
    """As fast as it goes, and gone at once."""

    async def one() -> None:
        while True:
            try:
                stream = await hostile.socket()
            except LineEndedError as error:
                hostile.ends[str(error)] += 1
                await trio.sleep(0.01)
                continue
            await trio.aclose_forcefully(stream)
            # A thousand a second: what is to be measured is the node, and not who gets its core.
            await trio.sleep(hostile.connections / 1000)

    async with trio.open_nursery() as nursery:
        for _ in range(hostile.connections):
            nursery.start_soon(one)


ATTACKS: Final = (
    Attack(
        "silent",
        f"{SILENT} sockets that say nothing, opened again when they are closed",
        _silent,
        connections=SILENT,
        rounds=ROUNDS,
        within=False,
        needs={"opened": SILENT},
        node_reads=0,
    ),
    Attack(
        "idle",
        f"{IDLE} sessions that are set up and do nothing",
        _idle,
        connections=IDLE,
        rounds=ROUNDS,
        within=False,
        needs={"set_up": 100},
        node_reads=0,
    ),
    Attack(
        "connects",
        "a thousand connections a second, closed at once",
        _connects,
        connections=20,
        rounds=ROUNDS,
        within=False,
        needs={"opened": 100},
        node_reads=0,
    ),
    Attack(
        "slow-setup",
        f"{SILENT} setups, a byte a second",
        _slow_setup,
        connections=SILENT,
        rounds=ROUNDS,
        within=False,
        needs={"sent_bytes": 2 * SILENT},
        node_reads=0,
    ),
    Attack(
        "endless-hello",
        f"{SILENT} TLS hellos that never end",
        _hello,
        connections=SILENT,
        tls=True,
        rounds=ROUNDS,
        within=False,
        needs={"sent_bytes": 40 * SILENT},
        node_reads=0,
    ),
)
