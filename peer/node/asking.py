"""Asks peers what they hold of an own log before another entry of it is signed.

What has restored a whole machine has restored everything that could tell; only others know then
that a number was signed already. All are asked at once, and whoever answers first does not make the
others wait for whoever does not. What they hold and this store does not is brought, and what both
hold is compared (peer.planner.withholding), before anything is said to be in order.
"""

from collections.abc import Sequence
from typing import Final

import trio
from msgspec import Struct, field

from logstore import Store
from peer.node.links.addresses import PeerAddress
from peer.node.links.dialling import CannotConnectError, Dialler
from wire import LogKey

from .node import Node, NodeConfig, running_node
from .probing import newest_held_by

WITHIN_S: Final = 3.0
"""How long an answer is waited for."""
GRACE_S: Final = 0.5
"""How much longer the others are, once somebody has answered."""
BRING_S: Final = 60.0
"""How long it may take to bring what this store lacks."""
POLL_S: Final = 0.05
TELL_S: Final = 1.0
"""Who is connected for so long and has said nothing of a log has nothing to say of it."""


class Asked(Struct):
    """What came of it."""

    newest: dict[str, int] = field(default_factory=dict)
    """The newest entry that each peer holds that has answered, 0: none that it gives out."""
    failed: dict[str, str] = field(default_factory=dict)
    """Why each of the others has not."""
    held_before: int = 0
    """The newest entry that was held here..."""
    held: int = 0
    """... and that is held now."""

    @property
    def is_behind(self) -> bool:
        """Whether somebody holds entries that could not be brought."""
        return any(newest > self.held for newest in self.newest.values())


async def ask_peers(store: Store, log: LogKey, addresses: Sequence[PeerAddress]) -> Asked:
    """Asks what peers hold of an own log, brings what is missing here, and compares the rest.

    Takes `WITHIN_S` at most where nobody holds more, whoever answers. An entry that contradicts one
    that was signed here contests the log (`Store.contested`). Raises StoreError.
    """
    asked = Asked()
    asked.held_before = asked.held = await trio.to_thread.run_sync(_newest, store, log)
    shared = (await trio.to_thread.run_sync(store.shared)).get(log, 0)
    async with running_node(store, NodeConfig(workers=1, lock=False, only=log)) as node:
        with trio.move_on_after(WITHIN_S) as scope:
            async with trio.open_nursery() as nursery:
                for address in addresses:
                    nursery.start_soon(_ask, node, log, address, asked, scope)
        for address in addresses:
            name = str(address)
            if name not in asked.newest:
                asked.failed.setdefault(name, f"no answer in {WITHIN_S:.0f} s")
            elif asked.newest[name] > shared:
                await _bring(node, address, asked)
                asked.held = await trio.to_thread.run_sync(_newest, store, log)
    return asked


async def _ask(
    node: Node, log: LogKey, address: PeerAddress, asked: Asked, scope: trio.CancelScope
) -> None:
    name = str(address)
    try:
        stream = await node.entrance.call(address)
        found = await newest_held_by(stream, name, [log], node.host, node.config.session)
    except CannotConnectError as error:
        asked.failed[name] = str(error).removeprefix(f"{name}: ")
    else:
        asked.newest[name] = found.get(log, 0)
        scope.deadline = min(scope.deadline, trio.current_time() + GRACE_S)


async def _bring(node: Node, address: PeerAddress, asked: Asked) -> None:
    """A one-time sync of this log alone. What it does not bring is seen by what is held."""
    with trio.move_on_after(BRING_S):
        try:
            stream = await node.entrance.call(address)
        except CannotConnectError as error:
            asked.failed[str(address)] = str(error)
            return
        member = node.sync(str(address), stream, target=address)
        await member.ended.wait()


def _newest(store: Store, log: LogKey) -> int:
    info = store.log(log)
    return 0 if info is None else info.newest


async def hear_first(node: Node, log: LogKey) -> int:
    """Returns once every peer that a node calls has told what it holds of an own log, or cannot.

    That is for a node that has just begun: later all have, or do not answer, and nobody is waited
    for longer than `WITHIN_S`. What somebody is known to hold is waited for as long. Returns how
    many entries are missing here all the same.
    """
    node.ask(log)
    until = trio.current_time() + WITHIN_S
    while trio.current_time() < until:
        about_to_tell = any(_is_about_to_tell(each, log) for each in node.diallers)
        missing = await _missing(node, log)
        if not about_to_tell and not missing:
            return 0
        await trio.sleep(POLL_S)
    return await _missing(node, log)


def _is_about_to_tell(dialler: Dialler, log: LogKey) -> bool:
    """Whether an address is called for the first time, or who answers there has yet to speak."""
    member = dialler.member
    if member is None or not member.established.is_set():
        return dialler.last_error is None and dialler.attempts <= 1
    knowledge = member.knowledge
    # That it has confirmed a request tells nothing yet: what it holds may be on its way, and was
    # signed over on a busy machine. Only an answer to the question, or a refusal, says it all.
    told = log in knowledge.told or log in knowledge.refused
    return not told and trio.current_time() < member.since_s + TELL_S


async def _missing(node: Node, log: LogKey) -> int:
    known = max((member.knowledge.newest.get(log, 0) for member in node.members), default=0)
    if not known:
        return 0
    return max(0, known - await trio.to_thread.run_sync(_newest, node.host.store, log))
