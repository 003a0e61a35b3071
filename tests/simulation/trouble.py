"""What happens to a world: every event is of one kind of trouble, and is drawn from the seed."""

import errno
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from logstore import ALL, FULL, Follow
from peer.protocol.request import Request
from wire import Adjust, Cancel, CancelReason, LogKey, shortest_path

from .keeping import draw_rule
from .plan import LOGS_S, LONG_PAUSE_S
from .room import draw_limits
from .subscribing import draw_subscription, narrowed

if TYPE_CHECKING:
    from .link import Link
    from .node import SimNode
    from .world import World


class Trouble:
    """Makes things happen to a world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._rng = world.plan.rng("events")

    def happen(self) -> None:
        """One event."""
        world = self._world
        trouble = self._rng.choice(world.plan.troubles)
        node = self._rng.choice(world.nodes)
        link = self._rng.choice(world.links)
        world.note(f"event: {trouble} {node.name}")
        match trouble:
            case "appends" | "large" | "ends":
                self._append(node, trouble)
            case "forks" | "sizes":
                world.strangers.go_on(trouble, self._rng)
            case "follows" | "fetches" | "drops" | "subscriptions":
                self._change_mind(node, trouble)
            case "writes" | "syncs" | "full" | "reads" | "kills" | "power" | "slow":
                self._harm(node, trouble)
            case "scopes" | "removals":
                world.doorkeeper.happen(trouble, node, self._rng)
            case "forgets":
                self._forget(node)
            case "keeps":
                self._keep(node)
            case "pauses":
                self._pause(node)
            case "quotas":
                node.room.limit(draw_limits(self._rng))
            case "adjusts":
                self._adjust(node, link)
            case _:
                self._disturb(link, trouble)

    # Users

    def _append(self, node: "SimNode", how: str) -> None:
        if not node.alive:
            return
        small, large = (0, 1, 30, 64, 65, 300, 2_000), (30_000, 65_536, 65_537, 150_000)
        sizes = large if how == "large" else small
        count = 1 if how == "large" else self._rng.choice((1, 1, 2, 10))
        payloads = [self._rng.randbytes(self._rng.choice(sizes)) for _ in range(count)]
        log_id = self._rng.choice((0, 0, 1, 7)) + 10 * int(self._world.clock.now / LOGS_S)
        node.append(log_id, payloads, end=how == "ends")

    def _change_mind(self, node: "SimNode", trouble: str) -> None:
        if not node.alive:
            return
        if trouble == "follows":
            self._change_follows(node)
            return
        if trouble == "subscriptions":
            self._change_subscription(node)
            return
        logs = [log for log in sorted(self._world.truth.entries) if log.author != node.store.author]
        if logs:
            log, first = self._rng.choice(logs), self._rng.randint(1, 10)
            change = node.drop if trouble == "drops" else node.fetch
            change(log, first, first + self._rng.choice((0, 3, 100)))

    def _forget(self, node: "SimNode") -> None:
        """Somebody wants no more of a log, and perhaps wants it again after a while."""
        own = node.store.author
        logs = [log for log in sorted(self._world.truth.entries) if log.author != own]
        if not node.alive or not logs:
            return
        log = self._rng.choice(logs)
        node.forget(log, unfollowed=self._rng.random() < 0.8)
        if self._rng.random() < 0.5:

            def again() -> None:
                if node.alive:
                    node.follow(log)

            self._change_back(self._rng.uniform(0.0, 3.0), again)

    def _keep(self, node: "SimNode") -> None:
        """Somebody has a rule for payloads, another one, or none any more."""
        if not node.alive:
            return
        rules = list(node.book.wanted.keeps)
        if rules and self._rng.random() < 0.3:
            node.keep(self._rng.choice(rules), None)
            return
        log = self._rng.choice(sorted(self._world.truth.entries) or [LogKey(node.store.author, 0)])
        target: Follow = self._rng.choice((log, log, log.author, ALL))
        node.keep(target, draw_rule(self._rng))

    def _pause(self, node: "SimNode") -> None:
        """Somebody has no connections for a while, or none with one peer."""
        others = [other.store.author for other in self._world.nodes if other is not node]
        if not node.alive or not others:
            return
        peer = self._rng.choice((None, *others))
        pause_s = self._rng.choice((0.01, 0.5, 5.0, 20.0))
        if self._rng.random() < 0.5:
            node.pause(peer, node.disk.now_us() + round(pause_s * 1_000_000))
            return
        node.pause(peer, None)

        def resume() -> None:
            if node.alive:
                node.resume(peer)

        self._change_back(pause_s, resume)

    def _change_back(self, delay_s: float, change: Callable[[], None]) -> None:
        """A change of mind is taken back later, though the trouble may be over by then."""
        self._world.clock.after(delay_s, change)
        self._world.changes_until = max(self._world.changes_until, self._world.clock.now + delay_s)

    def _change_follows(self, node: "SimNode") -> None:
        author = self._rng.choice([each.store.author for each in self._world.nodes])
        target = self._rng.choice((author, LogKey(author, 0), LogKey(author, 1)))
        if self._rng.random() < 0.3:
            node.unfollow(target)
        else:
            node.follow(target)

    def _change_subscription(self, node: "SimNode") -> None:
        target = self._followed_by(node)
        if target is not None:
            node.follow(target, draw_subscription(self._rng))

    def _followed_by(self, node: "SimNode") -> Follow | None:
        followed = node.book.wanted.follows
        return self._rng.choice(followed) if followed else None

    # Machines

    def _harm(self, node: "SimNode", trouble: str) -> None:
        if trouble in {"kills", "power"} and node is self._world.ageing.elder:
            return
        match trouble:
            case "kills":
                node.crash(power=False)
                self._world.restart_later(node, self._rng)
            case "power":
                node.power_cut_at = node.disk.operations + self._rng.randint(1, 40)
            case "slow":
                node.pace.was_slow = True
                node.pace.slow_until = self._world.clock.now + self._rng.uniform(0, 5)
            case _:
                self._fail_disk(node, trouble)

    def _fail_disk(self, node: "SimNode", trouble: str) -> None:
        kinds = {
            "writes": ("write", errno.EIO),
            "syncs": ("sync", errno.EIO),
            "full": ("write", errno.ENOSPC),
            "reads": ("read", errno.EIO),
        }
        kind, code = kinds[trouble]
        node.failing[kind] = code
        self._world.clock.after(self._rng.uniform(0.01, 3.0), partial(node.recover, kind))

    # Connections

    def _disturb(self, link: "Link", trouble: str) -> None:
        match trouble:
            case "cuts":
                link.cut_now()
            case "partitions":
                longest_s = LONG_PAUSE_S if self._world.plan.hours else 20
                link.blocked_until = self._world.clock.now + self._rng.uniform(0, longest_s)
                link.cut_now()
            case "once":
                link.policies = self._rng.choice(
                    (("sync", "follow"), ("follow", "sync"), ("sync", "sync"))
                )
                link.cut(None, "for a sync")
            case "cancels":
                self._cancel(link)
            case "lies":
                if link.is_up and not any(end.lie for end in link.ends):
                    self._rng.choice(link.ends).begin_to_lie()
            case _:
                raise AssertionError(trouble)

    def _cancel(self, link: "Link") -> None:
        if not link.is_up:
            return
        end = self._rng.choice(link.ends)
        engine = end.engine
        requests = [] if engine is None else [r for r in engine._table.all() if r.active]
        if engine is not None and requests:
            request = self._rng.choice(requests)
            end.guarded(lambda: engine._give_up(request, "a whim"), stirs=True)

    # Requests in force

    def _adjust(self, node: "SimNode", link: "Link") -> None:
        """Makes requests narrower: by what a user wants for a moment, or one of them at once."""
        if self._rng.random() < 0.5:
            self._narrow_for_a_moment(node)
        elif link.is_up and link.once is None:
            for end in link.ends if self._rng.random() < 0.3 else (self._rng.choice(link.ends),):
                engine = end.engine
                requests = [] if engine is None else [r for r in engine._table.all() if r.active]
                if engine is not None and requests:
                    request = self._rng.choice(requests)
                    self._world.note(f"{end} changes request {request.number}")
                    adjust = self._tighter(request)
                    if adjust is None:
                        # With 128 goes that this side asks for what it needs itself.
                        mine = request.ours
                        reason = CancelReason.NOT_WANTED if mine else CancelReason.NO_RESOURCES
                        cancel = Cancel(request.number, reason)
                        end.guarded(partial(engine.actor.cancel, request, cancel), stirs=True)
                    else:
                        end.guarded(partial(engine.actor.adjust, request, adjust), stirs=True)

    def _narrow_for_a_moment(self, node: "SimNode") -> None:
        target = self._followed_by(node) if node.alive else None
        if target is None:
            return
        before = node.book.wanted.subscriptions.get(target, FULL)
        node.follow(target, narrowed(self._rng, before))

        def restore() -> None:
            if node.alive and target in node.book.wanted.subscriptions:
                node.follow(target, before)

        self._change_back(self._rng.choice((0.0, 0.01, 0.5, 3.0)), restore)

    def _tighter(self, request: Request) -> Adjust | None:
        """A lower end, if there is one behind what has moved; None: only a cancel is possible."""
        base = request.base
        if base is None or self._rng.random() < 0.3:
            return None
        end = request.lowest_end()
        top = base.start + 20 if end is None else end
        ends = range(base.start, top)
        if base.path is not None and base.end is not None:
            ends_on_path = [n for n in shortest_path(base.end, base.start) if n < top]
            return self._with_end(request, ends_on_path)
        return self._with_end(request, list(ends))

    def _with_end(self, request: Request, ends: list[int]) -> Adjust | None:
        return Adjust(request.number, end=self._rng.choice(ends)) if ends else None
