"""The suite against another implementation, or any node, over TCP.

    python -m tests.conformance --target HOST:PORT
    python -m tests.conformance --listen HOST:PORT [--ports N]

See docs/conformance.md.
"""

import argparse
import secrets
import socket
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from selectors import EVENT_READ, DefaultSelector
from typing import Protocol

from .cases import Case, Need, Offence
from .exchanges import CASES
from .histories import History, Library
from .offences import OFFENCES
from .rules import RULES, Role
from .script import Speaker, UnmetError
from .sockets import Bystander, SocketLink, bring_shared

PATIENCE_S = 15.0
REDIAL_S = 120.0
"""How long an endpoint that is to be proactive may take to connect again."""
STALE_MAX = 500
"""Connections that may have waited too long for us, one after the other."""
POSSIBLE = frozenset((Need.TOGETHER,))
"""What an endpoint elsewhere fulfils by itself, as far as bytes in one segment are read at once."""


def say(*lines: str) -> None:
    """Lines on standard output, at once."""
    for line in lines:
        sys.stdout.write(line + "\n")
    sys.stdout.flush()


class StaleError(Exception):
    """The endpoint had given up a connection before we came to use it."""


class Way(Protocol):
    """How connections to the endpoint come about."""

    proactive: bool
    """Whether the endpoint is."""

    def connect(self) -> socket.socket:
        """A new connection."""


class Calling:
    """We connect: the endpoint is reactive."""

    proactive = False

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    def connect(self) -> socket.socket:
        return socket.create_connection(self._address, timeout=PATIENCE_S)


class Called:
    """The endpoint connects, to any of our ports: it is proactive."""

    proactive = True

    def __init__(self, host: str, port: int, ports: int) -> None:
        self._selector = DefaultSelector()
        for number in range(ports):
            listener = socket.create_server((host, port + number if port else 0))
            self._selector.register(listener, EVENT_READ)
            say("listening on {}:{}".format(*listener.getsockname()[:2]))

    def connect(self) -> socket.socket:
        ready = self._selector.select(REDIAL_S)
        if not ready:
            raise ConnectionError(f"the endpoint has not connected for {REDIAL_S:.0f} s")
        listener = ready[0][0].fileobj
        assert isinstance(listener, socket.socket)
        return listener.accept()[0]


@dataclass
class Results:
    """What became of the cases, rule by rule."""

    passed: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    failed: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    left_out: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def note(self, each: Case | Offence, problem: str | None) -> None:
        """A case was run."""
        say(f"{'ok    ' if problem is None else 'FAILED'} {each.name}")
        if problem is not None:
            say(f"       {problem}")
        for rule in each.rules:
            if problem is None:
                self.passed[rule] += 1
            else:
                self.failed[rule].append(each.name)

    def leave_out(self, each: Case | Offence, needs: Sequence[Need]) -> None:
        """A case cannot be run."""
        for rule in each.rules:
            self.left_out[rule].update(need.value for need in needs)

    def summary(self) -> Iterator[str]:
        """A line for each rule."""
        for rule in RULES.values():
            if rule.id in self.failed:
                yield f"FAILED  {rule.id} {rule.text} ({'; '.join(self.failed[rule.id])})"
            elif rule.id in self.passed:
                yield f"passed  {rule.id} {rule.text} ({self.passed[rule.id]})"
            elif rule.id in self.left_out:
                yield f"left out {rule.id}: it takes {' and '.join(self.left_out[rule.id])}"
            else:
                where = "any role" if Role.ANY in rule.roles else "the node's own tests"
                yield f"left out {rule.id}: no case over a socket ({where})"


class Suite:
    """Runs cases against one endpoint."""

    def __init__(self, way: Way, library: Library) -> None:
        self._way = way
        self._library = library
        self.results = Results()

    @contextmanager
    def speaker(self, each: Case | Offence | None = None) -> Iterator[Speaker]:
        """A connection, closed behind the block."""
        with self._way.connect() as connection:
            link = SocketLink(connection, patience_s=PATIENCE_S)
            proactive = not self._way.proactive
            if each is None:
                yield Speaker(link, self._library, proactive=proactive)
            else:
                yield Speaker(link, self._library, proactive=proactive, setup=each.setup)

    def run(self, chosen: Sequence[Case | Offence]) -> None:
        """Runs the cases, with an honest connection beside them all the time."""
        with ExitStack() as stack:
            honest = stack.enter_context(self.speaker())
            honest.begin()
            bring_shared(honest)
            bystander = Bystander(honest)
            for each in chosen:
                missing = sorted(each.needs - POSSIBLE, key=lambda need: need.value)
                if missing:
                    self.results.leave_out(each, missing)
                else:
                    self.results.note(each, self._run_one(each, bystander))

    def _run_one(self, each: Case | Offence, bystander: Bystander) -> str | None:
        """What went wrong, if anything did."""
        for _ in range(STALE_MAX):
            try:
                with self.speaker(each) as speaker:
                    self._play(each, speaker)
                if isinstance(each, Offence):
                    bystander.goes_on()
                self._look_at(speaker.kept)
            except StaleError:
                continue
            except Exception as error:  # noqa: BLE001 - a case that fails is a result
                return f"{type(error).__name__}: {error}"
            return None
        return "every connection was closed before it could be used"

    def _look_at(self, kept: list[tuple[History, int]]) -> None:
        """See that what was said to be kept is."""
        if kept:
            with self.speaker() as speaker:
                speaker.begin()
                for history, seq in kept:
                    if speaker.newest(history) < seq:
                        raise UnmetError(f"entry {seq} of {history.log} is not kept after all")

    def _play(self, each: Case | Offence, speaker: Speaker) -> None:
        if isinstance(each, Offence) or not each.begins_itself:
            try:
                speaker.begin()
                speaker.mux_ping()
            except UnmetError:
                raise StaleError from None
        try:
            each.play(speaker)
        except UnmetError:
            if not speaker.granted:
                raise StaleError from None
            raise
        if isinstance(each, Offence) or each.ends:
            while speaker.hear():
                pass


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def main() -> int:
    """Runs the suite; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    side = parser.add_mutually_exclusive_group(required=True)
    side.add_argument("--target", type=address, metavar="HOST:PORT", help="where it listens")
    side.add_argument("--listen", type=address, metavar="HOST:PORT", help="where it connects to")
    parser.add_argument("--ports", type=int, default=2, help="ports to listen on (default: 2)")
    parser.add_argument("--case", default="", metavar="WORDS", help="only cases named like this")
    arguments = parser.parse_args()
    way: Way
    if arguments.target:
        way = Calling(*arguments.target)
    else:
        host, port = arguments.listen
        way = Called(host, port, max(2, arguments.ports))
    everything: list[Case | Offence] = [*CASES, *OFFENCES]
    chosen = [each for each in everything if arguments.case in each.name]
    suite = Suite(way, Library(secrets.token_bytes(32)))
    try:
        suite.run(chosen)
    except (OSError, UnmetError) as error:
        say(f"this does not even begin: {error}")
        return 1
    say("", *suite.results.summary())
    counts = f"{len(suite.results.passed)} rules passed, {len(suite.results.failed)} failed"
    say("", f"{counts}; the others were left out.")
    return 1 if suite.results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
