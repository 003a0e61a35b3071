"""Two engines in memory: a naive host with a store of dictionaries, and the links between them.

Nothing happens by itself. A test (or Hypothesis) chooses which channel delivers how many bytes and
which command of which host is carried out next.
"""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

from nacl.signing import SigningKey

from peer.engine import Engine
from peer.planner.ranges import union
from peer.planner.sourcing import Claim, claim_all
from peer.protocol import commands
from peer.protocol.commands import (
    CheckEvidence,
    ClosePayload,
    Command,
    FinishPayload,
    Ingest,
    LookUp,
    OpenPayload,
    ReadEntries,
    ReadPayload,
    StopReading,
    WritePayload,
)
from peer.protocol.config import SessionConfig
from peer.protocol.events import (
    EntriesRead,
    Event,
    HeldEntry,
    Ingested,
    IngestFailed,
    Interests,
    InterestsChanged,
    LogChanged,
    LogView,
    LookedUp,
    PayloadFinished,
    PayloadRead,
    PayloadWritten,
    Refusal,
    Verdict,
)
from peer.protocol.notices import Notice
from tests.records import replace
from wire import (
    Entry,
    LogKey,
    Setup,
    decode_entry,
    has_distinct_lipmaalink,
    lipmaa,
    negotiate,
    sign_entry,
    signature_is_valid,
    yamf_hash,
)

from .arrivals import arrived_in

INLINE_BYTES_MAX = 64
MISSING_NAMED = 3
RUNS_NAMED = 6


@dataclass
class Author:
    """Makes entries of its logs."""

    key: SigningKey

    @property
    def id(self) -> bytes:
        return bytes(self.key.verify_key)

    def entry(
        self, known: dict[int, "Held"], log_id: int, payload: bytes, *, is_end: bool = False
    ) -> tuple[int, "Held"]:
        seq = max(known, default=0) + 1
        link = lipmaa(seq)
        encoded = sign_entry(
            self.key,
            log_id=log_id,
            seq=seq,
            is_end=is_end,
            lipmaalink=known[link].hash if has_distinct_lipmaalink(seq) else None,
            backlink=known[seq - 1].hash if seq > 1 else None,
            payload_bytes=len(payload),
            payload_hash=yamf_hash(payload),
        )
        return seq, Held(encoded, yamf_hash(encoded), payload)


@dataclass
class Held:
    encoded: bytes
    hash: bytes
    payload: bytes | None

    @property
    def entry(self) -> Entry:
        return decode_entry(self.encoded)


@dataclass
class Sink:
    command: OpenPayload
    data: bytearray
    resumed: bool


@dataclass
class Store:
    """What survives a lost connection."""

    logs: dict[LogKey, dict[int, Held]] = field(default_factory=lambda: defaultdict(dict))
    partial: dict[tuple[LogKey, int], bytes] = field(default_factory=dict)
    forks: dict[LogKey, tuple[int, tuple[bytes, bytes]]] = field(default_factory=dict)
    dropped: set[tuple[LogKey, int]] = field(default_factory=set)
    """Payloads that were deleted on purpose: they are not missing."""
    arriving: set[tuple[LogKey, int]] = field(default_factory=set)
    """Payloads that another session receives."""
    watchers: list["Host"] = field(default_factory=list)
    place: int = 0
    """The last number that a payload's arrival was given."""
    arrived: dict[tuple[LogKey, int], int] = field(default_factory=dict)
    _whole: dict[LogKey, set[int]] = field(default_factory=lambda: defaultdict(set))

    def height(self, log: LogKey) -> int:
        height = 0
        while height + 1 in self.logs[log]:
            height += 1
        if log in self.forks:
            height = min(height, self.forks[log][0] - 1)
        return height

    def newest(self, log: LogKey) -> int:
        held = self._below_fork(log)
        return max(held, default=0)

    def runs(self, log: LogKey) -> tuple[tuple[int, int], ...]:
        """The maximal runs of consecutive held entries."""
        runs: list[tuple[int, int]] = []
        for seq in sorted(self._below_fork(log)):
            if runs and runs[-1][1] == seq - 1:
                runs[-1] = (runs[-1][0], seq)
            else:
                runs.append((seq, seq))
        return tuple(runs)

    def _below_fork(self, log: LogKey) -> list[int]:
        fork = self.forks.get(log)
        return [seq for seq in self.logs[log] if fork is None or seq < fork[0]]

    def append(self, author: Author, log_id: int, payload: bytes, *, is_end: bool = False) -> int:
        log = LogKey(author.id, log_id)
        seq, held = author.entry(self.logs[log], log_id, payload, is_end=is_end)
        self.logs[log][seq] = held
        self.changed(log)
        return seq

    def changed(self, log: LogKey) -> None:
        whole = {seq for seq, held in self.logs[log].items() if held.payload is not None}
        for seq in sorted(whole - self._whole[log]):
            self.place += 1
            self.arrived[log, seq] = self.place
        self._whole[log] = whole
        for host in self.watchers:
            host.note_change(log)

    def end(self, log: LogKey) -> int | None:
        ends = [seq for seq, held in self.logs[log].items() if held.entry.is_end]
        return min(ends, default=None)

    def record_fork(self, log: LogKey, seq: int, proof: tuple[bytes, bytes]) -> None:
        if log not in self.forks or seq < self.forks[log][0]:
            self.forks[log] = (seq, proof)
            self.changed(log)


class Host:
    """Carries out the commands of one engine against a store, one at a time."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.todo: deque[Command | Event] = deque()
        self.sinks: dict[int, Sink] = {}
        self.engine: Engine | None = None
        self.notices: list[Notice] = []
        store.watchers.append(self)

    def note_change(self, log: LogKey) -> None:
        height = self.store.height(log)
        fork, held = self.store.forks.get(log), self.store.logs[log]
        self.todo.append(
            LogChanged(
                log,
                height,
                self.store.newest(log),
                self.store.end(log),
                fork[0] if fork else None,
                any(each.payload is None for each in held.values()),
            )
        )

    def collect(self) -> None:
        if self.engine is not None:
            self.todo.extend(self.engine.commands())
            self.notices.extend(self.engine.notices())

    def step(self, choice: int = 0) -> bool:
        """Carry out one command, 0: the oldest; False if there is none.

        `choice` is one of those that may be next: what is stored keeps its order, and so do the
        reads of one request (commands.py).
        """
        self.collect()
        if not self.todo:
            return False
        lanes: set[object] = set()
        allowed = []
        for index, waiting in enumerate(self.todo):
            lane = _lane(waiting)
            if lane is None or lane not in lanes:
                allowed.append(index)
            lanes.add(lane)
        index = allowed[choice % len(allowed)]
        item = self.todo[index]
        del self.todo[index]
        for event in self._replies(item):
            if self.engine is not None:
                self.engine.handle(event)
        self.collect()
        return True

    def _replies(self, item: Command | Event) -> list[Event]:
        match item:
            case LookUp():
                return [LookedUp(item.ticket, self.view(item))]
            case ReadEntries():
                return [EntriesRead(item.request, self._rows(item), self.store.place)]
            case ReadPayload():
                held = self.store.logs[item.log].get(item.seq)
                data = (held.payload or b"") if held else b""
                chunk = data[item.offset : item.offset + item.bytes_max]
                return [PayloadRead(item.request, item.seq, item.offset, chunk)]
            case Ingest():
                return self._ingest(item)
            case OpenPayload():
                self._open(item)
                return []
            case WritePayload():
                self.sinks[item.sink].data += item.data
                return [PayloadWritten(item.sink, len(item.data))]
            case FinishPayload():
                return self._finish(item)
            case ClosePayload():
                self._close(item)
                return []
            case CheckEvidence():
                self._evidence(item)
                return []
            case StopReading():
                return []
            case _:
                return [item]

    def view(self, item: LookUp) -> LogView:
        held = self.store.logs[item.log]
        height = self.store.height(item.log)
        named = {*item.hashes_of, height, lipmaa(height) if height else 0, lipmaa(height + 1)}
        entry = held.get(item.entry) if item.entry is not None else None
        tail = held.get(height)
        fork = self.store.forks.get(item.log)
        partial = None
        if tail is not None and self._is_missing(item, height, tail):
            partial = self._partial(item.log, height, tail)
        above = item.missing_above
        if item.missing_of_newest is not None:
            above = max(above, self.store.newest(item.log) - item.missing_of_newest)
        missing = [
            (seq, self._partial(item.log, seq, entry))
            for seq, entry in sorted(held.items())
            if seq != height and (above < seq or _in(item.any_size, seq))
            if self._is_missing(item, seq, entry)
        ]
        here = {seq for log, seq in self.store.arriving if log == item.log}
        left_out = [each for each in missing if item.leave_arriving and each[0] in here]
        most = MISSING_NAMED * (1 if item.missing_max == commands.MISSING_NAMED else 8)
        told = [each for each in missing[:most] if each not in left_out]
        behind: list[HeldEntry] = []
        while item.entry is not None and len(behind) < item.behind:
            seq = item.entry + 1 + len(behind)
            if seq not in held:
                break
            behind.append(_row(seq, held[seq]))
        runs = self.store.runs(item.log)
        asked = [run for run in runs if run[1] >= item.runs_from]
        return LogView(
            log=item.log,
            height=height,
            newest=self.store.newest(item.log),
            end=self.store.end(item.log),
            fork=fork[0] if fork else None,
            fork_proof=fork[1] if fork else None,
            hashes={n: held[n].hash for n in named if n in held},
            entry=None if entry is None or item.entry is None else _row(item.entry, entry),
            tail_partial_bytes=partial,
            missing_payloads=union((seq, seq) for seq, _ in told),
            begun_payloads=tuple(each for each in told if each[1]),
            unnamed_above=missing[most - 1][0] if len(missing) > most else None,
            tail_arriving=partial is not None and height in here,
            some_arriving=bool(left_out) or (partial is not None and height in here),
            runs=tuple(asked[:RUNS_NAMED]),
            runs_complete=len(asked) <= RUNS_NAMED,
            behind=tuple(behind),
            arrived=arrived_in(self.store, item),
        )

    def _is_missing(self, item: LookUp, seq: int, held: "Held") -> bool:
        wanted = item.min_bytes <= held.entry.payload_bytes <= item.max_bytes
        wanted = wanted or _in(item.any_size, seq)
        return held.payload is None and wanted and (item.log, seq) not in self.store.dropped

    def _partial(self, log: LogKey, seq: int, held: "Held") -> int:
        size = len(self.store.partial.get((log, seq), b""))
        return size if size < held.entry.payload_bytes else 0

    def _rows(self, item: ReadEntries) -> tuple[HeldEntry, ...]:
        held = self.store.logs[item.log]
        runs = self.store.runs(item.log)
        if item.seqs is not None:
            seqs = [n for n in item.seqs if any(first <= n <= last for first, last in runs)]
        else:
            top = next((last for first, last in runs if first <= item.first <= last), 0)
            last = min(item.last, top, item.first + item.entries_max - 1)
            seqs = list(range(item.first, last + 1))
        arriving = {s.command.seq for s in self.sinks.values() if s.command.log == item.log}
        return tuple(_row(n, held[n], arriving=n in arriving) for n in seqs)

    def _ingest(self, item: Ingest) -> list[Event]:
        replies: list[Event] = []
        failed: set[int] = set()
        handed = [(part, entry) for part in item.items for entry in part.entries]
        left = Counter(part.request for part, _ in handed)
        for part, (seq, encoded, _, payload) in handed:
            if part.request in failed:
                continue
            refusal = self._put(part.log, seq, encoded, payload)
            if refusal is None:
                # One by one, so that runs are proved in parts.
                replies.append(Ingested(part.request, 1))
                left[part.request] -= 1
            else:
                failed.add(part.request)
                rest = left[part.request]
                replies.append(IngestFailed(part.request, seq, refusal, "refused", rest))
        return replies

    def _put(self, log: LogKey, seq: int, encoded: bytes, payload: bytes | None) -> Refusal | None:
        held = self.store.logs[log]
        if not signature_is_valid(encoded):
            return Refusal.INVALID
        entry = decode_entry(encoded)
        for target, link in ((lipmaa(seq), entry.lipmaalink), (seq - 1, entry.backlink)):
            if link is not None and target in held and held[target].hash != link:
                return Refusal.FORKED
        if seq in held and held[seq].encoded != encoded:
            self.store.record_fork(log, seq, (held[seq].encoded, encoded))
            return Refusal.FORKED
        end = self.store.end(log)
        if end is not None and seq > end:
            return Refusal.INVALID
        if seq not in held:
            held[seq] = Held(encoded, yamf_hash(encoded), payload)
            self.store.changed(log)
        elif held[seq].payload is None and payload is not None:
            held[seq].payload = payload
            self.store.changed(log)
        return None

    def _open(self, item: OpenPayload) -> None:
        # Two sinks for one payload: the second one has no prefix and only checks.
        prefix = self.store.partial.pop((item.log, item.seq), b"")[: item.offset]
        self.sinks[item.sink] = Sink(item, bytearray(prefix), resumed=item.offset > 0)

    def _close(self, item: ClosePayload) -> None:
        sink = self.sinks.pop(item.sink)
        data = bytes(sink.data[: sink.command.offset] if item.discard else sink.data)
        self.store.partial[sink.command.log, sink.command.seq] = data

    def _finish(self, item: FinishPayload) -> list[Event]:
        sink = self.sinks.pop(item.sink)
        held = self.store.logs[sink.command.log].get(sink.command.seq)
        if yamf_hash(bytes(sink.data)) != sink.command.payload_hash:
            wrong = Verdict.INVALID_RESUMED if sink.resumed else Verdict.INVALID
            return [PayloadFinished(item.sink, wrong, "wrong hash")]
        if held is None:
            return [PayloadFinished(item.sink, Verdict.STORAGE, "its entry is not held")]
        held.payload = bytes(sink.data)
        self.store.changed(sink.command.log)
        return [PayloadFinished(item.sink, Verdict.VALID)]

    def _evidence(self, item: CheckEvidence) -> None:
        if not (item.wanted or self.store.logs.get(item.log)):
            return
        entries = list(item.entries)
        if len(entries) == 1:
            ours = self.store.logs[item.log].get(decode_entry(entries[0]).seq)
            entries += [] if ours is None else [ours.encoded]
        if len(entries) != 2 or entries[0] == entries[1]:
            return
        first, second = (decode_entry(encoded) for encoded in entries)
        same = first.key == second.key == item.log and first.seq == second.seq
        if same and all(signature_is_valid(encoded) for encoded in entries):
            self.store.record_fork(item.log, first.seq, (entries[0], entries[1]))


def _in(ranges: tuple[tuple[int, int], ...], seq: int) -> bool:
    return any(first <= seq <= last for first, last in ranges)


def _lane(item: Command | Event) -> object:
    """What is carried out in the order given among its like; None: in any order."""
    match item:
        case Ingest() | OpenPayload() | WritePayload() | FinishPayload() | ClosePayload():
            return "storing"
        case ReadEntries() | ReadPayload():
            return item.request
        case LogChanged():
            return item.log
        case InterestsChanged():
            return "interests"
        case _:
            return None


def _row(seq: int, held: Held, *, arriving: bool = False) -> HeldEntry:
    small = held.payload is not None and len(held.payload) <= INLINE_BYTES_MAX
    return HeldEntry(
        seq=seq,
        encoded=held.encoded,
        hash=held.hash,
        payload=held.payload if small else None,
        payload_held=held.payload is not None,
        payload_arriving=arriving,
    )


SETUP = Setup(send_greedily=True, accept_greedily=True, send_window=1024, receive_window=1024)


def claim_none(_: LogKey, brought: int = 0, /) -> bool:
    """Another session fetches all logs; what the other side came to bring is taken."""
    return brought > 0


class Pair:
    """Two hosts and, while they are connected, four byte streams between their engines."""

    def __init__(
        self,
        config: SessionConfig | None = None,
        *,
        credit: int = 4096,
        stores: tuple[Store, Store] | None = None,
        setup: Setup = SETUP,
    ) -> None:
        self.setup = setup
        small = SessionConfig(small_payload_bytes_max=INLINE_BYTES_MAX, quantum_bytes=256)
        self.config = config or small
        self.credit = credit
        left, right = stores or (Store(), Store())
        self.hosts = (Host(left), Host(right))
        self.now = 0.0
        self.control: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        self.data: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        self.data_credit = [credit, credit]

    def connect(
        self,
        interests: tuple[Interests, Interests],
        *,
        policy: str = "follow",
        second: str = "follow",
        claims: tuple[Claim, Claim] = (claim_all, claim_all),
        configs: tuple[SessionConfig, SessionConfig] | None = None,
    ) -> None:
        """`policy` is that of host 0, which is proactive, `second` that of the other one."""
        for side, host in enumerate(self.hosts):
            config = self.config if configs is None else configs[side]
            if (policy, second)[side] == "sync":
                config = replace(config, policy="sync")
            negotiated = negotiate(self.setup, self.setup)
            host.engine = Engine(
                negotiated, config, proactive=side == 0, now=self.now, claim=claims[side]
            )
            own = interests[side]
            offers = sorted({*own.logs, *own.own, *_held_by_interest(host.store, own)})
            host.todo.append(InterestsChanged(own, tuple(offers)))

    def engine(self, side: int) -> Engine:
        engine = self.hosts[side].engine
        assert engine is not None
        return engine

    def pump(self, side: int, *, data_max: int = 1 << 20) -> None:
        """Take what an engine has to send."""
        engine = self.engine(side)
        self.control[side].extend(engine.control_to_send())
        data = b"".join(engine.data_to_send(min(self.data_credit[side], data_max)))
        assert len(data) <= self.data_credit[side]
        self.data_credit[side] -= len(data)
        self.data[side].extend(data)
        self.control[side].extend(engine.control_to_send())

    def deliver_control(self, side: int, size: int) -> None:
        """Hand `size` bytes that `side` sent to the other engine."""
        chunk = bytes(self.control[side][:size])
        del self.control[side][:size]
        self.engine(1 - side).receive_control(chunk)

    def deliver_data(self, side: int, size: int) -> None:
        chunk = bytes(self.data[side][:size])
        del self.data[side][:size]
        engine = self.engine(1 - side)
        engine.receive_data(chunk)
        self.data_credit[side] += engine.data_credit_to_release()

    def disconnect(self) -> None:
        for side, host in enumerate(self.hosts):
            if host.engine is not None:
                host.engine.ended()
                while host.step():
                    pass
                host.engine = None
                host.todo.clear()
                host.sinks.clear()
            self.control[side].clear()
            self.data[side].clear()
            self.data_credit[side] = self.credit

    def run(self, *, rounds_max: int = 10_000, advance_s: float = 0.0) -> int:
        """Let everything happen, in a plain order, until nothing is left to do."""
        for count in range(rounds_max):
            before = (len(self.hosts[0].todo), len(self.hosts[1].todo))
            busy = any(before)
            for side in (0, 1):
                host = self.hosts[side]
                while host.step():
                    busy = True
                if host.engine is None:
                    continue
                self.data_credit[1 - side] += host.engine.data_credit_to_release()
                self.pump(side)
                if self.control[side]:
                    busy = True
                    self.deliver_control(side, len(self.control[side]))
                if self.data[side]:
                    busy = True
                    self.deliver_data(side, len(self.data[side]))
            for host in self.hosts:
                # All that was sent has arrived, and so would the answer to a ping.
                if not busy and host.engine is not None and host.engine.wants_pong:
                    host.engine.ping_sent()
                    host.engine.pong_arrived()
                if host.engine is not None and host.engine.wants_receipt:
                    host.engine.receipt_asked()
                    host.engine.receipt_came()
            if not busy:
                if advance_s <= 0:
                    return count
                self.tick(advance_s)
                advance_s = 0.0
        raise AssertionError(f"still busy after {rounds_max} rounds")

    def one_round(self) -> None:
        """Everything that is there to do and to send, once."""
        for side, host in enumerate(self.hosts):
            while host.step():
                pass
            self.data_credit[1 - side] += self.engine(side).data_credit_to_release()
            self.pump(side)
            self.deliver_control(side, len(self.control[side]))
            self.deliver_data(side, len(self.data[side]))

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for host in self.hosts:
            if host.engine is not None:
                host.engine.now = self.now
                host.engine.advance()


def _held_by_interest(store: Store, interests: Interests) -> list[LogKey]:
    return [log for log in store.logs if interests.wants(log)]
