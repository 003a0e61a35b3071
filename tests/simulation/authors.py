"""Authors who break the rules of bamboo.md, and have no store of their own.

Each gives its entries to two nodes near by, which take them in like anything else that is signed.
"""

import random
from typing import TYPE_CHECKING

from nacl.signing import SigningKey

from wire import LogKey

from .truth import ForkingAuthor, SizeLiar, short

if TYPE_CHECKING:
    from .node import SimNode
    from .world import World


class Strangers:
    """All of them in one world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._forkers: list[ForkingAuthor] = []
        self._liars: list[SizeLiar] = []
        self._homes: dict[LogKey, tuple[SimNode, SimNode]] = {}

    @property
    def authors(self) -> list[bytes]:
        """Who may be followed."""
        return [log.author for log in self._homes]

    def homes_of(self, log: LogKey) -> "tuple[SimNode, ...]":
        """Who gets the entries of a log from its author."""
        return self._homes.get(log, ())

    def settle(self) -> None:
        """They are there from the beginning."""
        plan = self._world.plan
        if "forks" in plan.troubles:
            rng = plan.rng("forks")
            for number in range(rng.choice((1, 1, 2))):
                key = SigningKey(b"fork %d" % number + bytes(26))
                forker = ForkingAuthor(key, 0, rng.choice((1, 2, 3, 5, 14)))
                self._forkers.append(forker)
                self._find_homes(forker.log, rng)
                for branch in (0, 1):
                    self._extend(forker, branch, rng.randint(0, 20), rng)
        if "sizes" in plan.troubles:
            rng = plan.rng("sizes")
            liar = SizeLiar(SigningKey(b"size liar".ljust(32)), 0)
            self._liars.append(liar)
            self._find_homes(liar.log, rng)
            self._lie(liar, rng.randint(0, 12), rng)

    def _find_homes(self, log: LogKey, rng: random.Random) -> None:
        first, second = rng.sample(self._world.nodes, 2)
        self._homes[log] = (first, second)

    def go_on(self, trouble: str, rng: random.Random) -> None:
        """One of them signs more."""
        if trouble == "forks":
            forker = rng.choice(self._forkers)
            self._extend(forker, rng.randrange(2), rng.randint(1, 3), rng)
        else:
            liar = rng.choice(self._liars)
            if rng.random() < 0.2:
                self._show_payload(liar, rng)
            else:
                self._lie(liar, rng.randint(1, 3), rng)

    def _extend(self, forker: ForkingAuthor, branch: int, count: int, rng: random.Random) -> None:
        home = self._homes[forker.log][branch]
        for _ in range(count):
            forker.extend(branch, rng, self._world.truth)
        if home.alive:
            # What the node did not get before, because it was down, comes now.
            held = forker.branches[branch]
            home.put(forker.log, [held[seq] for seq in sorted(held)])
        self._world.note(f"{home.name} gets {count} of {short(forker.log)}, history {branch}")

    def _lie(self, liar: SizeLiar, count: int, rng: random.Random) -> None:
        for _ in range(count):
            liar.extend(rng, self._world.truth)
        home = self._homes[liar.log][0]
        if home.alive:
            home.put(liar.log, [liar.made[seq] for seq in sorted(liar.made)])
        self._world.note(f"{home.name} gets {count} of {short(liar.log)}")

    def _show_payload(self, liar: SizeLiar, rng: random.Random) -> None:
        """Somebody gets the bytes of a payload whose size is a lie, by whatever way."""
        home = self._homes[liar.log][1]
        if home.alive and liar.payloads:
            seq = rng.choice(sorted(liar.payloads))
            home.put(liar.log, [liar.with_payload(seq)])
            self._world.note(f"{home.name} gets the payload of {seq} of {short(liar.log)}")

    def show_forks(self) -> None:
        """Histories of the same length show once one of them goes on.

        A starting hash is that of one entry only.
        """
        rng = self._world.plan.rng("end")
        for forker in self._forkers:
            branches = forker.branches
            longer = 0 if len(branches[0]) >= len(branches[1]) else 1
            self._extend(forker, longer, 1, rng)
            self._extend(forker, 1 - longer, 0, rng)
