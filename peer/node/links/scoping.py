"""What the session with a peer is told of wants and offers, by what goes for that peer."""

from collections.abc import Iterator

from msgspec.structs import replace

from logstore import ALL, PeerRule, ReadScope, WriteScope
from peer import InterestsChanged, Scope
from wire import LogKey


def scoped(
    event: InterestsChanged, peer_id: bytes | None, rule: PeerRule | None
) -> InterestsChanged:
    """What this node wants and offers, as far as a peer may know of it.

    `peer_id`: None for who has proved none, and may do everything. `rule`: what goes for it, None
    if it is let in no more.
    """
    if peer_id is None:
        return event
    # Who is let in no more is on its way out, and may do nothing meanwhile.
    rule = rule or PeerRule(allowed=False, read=frozenset(), write=WriteScope.NONE)
    if ALL in rule.read and rule.write is WriteScope.FOLLOWED:
        return event
    reads = None if ALL in rule.read else frozenset(_named(rule.read))
    scope = Scope(reads, rule.write, peer_id)
    return replace(event, interests=replace(event.interests, scope=scope))


def _named(read: ReadScope) -> Iterator[bytes | LogKey]:
    for target in read:
        if isinstance(target, bytes | LogKey):
            yield target
