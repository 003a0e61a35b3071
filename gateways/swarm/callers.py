"""Who is called: one caller for each address, however many want it called.

A peer is called because the node was told to, or because somebody wants a file that may be there,
for as long as it takes. A second caller of the same address would be refused by the peer that the
first one is connected with, so what is counted is who wants it.
"""

import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from gateways import LogHost, again, is_lost, why_ended
from gateways.swarm.keys import Enode
from peer.api import Address
from peer.node import Backoff, CannotConnectError, Observer, open_stream

from .conversation import Conversation
from .hub import Hub

log = logging.getLogger(__name__)


class _Caller:
    """One address that is called."""

    def __init__(self) -> None:
        self.wanted = 0
        self.scope: Final = trio.CancelScope()
        self.conversation: Conversation | None = None


class Callers:
    """The peers that a node calls. `run`: begins a task of the node's."""

    def __init__(
        self,
        host: LogHost,
        hub: Hub,
        observer: Observer,
        rng: random.Random,
        start: Callable[..., object],
    ) -> None:
        self._host = host
        self._hub = hub
        self._observer = observer
        self._rng = rng
        self._start = start
        self._callers: dict[Enode, _Caller] = {}

    def want(self, enode: Enode) -> None:
        """Has it called again and again, until as many want it no longer."""
        caller = self._callers.get(enode)
        if caller is None:
            caller = self._callers[enode] = _Caller()
            self._start(self._keep_calling, enode, caller)
        caller.wanted += 1

    def unwant(self, enode: Enode) -> None:
        """One of those who wanted it does so no longer."""
        caller = self._callers[enode]
        caller.wanted -= 1
        if not caller.wanted:
            del self._callers[enode]
            caller.scope.cancel()

    async def end(self) -> None:
        """Says farewell to all; returns once their connections are over."""
        async with trio.open_nursery() as nursery:
            for each in self._callers.values():
                if each.conversation is not None:
                    nursery.start_soon(each.conversation.finish)

    async def _keep_calling(self, enode: Enode, caller: _Caller) -> None:
        async def connect() -> trio.SocketStream:
            # It may have called us meanwhile.
            while self._hub.is_connected(enode.public):
                await self._hub.moved()
            try:
                return await open_stream(Address(enode.host, enode.port))
            except CannotConnectError as error:
                self._tell_lost(enode, str(error))
                raise

        with caller.scope:
            await again(connect, partial(self._call, enode, caller), Backoff(self._rng))

    async def _call(self, enode: Enode, caller: _Caller, stream: trio.SocketStream) -> bool:
        """One connection that we have made; whether it is to be made again soon."""
        reason = "it is called no longer"
        was_lost = False
        try:
            name = f"{enode.host}:{enode.port}"
            caller.conversation = Conversation(self._hub, stream, name, enode)
            await caller.conversation.run()
            reason, was_lost = "it has hung up", True
        except Exception as error:  # noqa: BLE001 - one peer ends nobody else
            reason = why_ended(self._host, error, str(enode))
            was_lost = is_lost(error)
        finally:
            found, caller.conversation = caller.conversation, None
            self._tell_lost(enode, reason)
            await trio.aclose_forcefully(stream)
        return was_lost and found is not None and found.known is not None

    def _tell_lost(self, enode: Enode, reason: str) -> None:
        log.info("%s: %s", enode, reason)
        self._observer({"event": "disconnected", "enode": str(enode), "reason": reason})
