"""Whom a node calls: who was named to it, and whom the table of peers has an address of."""

import logging
import random
from collections.abc import Callable, Mapping
from functools import partial

import trio

from logstore import PeerRule
from peer import SessionConfig

from .addresses import PeerAddress
from .backoff import Backoff
from .calls import Calls
from .dialling import Connect, Dialler
from .entrance import Entrance
from .gate import Gate
from .greedy import Greedy, with_greedy
from .records import Observer
from .roster import Roster

log = logging.getLogger(__name__)


def nothing() -> None:
    """What there is to do where nothing is."""


class Calling:
    """Keeps a `Dialler` for each address that is called. `calls` remembers who was reached."""

    def __init__(
        self,
        entrance: Entrance,
        roster: Roster,
        gate: Gate,
        calls: Calls,
        session: SessionConfig,
        nursery: trio.Nursery,
        rng: random.Random,
        observer: Observer,
    ) -> None:
        self._entrance = entrance
        self._roster = roster
        self._gate = gate
        self._calls = calls
        self._session = session
        self._nursery = nursery
        self._rng = rng
        self._observer = observer
        self._diallers: dict[str, Dialler] = {}
        self._targets: dict[str, PeerAddress] = {}
        self._by_rule: dict[str, PeerAddress] = {}
        """Whom the table of peers has an address of, and nobody else has named."""
        self._calls_known = False

    def connect(self, target: PeerAddress) -> Dialler:
        """Calls a peer, and calls again whenever there is no connection.

        Said again of an address, what is said of greed goes for the next connection. Raises
        ValueError for another word, and for an address at which somebody else is called.
        """
        name = str(target)
        known = self._targets.get(name)
        if known is not None and (known.peer, known.tls) != (target.peer, target.tls):
            raise ValueError(f"{name} is called already, as {known.written}; hang up first")
        exact = self._entrance.exactly(target)
        dialler = self.dial(
            name,
            partial(self._entrance.call, target),
            greedy=target.greedy,
            reached=partial(self._calls.reached, exact),
            called=exact.written,
        )
        self._targets[name] = target
        self._by_rule.pop(name, None)
        return dialler

    def dial(
        self,
        name: str,
        connect: Connect,
        *,
        greedy: Greedy | None = None,
        reached: Callable[[], None] | None = None,
        called: str | None = None,
    ) -> Dialler:
        """Like `connect`, by any transport; the name is shown to people."""
        with_greedy(self._session.setup, greedy)  # else it would fail once connected
        found = self._diallers.get(name)
        if found is not None:
            found.greedy = greedy
        else:
            found = Dialler(
                name,
                connect,
                self._roster,
                self._rng,
                self._observer,
                greedy,
                reached or nothing,
                called,
            )
            self._diallers[name] = found
            self._gate.outgoing += 1
            self._nursery.start_soon(self._run, found)
        return found

    def hang_up(self, name: str) -> None:
        """Ends the connection in good order, if there is one, and calls no more."""
        self._targets.pop(name, None)
        self._by_rule.pop(name, None)
        dialler = self._diallers.pop(name, None)
        if dialler is not None:
            dialler.stop()

    def call_known(self, rules: Mapping[bytes, PeerRule]) -> None:
        """Calls whom the table of peers has an address of, from now on."""
        self._calls_known = True
        self.take_rules(rules)

    def take_rules(self, rules: Mapping[bytes, PeerRule]) -> None:
        """The table of peers says something else: whom it names is called, others no more."""
        if not self._calls_known:
            return
        named = {}
        for peer_id, rule in rules.items():
            if rule.allowed and rule.address is not None:
                try:
                    target = PeerAddress.parse(rule.address)
                except ValueError as error:
                    # It was checked when it was written, but perhaps by a later version.
                    log.warning("the address of peer %s is not called: %s", peer_id.hex(), error)
                else:
                    named[str(target)] = target._replace(peer=peer_id.hex())
        for name in [name for name, target in self._by_rule.items() if named.get(name) != target]:
            self.hang_up(name)
        for name, target in named.items():
            if name not in self._diallers:
                self.connect(target)
                self._by_rule[name] = target

    def stop(self) -> None:
        """Calls nobody any more; connections end in good order."""
        for dialler in self._diallers.values():
            dialler.stop()

    @property
    def diallers(self) -> list[Dialler]:
        """Those who keep the peers connected that are called."""
        return list(self._diallers.values())

    @property
    def called(self) -> list[PeerAddress]:
        """Who is called again and again, by an address."""
        return list(self._targets.values())

    def called_as(self, name: str) -> str | None:
        """How whoever is called by a name is called, in full; None: by no address."""
        dialler = self._diallers.get(name)
        return None if dialler is None else dialler.called

    def new_backoff(self) -> Backoff:
        """Delays between attempts, with this node's jitter."""
        return Backoff(self._rng)

    async def _run(self, dialler: Dialler) -> None:
        try:
            await dialler.run()
        finally:
            self._gate.outgoing -= 1
            if self._diallers.get(dialler.address) is dialler:
                del self._diallers[dialler.address]
