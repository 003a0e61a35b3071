"""What a service manager is told of `serve`: sd_notify(3), datagrams to the socket that it names.

Without one nothing is done. The watchdog is fed by the event loop, so that a node whose loop is
stuck is noticed, and not by a thread that would go on beside it.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import trio

from peer import counted

from .terminal import escape

if TYPE_CHECKING:
    from peer.api import Peer

SEND_S: Final = 1.0
"""A manager that takes nothing for so long is not waited for."""
STATUS_S: Final = 1.0
"""How often it is told in words how the node is, at most."""
_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_STATUS_EVENTS: Final = frozenset(("listening", "connected", "disconnected", "violation"))


class Manager:
    """The service manager that started this program, if one did; closed behind a `with` block."""

    def __init__(self, address: str | None, watchdog_s: float | None = None) -> None:
        """`address`: of a socket, `@` stands for the NUL of an abstract one; None: there is none.

        `watchdog_s`: after so many seconds without a sign of life it takes the node for dead.
        """
        self._socket = None if address is None else _connected(address)
        self._watchdog_s = watchdog_s
        self._changed = trio.Event()
        self._status: str | None = None

    @classmethod
    def of(cls, environment: MutableMapping[str, str], pid: int) -> Self:
        """The one that the environment of a process names.

        Its names are taken out: what is started from here must not speak in our name.
        """
        address, usec, watched = (environment.pop(name, None) for name in _VARIABLES)
        feeds = usec is not None and usec.isdecimal() and int(usec) > 0
        # Another process of ours may be the one that is watched.
        if not feeds or watched not in {None, str(pid)}:
            return cls(address)
        return cls(address, int(usec or 0) / 1_000_000)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()

    async def tell(self, *lines: str) -> None:
        """Sends lines, each NAME=VALUE. A manager that does not listen is no reason to end."""
        if self._socket is not None:
            with trio.move_on_after(SEND_S), suppress(OSError):
                await self._socket.send("\n".join(lines).encode())

    async def ready(self) -> None:
        """The node does its work, from now on or again."""
        await self.tell("READY=1")

    async def reloading(self) -> None:
        """The configuration is read again, until `ready`."""
        # By this the manager tells the answer to its signal from an older one (systemd 253).
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        await self.tell("RELOADING=1", f"MONOTONIC_USEC={now_us}")

    async def stopping(self) -> None:
        """The node is ending in good order."""
        await self.tell("STOPPING=1")

    def take(self, event: Mapping[str, object]) -> None:
        """An event of the node, after which there may be something else to say of it."""
        if event["event"] in _STATUS_EVENTS:
            self._changed.set()

    async def run(self, peer: "Peer") -> None:
        """Says how the node is and that it lives, until cancelled."""
        if self._socket is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_status, lambda: status_of(peer))
            if self._watchdog_s is not None:
                nursery.start_soon(self._feed, self._watchdog_s / 2)

    async def _keep_status(self, status: Callable[[], str]) -> None:
        while True:
            self._changed = trio.Event()
            text = status()
            if text != self._status:
                self._status = text
                await self.tell(f"STATUS={text}")
            await trio.sleep(STATUS_S)
            await self._changed.wait()

    async def _feed(self, every_s: float) -> None:
        while True:
            await self.tell("WATCHDOG=1")
            await trio.sleep(every_s)


def status_of(peer: "Peer") -> str:
    """A node in a line."""
    where = ", ".join(map(str, peer.node.addresses))
    ready = sum(member.established.is_set() for member in peer.node.members)
    said = f"listening on {where}" if where else "not listening"
    # What stands in a line of its own is no other message to the manager.
    return escape(f"{said}; {counted(ready, 'connection')}")


def _connected(address: str) -> trio.socket.SocketType | None:
    """A socket to send datagrams by; None where there is nobody, or the address is none."""
    if not address.startswith(("/", "@")):
        return None
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        # Connected, since sending by a socket that is not cannot be waited for.
        found.connect(f"\0{address[1:]}" if address.startswith("@") else os.fspath(address))
    except OSError:
        found.close()
        return None
    return trio.socket.from_stdlib_socket(found)
