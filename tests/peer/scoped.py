"""Two engines of which one gives the other a scope, and all that crosses between them.

The side with the scope is called *here*, the other one *there*. There has a tracer, and here has
none, so that it takes the fast ways through the engine as well.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from nacl.signing import SigningKey

from peer.engine import Engine
from peer.protocol.events import Interests, InterestsChanged
from peer.protocol.notices import SyncFinished
from peer.protocol.tracing import Record, Tracer
from tests.records import replace
from wire import LogKey, Setup, negotiate

from .rig import Author, Held, Pair, Store, _held_by_interest

HERE = Author(SigningKey(b"h" * 32))
"""The author of the node with the scope."""
THERE = Author(SigningKey(b"t" * 32))
"""The author of the other node, whose key is its id."""
THIRD = Author(SigningKey(b"3" * 32))
PLAIN = Setup(send_greedily=True, accept_greedily=True, send_window=0, receive_window=0)


def payload_of(author: Author, log_id: int, seq: int) -> bytes:
    """Bytes that occur nowhere else; every third payload is read from the store in parts."""
    size = 400 if seq % 3 == 0 else 40
    return random.Random(f"{author.id.hex()}/{log_id}/{seq}").randbytes(size)


def history(author: Author, log_id: int, count: int, *, ends: bool = False) -> dict[int, Held]:
    """The entries 1 to `count` of a log; `ends`: the last one is its end."""
    known: dict[int, Held] = {}
    for seq in range(1, count + 1):
        payload = payload_of(author, log_id, seq)
        _, held = author.entry(known, log_id, payload, is_end=ends and seq == count)
        known[seq] = held
    return known


@dataclass
class Crossed:
    """What one side has sent of one log."""

    entries: set[int] = field(default_factory=set)
    payloads: set[int] = field(default_factory=set)
    notified: set[int] = field(default_factory=set)
    skipped: set[int] = field(default_factory=set)
    proofs: int = 0
    """Cancels that show entries, or the number of the last one."""
    asked: set[str] = field(default_factory=set)
    """The eagerness of what it proposed or confirmed."""
    controls: list[Record] = field(default_factory=list)

    @property
    def is_nothing(self) -> bool:
        """Whether nothing of the log's content or extent has crossed."""
        return not (self.entries or self.payloads or self.notified or self.skipped or self.proofs)


class ScopedPair(Pair):
    """A pair whose side `here` gives a scope, and which keeps what both have sent."""

    def __init__(self, here: int, stores: tuple[Store, Store], *, credit: int = 4096) -> None:
        """`stores`: that of here, and that of there."""
        ordered = stores if here == 0 else stores[::-1]
        super().__init__(stores=ordered, credit=credit, setup=PLAIN)
        self.here, self.there = here, 1 - here
        self.records: list[Record] = []
        self.sent = bytearray()
        """All bytes that here has sent on the data channel."""

    def meet(
        self, here: Interests, there: Interests, *, policies: tuple[str, str], first: int = 0
    ) -> None:
        """Connect; `first` is the side that speaks first. `policies`: of here, of there."""
        negotiated = negotiate(self.setup, self.setup)
        for side, interests, policy in (
            (self.here, here, policies[0]),
            (self.there, there, policies[1]),
        ):
            host = self.hosts[side]
            host.engine = Engine(
                negotiated,
                replace(self.config, policy="sync") if policy == "sync" else self.config,
                proactive=side == 0,
                now=self.now,
                tracer=Tracer(self.records.append) if side == self.there else None,
            )
            host.todo.clear()
            host.engine.handle(InterestsChanged(interests, self.offers(side, interests)))
            host.collect()
        while self.hosts[first].step():
            self.pump(first)
        self.pump(first)
        self.deliver_control(first, len(self.control[first]))

    def offers(self, side: int, interests: Interests) -> tuple[LogKey, ...]:
        """What a node offers, whoever the other side is."""
        apart = replace(interests, scope=None)
        held = _held_by_interest(self.hosts[side].store, apart)
        return tuple(sorted({*apart.logs, *apart.own, *held}))

    def change(self, interests: Interests) -> None:
        """Here hears of other interests, or of another scope, at once."""
        self.engine(self.here).handle(
            InterestsChanged(interests, self.offers(self.here, interests))
        )
        self.hosts[self.here].collect()

    def pump(self, side: int, *, data_max: int = 1 << 20) -> None:
        before = len(self.data[side])
        super().pump(side, data_max=data_max)
        if side == self.here:
            self.sent += self.data[side][before:]

    def settle(self, rounds: int = 12) -> None:
        for _ in range(rounds):
            self.run(advance_s=1.0)

    def crossed(self, log: LogKey, *, from_here: bool, since: int = 0) -> Crossed:
        """What was sent of a log in one direction, by the trace of the other side."""
        way = "received" if from_here else "sent"
        found = Crossed()
        named = (log.author.hex(), log.log_id)
        for record in self.records[since:]:
            if record["way"] != way or (record.get("author"), record.get("log_id")) != named:
                continue
            if record["channel"] == "control":
                _note_control(found, record)
            elif "seq" in record:
                _note_packet(found, record)
        return found

    def finished(self, side: int) -> bool:
        """Whether a one-time sync of a side is done."""
        self.hosts[side].collect()
        return any(isinstance(notice, SyncFinished) for notice in self.hosts[side].notices)


def _note_control(found: Crossed, record: Record) -> None:
    found.controls.append(record)
    if record["message"] in ("propose", "adjust") and "eagerness" in record:
        found.asked.add(str(record["eagerness"]))
    if record["message"] == "cancel" and ("entries" in record or "seq" in record):
        found.proofs += 1


def _note_packet(found: Crossed, record: Record) -> None:
    first = int(str(record["seq"]))
    last = int(str(record.get("last_seq", first)))
    message = str(record["message"])
    if message == "notify":
        found.notified |= set(range(first, last + 1))
    elif message == "metadata":
        found.entries.add(first)
    elif message == "payload bytes":
        found.payloads.add(first)
    elif "skipped" in message:
        found.skipped.add(first)


def shows(sent: bytes, log: dict[int, Held]) -> set[int]:
    """The entries of a log of which a payload, or a part of one, is among these bytes."""
    found = set()
    for seq, held in log.items():
        payload = held.payload or b""
        pieces = (payload[at : at + 16] for at in range(0, len(payload) - 15, 16))
        if any(piece in sent for piece in pieces):
            found.add(seq)
    return found


def kept(log: dict[int, Held], seqs: Iterable[int]) -> dict[int, Held]:
    """Some entries of a log."""
    return {seq: log[seq] for seq in seqs}
