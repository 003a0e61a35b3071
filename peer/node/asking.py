"""Asks peers what they hold of own logs before another entry of them is signed.

What has restored a whole machine has restored everything that could tell; only others know then
that a number was signed already. All are asked at once, and whoever answers first does not make the
others wait for whoever does not. What they hold and this store does not is brought, and what both
hold is compared (peer.planner.withholding), before anything is said to be in order. Who writes to
many logs asks of all of them over one connection: what one costs is a proposal and its answer.
"""

from collections.abc import Collection, Sequence
from typing import Final

import trio
from msgspec import Struct, field

from logstore import Store
from peer import InterestsChanged
from peer.node.links.addresses import PeerAddress
from peer.node.links.dialling import CannotConnectError, Dialler
from wire import LogKey

from .node import Node, NodeConfig, running_node
from .probing import WANTS_NOTHING, newest_held_by

WITHIN_S: Final = 3.0
"""How long an answer is waited for: of any log, since the one before."""
GRACE_S: Final = 0.5
"""How much longer the others are, once somebody has answered."""
BRING_S: Final = 60.0
"""How long it may take to bring what this store lacks."""
POLL_S: Final = 0.05
TELL_S: Final = 1.0
"""Who is connected for so long and has said nothing of a log has nothing to say of it."""


class Asked(Struct):
    """What came of it."""

    newest: dict[str, dict[LogKey, int]] = field(default_factory=dict)
    """The newest entry of each log that a peer holds and gives out, of those that have answered."""
    failed: dict[str, str] = field(default_factory=dict)
    """Why each of the others has not."""
    held_before: dict[LogKey, int] = field(default_factory=dict)
    """The newest entry of each log that was held here..."""
    held: dict[LogKey, int] = field(default_factory=dict)
    """... and that is held now."""

    @property
    def brought(self) -> dict[LogKey, int]:
        """How many entries of a log were brought, of each that has grown."""
        grown = {log: held - self.held_before[log] for log, held in self.held.items()}
        return {log: count for log, count in grown.items() if count > 0}

    @property
    def behind(self) -> dict[LogKey, int]:
        """The newest entry that somebody holds, of logs whose entries could not be brought."""
        newest: dict[LogKey, int] = {}
        for told in self.newest.values():
            for log, seq in told.items():
                newest[log] = max(seq, newest.get(log, 0))
        return {log: seq for log, seq in newest.items() if seq > self.held[log]}


async def ask_peers(
    store: Store, logs: Collection[LogKey], addresses: Sequence[PeerAddress]
) -> Asked:
    """Asks what peers hold of own logs, brings what is missing here, and compares the rest.

    Nobody is waited for who has said nothing for `WITHIN_S`, nor anybody for longer than `GRACE_S`
    once somebody has said all. An entry that contradicts one that was signed here contests its log
    (`Store.contested`). Raises StoreError.
    """
    asked, only = Asked(), frozenset(logs)
    asked.held_before = asked.held = await trio.to_thread.run_sync(_newest, store, only)
    shared = await trio.to_thread.run_sync(store.shared)
    async with running_node(store, NodeConfig(workers=1, lock=False, only=only)) as node:
        with trio.move_on_after(WITHIN_S) as scope:
            async with trio.open_nursery() as nursery:
                for address in addresses:
                    nursery.start_soon(_ask, node, only, address, asked, scope)
        for address in addresses:
            name = str(address)
            if name not in asked.newest:
                asked.failed.setdefault(name, f"no answer in {WITHIN_S:.0f} s")
            elif any(seq > shared.get(log, 0) for log, seq in asked.newest[name].items()):
                await _bring(node, address, asked)
                asked.held = await trio.to_thread.run_sync(_newest, store, only)
    return asked


async def _ask(
    node: Node, logs: frozenset[LogKey], address: PeerAddress, asked: Asked, scope: trio.CancelScope
) -> None:
    name = str(address)

    def heard() -> None:
        # Of ten thousand logs answers come for a while; who is silent is no reason to wait for.
        if not asked.newest:
            scope.deadline = trio.current_time() + WITHIN_S

    try:
        stream = await node.entrance.call(address)
        found = await newest_held_by(
            stream,
            name,
            logs,
            node.host,
            node.config.session,
            interests=node.entrance.scoped(stream, InterestsChanged(WANTS_NOTHING, ())).interests,
            heard=heard,
        )
    except CannotConnectError as error:
        asked.failed[name] = str(error).removeprefix(f"{name}: ")
    else:
        asked.newest[name] = found
        scope.deadline = min(scope.deadline, trio.current_time() + GRACE_S)


async def _bring(node: Node, address: PeerAddress, asked: Asked) -> None:
    """A one-time sync of these logs alone. What it does not bring is seen by what is held."""
    with trio.move_on_after(BRING_S):
        try:
            stream = await node.entrance.call(address)
        except CannotConnectError as error:
            asked.failed[str(address)] = str(error)
            return
        member = node.sync(str(address), stream, target=address)
        await member.ended.wait()


def _newest(store: Store, logs: Collection[LogKey]) -> dict[LogKey, int]:
    found = {log: store.log(log) for log in logs}
    return {log: 0 if info is None else info.newest for log, info in found.items()}


async def hear_first(node: Node, logs: Collection[LogKey]) -> dict[LogKey, int]:
    """Returns once every peer that a node calls has told what it holds of own logs, or cannot.

    That is for a node that has just begun: later all have, or do not answer, and nobody is waited
    for longer than `WITHIN_S`, however many logs there are. What somebody is known to hold is
    waited for as long. Returns the logs of which entries are missing here all the same, and how
    many.
    """
    node.ask(logs)
    until = trio.current_time() + WITHIN_S
    while trio.current_time() < until:
        about_to_tell = any(_is_about_to_tell(each, logs) for each in node.diallers)
        missing = await _missing(node, logs)
        if not about_to_tell and not missing:
            return {}
        await trio.sleep(POLL_S)
    return await _missing(node, logs)


def _is_about_to_tell(dialler: Dialler, logs: Collection[LogKey]) -> bool:
    """Whether an address is called for the first time, or who answers there has yet to speak."""
    member = dialler.member
    if member is None or not member.established.is_set():
        return dialler.last_error is None and dialler.attempts <= 1
    if trio.current_time() >= member.since_s + TELL_S:
        return False
    # That it has confirmed a request tells nothing yet: what it holds may be on its way, and was
    # signed over on a busy machine. Only an answer to the question, or a refusal, says it all.
    knowledge = member.knowledge
    return any(log not in knowledge.told and log not in knowledge.refused for log in logs)


async def _missing(node: Node, logs: Collection[LogKey]) -> dict[LogKey, int]:
    known = {
        log: max((member.knowledge.newest.get(log, 0) for member in node.members), default=0)
        for log in logs
    }
    known = {log: newest for log, newest in known.items() if newest}
    if not known:
        return {}
    held = await trio.to_thread.run_sync(_newest, node.host.store, known)
    return {log: newest - held[log] for log, newest in known.items() if newest > held[log]}
