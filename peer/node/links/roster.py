"""The connections of a node: running them, counting them, saying how they are."""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, Literal

import trio
from msgspec import Struct, field

from bymux import Role
from logstore import Seldom
from peer import (
    EntriesReceived,
    EntriesSent,
    Event,
    InterestsChanged,
    LimitMet,
    Notice,
    Session,
    SessionConfig,
    SetUp,
    SyncFinished,
    claim_all,
)
from peer.node.doors.admission import Admission, ProvedStream
from peer.node.doors.pausing import Pausing
from peer.node.fairness import Accounts
from peer.node.host.store_host import StoreHost
from wire import LogKey

from .allowance import (
    CREDIT_BYTES_MIN,
    CREDIT_SHARE,
    FILES_MIN,
    FILES_SHARE,
    Allowance,
    files_for_payloads,
)
from .connection import SEND_BYTES, Connection, Ending, EndKind
from .greedy import Greedy, with_greedy
from .knowledge import Knowledge
from .limits import Limits
from .payers import Payers, payer_of
from .rates import Pacer
from .records import ConnectionInfo, ConnectionState, Direction, Observer, Terms
from .scoping import scoped
from .sources import Place, SourceInfo, Sources, Tell
from .trace import ConnectionTrace, TraceFile

ENDINGS_MAX: Final = 64
PEER_CONNECTIONS: Final = "peer-connections"
"""The limit that stands in a peer's row, beside those of `limits.py`."""
SYNC_FAILURES_MAX: Final = 3
"""Somebody waits for the end of a one-time sync, and is better told of a full disk than to see it
tried for minutes."""


class Member(Struct, eq=False):
    """A connection that is open."""

    address: str
    direction: Direction
    peer_id: bytes | None
    """What the other side has proved to be; None: over a plain connection."""
    expected: bool
    """Whether it was called by that id."""
    rates: tuple[int | None, int | None]
    """Of its own, what it may send and be sent, in bytes a second."""
    connection: Connection
    since_s: float
    on_established: Callable[[], None]
    trace: ConnectionTrace | None
    config: SessionConfig
    stream: trio.abc.Stream
    agreed: SetUp | None = None
    """What both setups come to, once both are there."""
    established: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)
    ending: Ending | None = None
    data_credit_bytes: int = 0
    """What the other side may have under way to us, of what all connections have."""
    files: int = 0
    """How many it may have open, likewise."""
    place: Place | None = None
    """Where it says which logs it may fetch; a one-time sync fetches what it wants."""
    logs_synced: int | None = None
    """How many logs a one-time sync had to do with, once it is done."""
    knowledge: Knowledge = field(default_factory=Knowledge)

    @property
    def fields(self) -> dict[str, object]:
        """Which connection it is, in events."""
        return {
            "address": self.address,
            "peer_id": None if self.peer_id is None else self.peer_id.hex(),
            "direction": str(self.direction),
        }

    @property
    def state(self) -> ConnectionState:
        """How far it has come."""
        if not self.established.is_set():
            return ConnectionState.SETUP
        if self.connection.session.closing:
            return ConnectionState.CLOSING
        return ConnectionState.ESTABLISHED

    @property
    def is_useful(self) -> bool:
        """Whether something came of it, and something may come."""
        counts = self.connection.session.statistics()
        moved = counts.entries_received or counts.entries_sent or counts.payload_bytes_sent
        return bool(moved or counts.payload_bytes_received) and bool(self.knowledge.active)

    def info(self, last_error: str | None = None) -> ConnectionInfo:
        """What there is to say about it. `last_error`: how the one before it ended."""
        counts = self.connection.session.statistics()
        return ConnectionInfo(
            address=self.address,
            direction=self.direction,
            peer_id=None if self.peer_id is None else self.peer_id.hex(),
            state=self.state,
            since_s=self.since_s,
            last_error=last_error,
            bytes_received=counts.bytes_received,
            bytes_sent=counts.bytes_sent,
            entries_received=counts.entries_received,
            entries_sent=counts.entries_sent,
            payload_bytes_received=counts.payload_bytes_received,
            payload_bytes_sent=counts.payload_bytes_sent,
            saved_bytes_received=counts.saved_bytes_received,
            saved_bytes_sent=counts.saved_bytes_sent,
            logs=len(self.knowledge.active),
            terms=self.terms(),
            not_kept=self.connection.not_kept,
            not_given=self.connection.not_given,
        )

    def terms(self) -> Terms | None:
        """What is in force on it; None before the other side's setup is there."""
        agreed, config = self.agreed, self.config
        if agreed is None:
            return None
        sending, receiving = Pacer.paces(self.stream, trio.current_time())
        return Terms(
            send_greedily=config.setup.send_greedily,
            accept_greedily=config.setup.accept_greedily,
            greedy_sending=agreed.send_greedily,
            greedy_receiving=agreed.receive_greedily,
            compression_window=agreed.compression_window,
            decompression_window=agreed.decompression_window,
            requests=self.knowledge.ours,
            peer_requests=self.knowledge.theirs,
            peer_requests_max=config.requests_max + config.request_credit_max,
            allowances=self.connection.session.allowances(),
            sending=sending,
            receiving=receiving,
        )

    def take(self, notice: Notice, now: float) -> None:
        """A notice of the session."""
        self.knowledge.take(notice, now)
        if self.place is not None:
            self.place.take(notice, now)
        if isinstance(notice, SetUp):
            self.since_s = now
            self.agreed = notice
            self.established.set()
            self.on_established()
        elif isinstance(notice, SyncFinished):
            self.logs_synced = notice.logs
            self.connection.close()


class Ended(Struct, frozen=True):
    """A connection that has ended, and when on Trio's clock."""

    address: str
    direction: Direction
    ending: Ending
    at_s: float
    peer_id: bytes | None = None


class Roster:
    """Every open connection of a node."""

    def __init__(
        self,
        host: StoreHost,
        config: SessionConfig,
        interests: Callable[[], InterestsChanged],
        observer: Observer,
        trace: TraceFile | None = None,
        limits: Limits | None = None,
        *,
        admission: Admission,
        spread: Callable[[LogKey, int], None],
    ) -> None:
        """`spread` is called with every entry of a log that left or came, or a later one."""
        self._spread = spread
        self._admission = admission
        limits = limits or Limits()
        self.pacer = Pacer(limits)
        self.allowance = Allowance(limits.data_credit_bytes_max, CREDIT_BYTES_MIN, CREDIT_SHARE)
        self.files = Allowance(files_for_payloads(limits.connections_max), FILES_MIN, FILES_SHARE)
        self._accounts = Accounts()
        self.members: set[Member] = set()
        self.ended: deque[Ended] = deque(maxlen=ENDINGS_MAX)
        """How the last connections ended, the oldest first."""
        self._trace = trace
        self._host = host
        self._config = self._unlimited = config
        self._payers = Payers(config)
        self.change(limits)
        self._interests = interests
        self._observer = observer
        self._left = trio.lowlevel.ParkingLot()
        self._failures_told = Seldom(trio.current_time)
        self._strangers_told = Seldom(trio.current_time)
        self.sources = Sources(host.when_payloads_kept)
        self.hits: Counter[str] = Counter()
        """How often limits of single sessions were met, and a connection gave way to a newer one of
        the same peer."""

    @property
    def pausing(self) -> Pausing:
        """With whom there is to be no connection for now."""
        return self._admission.pausing

    def change(self, limits: Limits) -> None:
        """Holds the connections that begin from now on to these limits."""
        self.pacer.change(limits)
        self.allowance.most = limits.data_credit_bytes_max
        self.files.most = files_for_payloads(limits.connections_max)
        self._config = replace(
            self.pacer.session(self._unlimited),
            turn_packets=limits.turn_packets,
            answer_bytes_max=limits.answer_bytes,
            offered_logs_max=limits.offered_logs_max,
            payload_bytes_max=limits.payload_bytes_max,
        )
        self._payers.change(self._config)

    def make(
        self,
        stream: trio.abc.Stream,
        direction: Direction,
        address: str,
        *,
        policy: Literal["follow", "sync"] | None = None,
        greedy: Greedy | None = None,
        on_established: Callable[[], None] = lambda: None,
        taken_s: float | None = None,
    ) -> Member:
        """A member for a new stream, for `run`. What is None is as the node has it.

        `taken_s`: when the stream was taken, from where on its setup has its time; None: now.
        """
        proved = stream if isinstance(stream, ProvedStream) else None
        peer_id = None if proved is None else proved.peer_id
        expected = proved is not None and proved.expects is not None
        rule = None if peer_id is None else self._admission.rule_for(peer_id, expected=expected)
        role = Role.PROACTIVE if direction is Direction.OUTGOING else Role.REACTIVE
        config, files = self._share()
        setup, policy = with_greedy(config.setup, greedy), policy or config.policy
        config = replace(config, setup=setup, policy=policy)
        trace = None if self._trace is None else self._trace.begin(address, direction, peer_id)
        tracer = None if trace is None else trace.tracer
        place: Place | None = None
        if config.policy == "follow":
            tell: Tell = lambda event: member.connection.tell(event)  # noqa: E731, PLW0108 - made below
            place = self.sources.join(address, tell, lambda: member.connection.session.reads)
        claim = claim_all if place is None else place.claim
        rates = (None, None) if rule is None else (rule.rate_in, rule.rate_out)
        stream = self.pacer.stream(stream, peer_id or b"", rates)
        now = trio.current_time() if taken_s is None else taken_s
        payer = payer_of(self._admission, direction, address, peer_id)
        connection = Connection(
            Session(role, config, now, tracer, claim, self._payers.buckets_of(payer)),
            stream,
            self._host,
            source=address,
            interests=scoped(self._interests(), peer_id, rule),
            noticed=lambda notices, now: self._noticed(member, notices, now),
            send_bytes=self.pacer.piece_bytes or SEND_BYTES,
            failures_max=SYNC_FAILURES_MAX if config.policy == "sync" else None,
            failed=self._storage_failed,
            peer_id=peer_id,
            seat=self._host.turns.seat(self._accounts.open(payer, trio.current_time())),
        )

        def established() -> None:
            on_established()
            self._observer({"event": "connected", **member.fields})

        member = Member(
            address,
            direction,
            peer_id,
            expected,
            rates,
            connection,
            trio.current_time(),
            established,
            trace,
            config,
            stream,
            data_credit_bytes=config.data_credit_bytes,
            files=files,
            place=place,
        )
        return member

    def _share(self) -> tuple[SessionConfig, int]:
        """What a connection may have of the node's memory and files, and how many files that is."""
        credit = self.allowance.take(self._config.data_credit_bytes)
        inside, sinks = self._config.inside_payloads_max, self._config.sinks_max
        # Of those that go some may be verified and some not, each as many as `inside`.
        files = self.files.take(2 * inside + sinks)
        inside = min(inside, max(1, files // 6))
        config = replace(
            self._config,
            data_credit_bytes=credit,
            inside_payloads_max=inside,
            sinks_max=min(sinks, max(2, files - 2 * inside)),
        )
        return config, files

    def _noticed(self, member: Member, notices: Iterable[Notice], now: float) -> None:
        for notice in notices:
            if isinstance(notice, (EntriesSent, EntriesReceived)):
                self._spread(notice.log, notice.newest)
            elif isinstance(notice, LimitMet):
                self.hits[notice.limit] += 1
            member.take(notice, now)

    async def run(self, member: Member) -> Ending:
        """Runs a connection to its end."""
        self._make_room_for(member)
        self.members.add(member)
        if self.pausing.holds(member.peer_id):
            # Since it was let in.
            member.connection.close()
        try:
            member.ending = await member.connection.run()
        except Exception as error:  # noqa: BLE001 - no other connection is to notice
            self._host.faults.tell(f"connection with {member.address}", error)
            member.ending = Ending(EndKind.INTERNAL, f"internal error: {error!r}")
        finally:
            self.members.discard(member)
            self.allowance.give_back(member.data_credit_bytes)
            self.files.give_back(member.files)
            if member.place is not None:
                member.place.leave()
            member.ended.set()
            self._left.unpark_all()
            if member.trace is not None:
                member.trace.ended(member.ending)
        self.ended.append(
            Ended(
                member.address,
                member.direction,
                member.ending,
                trio.current_time(),
                member.peer_id,
            )
        )
        if self._is_to_be_told(member, member.ending):
            self._tell(member, member.ending)
        return member.ending

    def _is_to_be_told(self, member: Member, ending: Ending) -> bool:
        """A call that came to nothing is told by who called. Who called here and was no peer would
        choose by how often he calls how much is written into a log."""
        if member.established.is_set():
            return True
        is_incoming = member.direction is Direction.INCOMING
        return is_incoming and self._strangers_told.may_say(f"{ending.kind} {ending.reason}")

    def fault(self, where: str, error: Exception) -> None:
        """Something failed that never should, in a connection that is not running yet."""
        self._host.faults.tell(where, error)

    def log_sources(self, log: LogKey) -> list[SourceInfo]:
        """The connections over which a log can come."""
        infos = [
            member.place.info(log, member.address, member.direction)
            for member in self.members
            if member.place is not None
        ]
        found = [info for info in infos if info is not None]
        return sorted(found, key=lambda info: (info.direction, info.address))

    def rules_changed(self) -> None:
        """The table of peers says something else: who is allowed no longer is sent away.

        Or others are paused, and with them it ends in good order.
        """
        for member in list(self.members):
            if self.pausing.holds(member.peer_id):
                member.connection.close()
            if member.peer_id is None:
                continue
            rule = self._admission.rule_for(member.peer_id, expected=member.expected)
            if rule is None:
                member.connection.remove()
            elif (rule.rate_in, rule.rate_out) != member.rates and member.place is not None:
                # A stream is paced from its beginning: the next one has the new rate. For the end
                # of a one-time sync somebody waits.
                member.connection.close()
            else:
                self._make_room(member.peer_id, rule.connections)

    def begin_again(self, *, syncs: bool = True) -> None:
        """Ends every connection in good order, so that the next one knows what is otherwise now.

        `syncs`: one-time syncs, too, for which somebody waits.
        """
        for member in list(self.members):
            if syncs or member.place is not None:
                member.connection.close()

    def tell(self, event: Event) -> None:
        """Hands a local event to every session."""
        for member in list(self.members):
            if isinstance(event, InterestsChanged) and member.peer_id is not None:
                rule = self._admission.rule_for(member.peer_id, expected=member.expected)
                member.connection.tell(scoped(event, member.peer_id, rule))
            else:
                member.connection.tell(event)

    def _make_room_for(self, new: Member) -> None:
        """The newest connection of a peer is the one that somebody waits for."""
        if new.peer_id is not None:
            rule = self._admission.rule_for(new.peer_id, expected=new.expected)
            if rule is not None:
                self._make_room(new.peer_id, rule.connections - 1)

    def _make_room(self, peer_id: bytes, most: int) -> None:
        """A peer has as many connections as its row says: those silent longest give way.

        Of those that are there, one from which nothing was heard may be gone without our knowing.
        """
        if peer_id == self._admission.own_id:
            return
        theirs = [
            each for each in self.members if each.peer_id == peer_id and not each.connection.is_over
        ]
        theirs.sort(key=lambda each: each.connection.session.heard_at)
        for member in theirs[: max(0, len(theirs) - most)]:
            self.hits[PEER_CONNECTIONS] += 1
            member.connection.give_way("its peer has as many as its row allows")

    async def close(self, timeout_s: float) -> None:
        """Ends every session in good order, and after some time those that are left.

        Returns once all have ended, and so have handed over what they received.
        """
        try:
            with trio.move_on_after(timeout_s):
                for member in list(self.members):
                    member.connection.close()
                await self._all_left()
        finally:
            for member in self.members:
                member.connection.abort()
        await self._all_left()

    async def _all_left(self) -> None:
        while self.members:
            await self._left.park()

    def _storage_failed(self, reason: str) -> None:
        """Says what cannot be kept, and of what goes on, now and then that it does."""
        if self._failures_told.may_say(reason):
            self._observer({"event": "storage_failed", "reason": reason})

    def _tell(self, member: Member, ending: Ending) -> None:
        event = "violation" if ending.kind is EndKind.VIOLATION else "disconnected"
        self._observer(
            {
                "event": event,
                **member.fields,
                "kind": str(ending.kind),
                "reason": ending.reason,
            }
        )
