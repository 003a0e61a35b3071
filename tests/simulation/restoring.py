"""Worlds in which stores are put back as they once were, and nobody signs a number twice.

Nodes append and replicate, are killed, lose their power and find their disks failing, as in other
worlds. Now and then the files of a store are copied; later, whatever has happened meanwhile, its
machine stops and the copy takes their place: the same inodes, as nothing but the witness is to be
seen at work. At the end the operator confirms each store that has all of its entries back, and it
goes on with the next number.

When a whole machine is put back, its witness is too, and nothing on it can tell: its user does not
append before he has heard of everything he signed. In this world he knows.
"""

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from logstore import LogVerdict, OwnLogsReadOnly, StoreError
from tests.records import replace

from .node import SimNode
from .plan import Plan
from .run import SimulationFailed, report, small_steps
from .truth import Broken
from .world import World

TROUBLES = ("appends", "large", "kills", "power", "cuts", "writes", "syncs", "full", "slow")
"""What happens besides. Nothing that makes logs invalid, which would end them."""
HEARD_S = 60.0


@dataclass(slots=True)
class Outcome:
    """What happened in a world, or in several."""

    restores: int = 0
    behind: int = 0
    """Restores of a store that has signed something since its image was made."""
    refused: int = 0
    """Attempts to append that a store has refused."""
    confirmed: int = 0

    def add(self, other: "Outcome") -> None:
        """Counts another world."""
        self.restores += other.restores
        self.behind += other.behind
        self.refused += other.refused
        self.confirmed += other.confirmed


def run_restoring(plan: Plan, *, trace: bool = False) -> Outcome:
    """The world of a plan, with restores. Raises SimulationFailed."""
    plan = replace(
        plan,
        troubles=("appends", "appends", *(t for t in TROUBLES if t in plan.troubles)),
        reconnect=False,
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        World(plan, Path(folder)) as world,
        small_steps(world.clock),
    ):
        world.printing = trace
        try:
            return _Restoring(world).run()
        except Exception as error:
            raise SimulationFailed(report(world, error, "--restores")) from error


class _Restoring:
    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.plan.rng("restores")
        self._outcome = Outcome()
        self._images: dict[str, list[tuple[bool, dict[str, bytes]]]] = {}
        self._unaware: set[str] = set()
        """Machines that were put back whole."""
        for node in world.nodes:
            node.append = partial(self._append, node, node.append)  # type: ignore[method-assign]
        for _ in range(self._rng.randint(2, 12)):
            self._later(self._copy)
            self._later(self._restore)

    def run(self) -> Outcome:
        """The whole story. Raises Broken, or whatever the product raises."""
        world = self._world
        while world.clock.step(world.plan.duration_s):
            world.after_step()
        world.heal()
        world.run_for(HEARD_S)
        for node in world.nodes:
            self._end(node)
        world.run_for(1.0)
        return self._outcome

    def _later(self, do: Callable[[random.Random], None]) -> None:
        at = self._rng.uniform(0, self._world.plan.duration_s)
        self._world.clock.after(at, partial(do, self._rng))

    def _copy(self, rng: random.Random) -> None:
        node, whole = rng.choice(self._world.nodes), rng.random() < 0.2
        self._world.note(f"{node.name} is copied{' whole' if whole else ''}")
        self._images.setdefault(node.name, []).append((whole, node.image(whole=whole)))

    def _restore(self, rng: random.Random) -> None:
        node = rng.choice(self._world.nodes)
        if node.name not in self._images:
            return
        how = rng.choice(("killed", "power", "clean", "stays down"))
        if node.alive:
            if how == "clean":
                node.store.close()
            node.crash(power=how == "power")
        if not node.alive and rng.random() < 0.2:
            node.disk.cut_power()
        whole, image = rng.choice(self._images[node.name])
        signed = self._signed(node)
        self._world.note(f"{node.name} is put back{' whole' if whole else ''}")
        node.put_back(image)
        if whole:
            self._unaware.add(node.name)
        self._outcome.restores += 1
        node.start()
        self._outcome.behind += self._held(node) < signed
        if how == "stays down":
            node.crash(power=rng.random() < 0.5)
        if not node.alive:
            self._world.restart_later(node, rng)

    def _append(
        self,
        node: SimNode,
        append: Callable[..., None],
        log_id: int,
        payloads: list[bytes],
        *,
        end: bool,
    ) -> None:
        try:
            if node.name in self._unaware:
                if self._held(node) < self._signed(node):
                    return
                self._unaware.discard(node.name)
            self._outcome.refused += node.store.own_logs_read_only is not None
        except StoreError:
            # The disk fails; the attempt itself is to meet it too.
            if node.name in self._unaware:
                return
        append(log_id, payloads, end=end)

    def _signed(self, node: SimNode) -> int:
        """How many entries its author has signed, for whoever knows everything."""
        entries = self._world.truth.entries.items()
        return sum(len(each) for log, each in entries if log.author == node.store.author)

    def _held(self, node: SimNode) -> int:
        return sum(info.entries for info in node.store.logs(node.store.author))

    def _end(self, node: SimNode) -> None:
        """What is refused has a reason, and goes on once the reason is gone."""
        faults = [str(f) for f in node.store.verify() if not isinstance(f, LogVerdict)]
        if faults:
            raise Broken(f"{node.name}: {faults}")
        reason = node.store.own_logs_read_only
        if reason is not None and not node.is_restored:
            raise Broken(f"{node.name} may not sign: {reason}")
        if self._held(node) < self._signed(node):
            if reason is None and node.name not in self._unaware:
                raise Broken(f"{node.name} would sign numbers again")
            return
        if reason is not None:
            try:
                node.store.append([b"refused"], log_id=3)
            except OwnLogsReadOnly:
                node.store.confirm_identity()
                self._outcome.confirmed += 1
            else:
                raise Broken(f"{node.name} signs although {reason}")
        for each in node.store.append([b"the end"], log_id=3):
            self._world.truth.add(each.key, each.seq, each.hash)
