"""SIGHUP: `serve` reads its configuration again, and takes on at once what a running node can.

What the command line or the environment says stands nearer, and so stays. All of it is checked
before any of it is applied: a bad file changes nothing.
"""

from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from logstore import StoreError

from .errors import Problem, WrongUsage
from .limit_flags import limits
from .online import follows_named

if TYPE_CHECKING:
    from peer.api import Address, Peer, PeerAddress

_NO_SETTINGS = frozenset(("read_again", "config"))
"""What is among the arguments and no setting."""


@dataclass(frozen=True, slots=True)
class Applied:
    """Settings that a running node takes on, and how; another kind is another one of these."""

    names: frozenset[str]
    """As they stand among the arguments: `max_rate`."""
    apply: Callable[[Namespace], Awaitable[None]]
    """Is called with all arguments where one of these has changed. May raise StoreError."""


def applied_to(peer: "Peer", running: Namespace) -> list[Applied]:
    """What can be applied to a node that was started with `running`."""
    limiting = partial(_apply_limits, peer)
    follows = partial(_apply_follows, peer)
    follow_names = "follow follow_all policy min_payload max_payload eager"
    return [
        # First what may fail: it is written to the store.
        Applied(frozenset(follow_names.split()), follows),
        # Before calls, which would have to begin again.
        Applied(frozenset(("max_rate", "max_rate_per_peer", "limit")), limiting),
        Applied(frozenset(("connect",)), _Calls(peer, running.connect).apply),
    ]


class Reloading:
    """Reads the settings of a running node again. Every call of `reload` returns the event."""

    def __init__(
        self,
        running: Namespace,
        applied: Sequence[Applied],
        check: Callable[[Namespace], None],
    ) -> None:
        """`check` raises WrongUsage, Problem or StoreError for what a start would refuse too."""
        self._running = dict(vars(running))
        """What is in force: changed settings that wait for a restart are not in here."""
        self._read_again: Callable[[], Namespace] = running.read_again
        self._applied = applied
        self._check = check

    async def reload(self) -> Mapping[str, object]:
        """Reads, checks and applies; raises nothing that a file or a disk may be to blame for."""
        try:
            # Files, and names in the store: work for a disk.
            wanted = await trio.to_thread.run_sync(self._read)
        except (WrongUsage, Problem, StoreError, OSError) as error:
            return _event([], [], str(error))
        differing = {
            name
            for name, value in vars(wanted).items()
            if name not in _NO_SETTINGS and value != self._running[name]
        }
        changed: list[str] = []
        for each in self._applied:
            names = differing & each.names
            if not names:
                continue
            try:
                await each.apply(wanted)
            except StoreError as error:
                return _event(changed, [], str(error))
            self._running |= {name: getattr(wanted, name) for name in names}
            differing -= names
            changed += names
        return _event(changed, differing, None)

    def _read(self) -> Namespace:
        wanted = self._read_again()
        self._check(wanted)
        return wanted


def _event(
    changed: Sequence[str], needs_restart: "Sequence[str] | set[str]", error: str | None
) -> Mapping[str, object]:
    return {
        "event": "config_reloaded",
        "changed": sorted(name.replace("_", "-") for name in changed),
        "needs_restart": sorted(name.replace("_", "-") for name in needs_restart),
        "error": error,
    }


async def _apply_follows(peer: "Peer", args: Namespace) -> None:
    """What is named no more stays followed, as it does after a restart: `unfollow` ends it."""
    targets, wanted = follows_named(args)
    for target in targets:
        await peer.follow(target, wanted)


async def _apply_limits(peer: "Peer", args: Namespace) -> None:
    peer.node.change_limits(limits(args))


class _Calls:
    """Whom `--connect` names; whom the table of peers has an address of is called besides."""

    def __init__(self, peer: "Peer", called: "Sequence[PeerAddress]") -> None:
        self._peer = peer
        self._called: dict[Address, PeerAddress] = {each.address: each for each in called}

    async def apply(self, args: Namespace) -> None:
        """Calls who is new, and hangs up on who is named no more or otherwise."""
        wanted: dict[Address, PeerAddress] = {each.address: each for each in args.connect}
        for address, target in self._called.items():
            if wanted.get(address) != target:
                self._peer.disconnect(target)
        for address, target in wanted.items():
            if self._called.get(address) != target:
                # The table of peers may name somebody else there; what is set comes first.
                self._peer.disconnect(target)
                self._peer.connect(target)
        self._called = wanted
        # Who was hung up on may be named in the table, too.
        self._peer.node.call_known()
