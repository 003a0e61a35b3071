"""What people want of a store, and what a node remembers in it: names, follows, rules, wants.

All of it is rows, and none of it entries: it is changed in one transaction each, and a node that
runs on the store is told by the counter that such a transaction moves (`changes_wishes`).
"""

from . import following, names, pauses, upkeep, wants
from .arguments import AnyLog, AnyTarget, check_range, check_wish, wrong_type
from .keep_rules import KeepRule, set_rule
from .names import Named
from .pauses import check_id
from .records import All
from .subscriptions import Subscription
from .view import StoreView


class StoreWishes(StoreView):
    """Changes what is wanted. See `Store`, which changes logs as well."""

    def _named(self, target: AnyTarget) -> Named:
        """A log or an author; raises TypeError for `ALL`."""
        found = self._target(target)
        if isinstance(found, All):
            raise wrong_type("target", found, "it is a log or an author")
        return found

    def set_name(self, name: str, target: Named | str) -> bool:
        """Calls a log or an author (32 bytes) so, and no longer what it was called before.

        False if it is called so. Raises NameTaken, ValueError for no name.
        """
        names.check_name(name)
        found = self._named(target)
        with self._database.write() as transaction:
            return names.set_name(transaction.db, name, found)

    def remove_name(self, name: str) -> Named:
        """Takes a name from what is called so, which is returned. Raises NothingSoCalled."""
        with self._database.write() as transaction:
            return names.remove_name(transaction.db, name)

    def follow(self, target: AnyTarget, subscription: Subscription | None = None) -> bool:
        """Remembers to follow a log, an author (32 bytes) or `ALL`, and what of it is wanted.

        None leaves that as it is; at first it is everything. False if nothing changes.
        """
        target = self._target(target)
        check_wish(subscription)
        with self._database.write() as transaction:
            transaction.changes_wishes = True
            return following.follow(transaction.db, target, subscription)

    def unfollow(self, target: AnyTarget) -> bool:
        """Takes back `follow`; False if exactly that was not followed. Works on a full disk."""
        target = self._target(target)

        def unfollow() -> bool:
            with self._database.write(frees=True) as transaction:
                transaction.changes_wishes = True
                return following.unfollow(transaction.db, target)

        return self._opened.reserve.free(unfollow)

    def keep(self, target: AnyTarget, rule: KeepRule | None) -> bool:
        """Remembers which payloads are deleted of a log, an author's logs or `ALL`; None: none.

        The nearest rule counts, and all of it; own logs obey that of the log or of their author
        alone. Whoever serves the store deletes, and `tidy`. False if nothing changes. Raises
        ValueError for a rule without any limit.
        """
        target = self._target(target)
        check_wish(rule=rule)

        def keep() -> bool:
            with self._database.write(frees=True) as transaction:
                transaction.changes_wishes = True
                return set_rule(transaction.db, target, rule)

        return self._opened.reserve.free(keep)

    def pause(self, peer: bytes | None = None, *, until_us: int | None = None) -> bool:
        """Has whoever serves the store make and take no connection with a peer; None: with any.

        `until_us`: microseconds since 1970 by this machine's clock, None: until `resume`. In place
        of a pause of the same that is in force. False if nothing changes. Raises ValueError for an
        id that has not 32 bytes. Works on a full disk.
        """
        if peer is not None:
            check_id(peer)

        def pause() -> bool:
            with self._database.write(frees=True) as transaction:
                transaction.changes_wishes = True
                return pauses.set_pause(transaction.db, peer, until_us, transaction.now_us)

        return self._opened.reserve.free(pause)

    def resume(self, peer: bytes | None = None) -> bool:
        """Takes back `pause`; False if exactly that was not paused any more."""
        if peer is not None:
            check_id(peer)

        def resume() -> bool:
            with self._database.write(frees=True) as transaction:
                transaction.changes_wishes = True
                return pauses.end_pause(transaction.db, peer, transaction.now_us)

        return self._opened.reserve.free(resume)

    def want(self, key: AnyLog, first: int, last: int) -> bool:
        """Asks once for entries and their payloads, also for payloads that `drop` deleted.

        It is remembered until all of it is held, as far as it may exist, or `unwant` or `drop` take
        it back. False, and nothing is remembered, if there is nothing to bring. Raises LogClosed if
        none of it can exist, ValueError for no range.
        """
        key = self._log(key)
        check_range(first, last)
        with self._database.write() as transaction:
            transaction.changes_wishes = True
            return wants.want(transaction, key, first, last)

    def unwant(self, key: AnyLog, first: int, last: int) -> bool:
        """Takes back `want`; False if exactly that was not wanted any more."""
        key = self._log(key)
        check_range(first, last)
        with self._database.write() as transaction:
            transaction.changes_wishes = True
            return wants.unwant(transaction.db, key, first, last)

    def remember(self, name: str, value: bytes | None) -> None:
        """Keeps a small value under a name; None forgets it."""
        with self._database.write() as transaction:
            upkeep.remember(transaction.db, name, value)
