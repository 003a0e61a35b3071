"""What a program says it wants of a peer: what is followed, and which payloads are kept.

It is a half of `peer.api.Peer`, apart from the rest since that is long enough. A target may be
text: what people write for a log or an author (`Store.resolve`, which says what it raises).
"""

import trio

from logstore import AnyTarget, Follow, KeepRule, Store, Subscription, Tidied, check_wish

from .arguments import target_in
from .keeping import tidy_now
from .node import Node
from .pending import PendingCalls


class Wishes:
    """Says what is wanted. See `peer.api.Peer`."""

    store: Store
    _pending: PendingCalls

    @property
    def node(self) -> Node:
        """What runs underneath. RuntimeError outside of the block."""
        raise NotImplementedError

    async def follow(self, target: AnyTarget, subscription: Subscription | None = None) -> bool:
        """Follows a log, an author (32 bytes) or `ALL`, from now on and after a restart.

        `subscription`: what of it is wanted; None leaves that as it is, at first everything. Own
        logs are always wanted in full, and what is said of a log comes before what is said of its
        author, that before what is said of `ALL`. False if nothing changes. Raises ValueError for
        what names no log or author.
        """
        check_wish(subscription)
        return await self.node.follow(await target_in(self.store, target), subscription)

    @property
    def subscriptions(self) -> dict[Follow, Subscription]:
        """What is followed, and what of it is wanted."""
        return self.node.subscriptions

    async def keep(self, target: AnyTarget, rule: KeepRule | None) -> bool:
        """Which payloads are kept of a log, of an author's logs (32 bytes) or of `ALL`.

        The others are deleted, within seconds, from now on and after a restart, and not asked for;
        None ends the rule, which brings nothing back: `fetch` does. The rule of a log comes before
        that of its author, that before that of `ALL`, which goes for no own log. False if nothing
        changes. The event `kept` says what was deleted. Raises ValueError for what names no log or
        author, or a rule without a limit.
        """
        check_wish(rule=rule)
        return await self.node.keep(await target_in(self.store, target), rule)

    @property
    def keeps(self) -> dict[Follow, KeepRule]:
        """The rules of what is kept."""
        return self.node.keeps

    async def tidy(self, target: AnyTarget | None = None, *, dry_run: bool = False) -> list[Tidied]:
        """Deletes now what rules say (`keep`), of all logs or those of a target: a line for each.

        `dry_run`: deletes nothing, and returns the same. Raises StoreError; ValueError for what
        names no log or author.
        """
        found = None if target is None else await target_in(self.store, target)
        if dry_run:
            return await trio.to_thread.run_sync(self.store.plan_tidying, found)
        with self._pending.waiting():
            return await tidy_now(self.node.host, found)

    async def unfollow(self, target: AnyTarget) -> bool:
        """Takes back `follow`, for later connections; False if exactly that was not followed."""
        return await self.node.unfollow(await target_in(self.store, target))
