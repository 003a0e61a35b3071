"""A one-time sync: one connection, both sides brought to what both have, and what came of it."""

import trio
from msgspec import Struct

from logstore import Store
from peer import Interests
from peer.node.links.addresses import PeerAddress, called_at
from peer.node.links.connection import EndKind
from peer.node.links.greedy import Greedy
from peer.node.links.knowledge import Knowledge
from peer.node.status.reasons import lack_of

from .node import Node


class SyncError(Exception):
    """A one-time sync did not come to its end; the text is one line for people."""

    def __init__(self, reason: str, kind: EndKind | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        """How the connection ended, where that tells more than that something is missing."""


class SyncSummary(Struct, frozen=True):
    """What a one-time sync moved. Payload bytes are uncompressed, bytes are the transport's."""

    logs: int
    """Logs that either side wanted."""
    entries_received: int
    entries_sent: int
    payload_bytes_received: int
    payload_bytes_sent: int
    bytes_received: int
    bytes_sent: int
    saved_bytes_received: int
    """By how much compression made the payload bytes fewer that came..."""
    saved_bytes_sent: int
    """... and that went."""
    duration_s: float


async def sync_once(
    node: Node,
    store: Store,
    target: PeerAddress | trio.abc.Stream,
    greedy: Greedy | None = None,
) -> SyncSummary:
    """Syncs once with whoever is at an address, or at the other end of a stream.

    Raises CannotConnectError, SyncError.
    """
    started = trio.current_time()
    called: PeerAddress | None = None
    if isinstance(target, trio.abc.Stream):
        name, stream = "stream", target
    else:
        called = called_at(target, greedy)
        name, stream = str(called), await node.entrance.call(called)
        greedy = called.greedy
    member = node.sync(name, stream, greedy=greedy, target=called)
    await member.ended.wait()
    reason = "ended by us" if member.ending is None else member.ending.reason
    if member.ending is not None and member.ending.kind is EndKind.DENIED:
        raise SyncError(f"refused by {name}: {reason}", EndKind.DENIED)
    if member.connection.not_kept is not None:
        raise SyncError(f"{name}: not all that came could be kept: {member.connection.not_kept}")
    if member.logs_synced is None:
        raise SyncError(f"{name}: {reason}", None if member.ending is None else member.ending.kind)
    if member.ending is None or member.ending.kind is not EndKind.CLOSED:
        raise SyncError(f"{name}: {reason}, before it had said that what was sent is kept there")
    if (not_given := member.connection.not_given) is not None:
        raise SyncError(f"{name}: not all that is held could be read: {not_given}")
    unfinished = await trio.to_thread.run_sync(_unfinished, store, node.interests, member.knowledge)
    if unfinished is not None:
        raise SyncError(f"{name}: {unfinished}")
    info = member.info()
    return SyncSummary(
        logs=member.logs_synced,
        entries_received=info.entries_received,
        entries_sent=info.entries_sent,
        payload_bytes_received=info.payload_bytes_received,
        payload_bytes_sent=info.payload_bytes_sent,
        bytes_received=info.bytes_received,
        bytes_sent=info.bytes_sent,
        saved_bytes_received=info.saved_bytes_received,
        saved_bytes_sent=info.saved_bytes_sent,
        duration_s=trio.current_time() - started,
    )


def _unfinished(store: Store, interests: Interests, knowledge: Knowledge) -> str | None:
    """What was begun in a one-time sync and is missing all the same, in words."""
    for log in (*knowledge.given_up, *knowledge.broken_off):
        subscription = interests.subscription(log)
        lack = lack_of(store, log, subscription, knowledge.newest.get(log, 0))
        if not interests.follows(log) or not (lack.entries or lack.payloads):
            continue
        if (given_up := knowledge.given_up.get(log)) is not None:
            return f"what came of {log} could not be kept: {given_up.detail}"
        return f"the other side broke off what it sent of {log}; its log may say why"
    return None
