"""Scopes that change, and peers that are removed (doors.md 3), and what is due in spite of that.

Each node has a row for every other one in the table of its store, as `peer allow` makes them. The
rule of who may read and write what is stated here once more, apart from the product's own code.
"""

import random
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from logstore import ALL, Follow, NoSuchPeer, PeerRule, ReadScope, RuleChange, WriteScope
from peer.node.doors.admission import Doors
from wire import LogKey

from .truth import Broken, short

if TYPE_CHECKING:
    from .link import End
    from .node import SimNode
    from .world import World

TROUBLES = ("scopes", "removals")
EVERYTHING: ReadScope = frozenset((ALL,))
OPEN_SHARE = 0.5
"""Of the worlds, those in which everybody may do everything in the end."""
CLOSED = PeerRule(allowed=False, read=frozenset(), write=WriteScope.NONE)
"""What goes for who is let in no more, until its connections have ended."""


def may_read(rule: PeerRule, log: LogKey) -> bool:
    """Whether anything of a log may be sent to a peer."""
    return ALL in rule.read or log.author in rule.read or log in rule.read


def may_write(rule: PeerRule, log: LogKey, *, own: bytes, peer: bytes) -> bool:
    """Whether a log may be taken in from a peer; `own`: the author of the node that takes it."""
    if log.author == own:
        # Own logs are taken back only from who may read them.
        return rule.write is WriteScope.FOLLOWED and may_read(rule, log)
    return rule.write is WriteScope.FOLLOWED or (
        rule.write is WriteScope.OWN and log.author == peer
    )


def connect(first: "SimNode", second: "SimNode") -> bool:
    """Whether both nodes run, and let each other in."""
    if not (first.alive and second.alive):
        return False
    if first.is_paused(second.store.author) or second.is_paused(first.store.author):
        return False
    return None not in (first.rule_of(second.store.author), second.rule_of(first.store.author))


class Doorkeeper:
    """What every node allows every other one, now and at any time before."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.is_strict = bool({*TROUBLES} & {*world.plan.troubles})
        self.doors = Doors(allow_any=not self.is_strict, any_write=WriteScope.FOLLOWED)
        if world.plan.hours and self.is_strict:
            self.doors = _draw_doors(world.plan.rng("any doors"))
        self._named: dict[str, set[bytes]] = defaultdict(set)
        """Whom the table of a node has let in, while its process runs."""
        self._ever: dict[tuple[str, bytes], set[PeerRule]] = defaultdict(set)

    def settle(self) -> None:
        """Everybody knows everybody, from the beginning."""
        if not self.is_strict:
            return
        rng = self._world.plan.rng("doors")
        for node in self._world.nodes:
            for other in self._others(node):
                change = RuleChange()
                if "scopes" in self._world.plan.troubles and rng.random() < 0.6:
                    change = self._draw(rng)
                node.store.peers.allow(other.store.author, change)
            node.read_rules()

    def opened(self, node: "SimNode") -> None:
        """A process of a node begins, which knows nothing of the last one's removals."""
        self._named[node.name] = set()

    def took(self, node: "SimNode", rules: Mapping[bytes, PeerRule]) -> None:
        """A node has read its table."""
        self._named[node.name] |= {peer for peer, rule in rules.items() if rule.allowed}
        self._named[node.name] -= {peer for peer, rule in rules.items() if not rule.allowed}

    def note(self, node: "SimNode", peer: bytes, rule: PeerRule | None) -> None:
        """This goes for a peer of a node from now on."""
        self._ever[node.name, peer].add(rule or CLOSED)

    # What happens

    def happen(self, trouble: str, node: "SimNode", rng: random.Random) -> None:
        """A user decides something else of another node."""
        if not node.alive:
            return
        other = rng.choice(self._others(node)).store.author
        if trouble == "scopes":
            node.decide(partial(_allow, node, other, self._draw(rng)))
            return
        node.decide(partial(_block if rng.random() < 0.5 else remove_peer, node, other))

        def let_in() -> None:
            if node.alive and not self._world.is_healed:
                node.decide(partial(_allow, node, other, RuleChange()))

        self._world.clock.after(rng.uniform(0.01, 5.0), let_in)

    def rest(self) -> None:
        """Everybody is let in, and scopes stay as they are from now on, or are everything."""
        if not self.is_strict:
            return
        is_open = self._world.plan.rng("open doors").random() < OPEN_SHARE
        everything = RuleChange(read=EVERYTHING, write=WriteScope.FOLLOWED)
        change = everything if is_open else RuleChange()
        self._world.note("everybody may do everything" if is_open else "scopes stay as they are")
        for node in self._world.nodes:
            for other in self._others(node):
                node.decide(partial(_allow, node, other.store.author, change))

    def _draw(self, rng: random.Random) -> RuleChange:
        world = self._world
        authors = [*(node.store.author for node in world.nodes), *world.strangers.authors]
        targets: list[Follow] = [
            *authors,
            *(LogKey(author, n) for author in authors for n in (0, 0, 1)),
        ]
        some: ReadScope = frozenset(rng.sample(targets, rng.randint(1, 4)))
        nothing: ReadScope = frozenset()
        reads = rng.choice((EVERYTHING, nothing, some))
        write = rng.choice((WriteScope.FOLLOWED, WriteScope.FOLLOWED, *WriteScope))
        read_only, write_only = rng.random() < 0.2, rng.random() < 0.2
        return RuleChange(read=None if write_only else reads, write=None if read_only else write)

    def _others(self, node: "SimNode") -> "list[SimNode]":
        return [other for other in self._world.nodes if other is not node]

    # What is due

    def passes(self, giver: "SimNode", taker: "SimNode", log: LogKey) -> bool:
        """Whether one node may send a log now, and the other one may take it."""
        theirs, ours = giver.rule_of(taker.store.author), taker.rule_of(giver.store.author)
        if theirs is None or ours is None:
            return False
        own, peer = taker.store.author, giver.store.author
        return may_read(theirs, log) and may_write(ours, log, own=own, peer=peer)

    def check(self, end: "End") -> None:
        """Nobody is connected whom the table of peers, as it was last read, does not let in."""
        rule, named = end.node.book.wanted.peers.get(end.peer), self._named[end.node.name]
        # Who was removed does not come in again with those whom nobody has named.
        let_in = (
            end.node.doors.allow_any and end.peer not in named if rule is None else rule.allowed
        )
        if self.is_strict and end.ending is None and not let_in:
            raise Broken(f"{end} is connected, and may not be")

    def check_spread(self) -> None:
        """Nobody holds what no chain of rights has ever led to. Raises Broken."""
        if not self.is_strict:
            return
        for log in sorted(self._world.truth.entries):
            reached = self._sources(log)
            waits = list(reached)
            while waits:
                giver = waits.pop()
                for taker in self._others(giver):
                    if taker.name not in {node.name for node in reached} and self._ever_passed(
                        giver, taker, log
                    ):
                        reached.append(taker)
                        waits.append(taker)
            for node in self._world.nodes:
                if node not in reached and self._world.holdings.of(node, log).entries:
                    raise Broken(f"{node.name} holds {short(log)}, which nobody might give it")

    def _sources(self, log: LogKey) -> "list[SimNode]":
        homes = [*self._world.strangers.homes_of(log), *self._world.visitors.hosts_of(log)]
        return [n for n in self._world.nodes if n.store.author == log.author or n in homes]

    def _ever_passed(self, giver: "SimNode", taker: "SimNode", log: LogKey) -> bool:
        own, peer = taker.store.author, giver.store.author
        given = any(may_read(rule, log) for rule in self._ever[giver.name, own])
        rules = self._ever[taker.name, peer]
        return given and any(may_write(rule, log, own=own, peer=peer) for rule in rules)


def _draw_doors(rng: random.Random) -> Doors:
    """Who is let in that has no row, and with what: everybody, in most worlds, or nobody."""
    return Doors(
        allow_any=rng.random() < 0.9,
        any_read=rng.choice((EVERYTHING, EVERYTHING, frozenset[Follow]())),
        any_write=rng.choice((WriteScope.FOLLOWED, WriteScope.FOLLOWED, *WriteScope)),
    )


def _allow(node: "SimNode", peer: bytes, change: RuleChange) -> None:
    node.store.peers.allow(peer, change)


def _block(node: "SimNode", peer: bytes) -> None:
    node.store.peers.block(peer)


def remove_peer(node: "SimNode", peer: bytes) -> None:
    """Forgets a peer, if it is known."""
    with suppress(NoSuchPeer):
        node.store.peers.remove(peer)
