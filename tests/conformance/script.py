"""The other side of the endpoint under test: says whatever it is told to, and checks the answers.

It frames bymux by itself, by the packet factory of bymux's tests, so that nothing keeps it from
breaking the rules. A `Link` takes its bytes to the endpoint: a session in memory (memory.py), a
node behind a socket (sockets.py), or another implementation (__main__.py).
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from tests.bymux.factory import CLOSE, CREDIT, PING, PONG, STOP_READ, WRITE, Packets, packet, write
from wire import (
    Adjust,
    Apology,
    Cancel,
    CancelReason,
    ControlDecoder,
    ControlMessage,
    DataDecoder,
    DataPacket,
    Eagerness,
    Grant,
    Metadata,
    NeedMore,
    Negotiated,
    PayloadBytes,
    PayloadStart,
    Propose,
    RequestCancelled,
    Setup,
    Switch,
    decode_setup,
    encode_control,
    encode_request_cancelled,
    encode_setup,
    encode_switch,
    negotiate,
)

from .histories import History, Library
from .settings import CHOSEN

CONTROL, DATA = 0, 1
CREDIT_GIVEN = 1 << 30
"""What the endpoint may send on the data channel."""
GREEDY = Setup(send_greedily=True, accept_greedily=True, send_window=65_536, receive_window=65_536)
SAFE = Setup(send_greedily=False, accept_greedily=False, send_window=0, receive_window=0)
NARROW = Setup(send_greedily=True, accept_greedily=True, send_window=1024, receive_window=1024)
INFINITE = 2**64 - 1
_POLLS_MAX = 2000

T = TypeVar("T", bound=ControlMessage)


class UnmetError(AssertionError):
    """The endpoint did not do what the script waited for."""


class Link(Protocol):
    """A way to the endpoint under test."""

    def send(self, data: bytes) -> None:
        """Bytes to the endpoint."""

    def receive(self) -> bytes:
        """What it says next; b"": nothing more comes, now (in memory) or ever (over a socket)."""

    def wait(self, seconds: float) -> None:
        """Time passes for the endpoint; only for cases that need such a clock."""

    def author(self, history: History, count: int) -> None:
        """The endpoint appends the first entries of a log of its own (`Need.OWN`)."""


class Speaker:
    """A peer that follows a script. `proactive` is its own role; the endpoint has the other one."""

    def __init__(
        self, link: Link, library: Library, *, proactive: bool, setup: Setup = GREEDY
    ) -> None:
        self.link = link
        self.library = library
        self.proactive = proactive
        self.setup = setup
        self.theirs: Setup | None = None
        self.number = 0 if proactive else 1
        """The next request number."""
        self.inbox: deque[ControlMessage] = deque()
        """Control messages that nothing has waited for yet."""
        self.on_proposal: Callable[[Propose], None] | None = None
        """What is to be said to a proposal at once; None: it goes to the inbox."""
        self.answers_pings = True
        self.pings = 0
        """How many have come."""
        self.said: list[tuple[int, int | None, int]] = []
        """Bymux packets of the endpoint that are no Write: type, stream, amount."""
        self.data_credit = 0
        self.granted = 0
        """Request credit that the endpoint has granted."""
        self._proposed = 0
        self._unanswered: dict[int, Propose] = {}
        self.data_bytes_heard = 0
        self.kept: list[tuple[History, int]] = []
        """Logs, and up to where the endpoint has said that it keeps them, by answering a Close."""
        self.offended = False
        self.blamed: int | None = None
        self._mux = Packets()
        self._control = ControlDecoder()
        self._decoder: DataDecoder | None = None
        self._setup_bytes = bytearray()
        self._done: set[int] = set()
        """Requests whose packets are of no interest any more."""
        self._their_current: int | None = None

    # Beginning

    def begin(
        self, *behind: bytes, raw_setup: bytes | None = None, credit: int = CREDIT_GIVEN
    ) -> None:
        """Exchange setups; `behind` follows in the same segment.

        `credit` is what the endpoint may send on the data channel.
        """
        opening = raw_setup if raw_setup is not None else encode_setup(self.setup)
        if credit:
            opening += self.data_grant(credit)
        self.link.send(opening + b"".join(behind))
        while self.theirs is None:
            self._need("the setup")

    @staticmethod
    def data_grant(credit: int) -> bytes:
        """The bymux packet that lets the endpoint send so much data."""
        return packet(CREDIT, DATA, credit)

    @property
    def negotiated(self) -> Negotiated:
        """As this side sees it."""
        assert self.theirs is not None
        return negotiate(self.setup, self.theirs)

    # Saying

    def mux(self, *packets: bytes) -> None:
        self.link.send(b"".join(packets))

    def control(self, *messages: ControlMessage | bytes) -> None:
        self.link.send(write(CONTROL, _joined(messages)))

    def data(self, *packets: bytes) -> None:
        """Data packets, as soon as the endpoint has granted credit for them."""
        raw = b"".join(packets)
        while self.data_credit < len(raw):
            self._need(f"credit for {len(raw)} bytes of data")
        self.data_credit -= len(raw)
        self.link.send(write(DATA, raw))

    def propose(self, history: History, start: int = 1, **fields: object) -> int:
        """Propose with our next number, once there is credit for it; returns the number."""
        while self.granted <= self._proposed:
            self._need("credit for a proposal")
        number = self.number
        self.number += 2
        self._proposed += 1
        proposal = history.propose(number, start, **fields)
        self._unanswered[number] = proposal
        self.control(proposal)
        return number

    def cancel(
        self, number: int, reason: CancelReason = CancelReason.NOT_WANTED, **fields: object
    ) -> None:
        self.control(Cancel(number, reason, **fields))  # type: ignore[arg-type]

    def refuse(self, proposal: Propose) -> None:
        """Cancel a proposal of the endpoint with 128, with our 32 as far as there is credit.

        Unless it counts as never sent, as one of ours that has no answer begins before it (section
        7); ours never give way to what the endpoint may propose meanwhile.
        """
        number = proposal.request
        if any(_overlap(proposal, ours) for ours in self._unanswered.values()):
            return
        self._done.add(number)
        self.cancel(number)
        end = encode_switch(number) + encode_request_cancelled(number)
        if self.data_credit >= len(end):
            self.data(end)

    def grant(self, units: int = 8) -> None:
        """Request credit for the endpoint."""
        self.control(Grant(units))

    def wait(self, seconds: float) -> None:
        """Time passes at once (`Need.CLOCK`)."""
        self.link.wait(seconds)

    # The last words

    def bad_control(self, *messages: ControlMessage | bytes, request: int | None = None) -> None:
        """A violation; `request` is what the endpoint has to name."""
        self._offend(write(CONTROL, _joined(messages)), request)

    def bad_data(self, *packets: bytes, request: int | None = None) -> None:
        raw = b"".join(packets)
        while self.data_credit < len(raw):
            self._need(f"credit for {len(raw)} bytes of data")
        self._offend(write(DATA, raw), request)

    def bad_mux(self, *packets: bytes) -> None:
        self._offend(b"".join(packets), None)

    def together(self, message: ControlMessage, data: bytes, *, request: int) -> None:
        """A control message and data behind it that must not be there before the answer."""
        while self.data_credit < len(data):
            self._need(f"credit for {len(data)} bytes of data")
        self._offend(write(CONTROL, encode_control(message)) + write(DATA, data), request)

    def _offend(self, raw: bytes, request: int | None) -> None:
        self.offended, self.blamed = True, request
        self.link.send(raw)

    # Hearing

    def hear(self) -> bool:
        """Take in what the endpoint says next; False if nothing more comes."""
        data = self.link.receive()
        if not data:
            return False
        if self.theirs is None:
            data = self._take_setup(data)
        self._mux.feed(data)
        while (found := self._mux.next()) is not None:
            self._take(*found)
        return True

    def _take_setup(self, data: bytes) -> bytes:
        self._setup_bytes += data
        try:
            self.theirs, used = decode_setup(bytes(self._setup_bytes))
        except NeedMore:
            return b""
        self._decoder = DataDecoder(self.negotiated.decompression_window)
        return bytes(self._setup_bytes[used:])

    def _take(self, kind: int, stream: int | None, amount: int, body: bytes) -> None:
        if kind == WRITE and stream == CONTROL:
            self._control.feed(body)
            while (message := self._control.next_message()) is not None:
                if isinstance(message, Grant):
                    self.granted += message.units
                if isinstance(message, Adjust | Cancel):
                    self._unanswered.pop(message.request, None)
                if isinstance(message, Propose) and self.on_proposal is not None:
                    self.on_proposal(message)
                else:
                    self.inbox.append(message)
            return
        if kind == WRITE and stream == DATA:
            assert self._decoder is not None
            self.data_bytes_heard += len(body)
            self._decoder.feed(body)
            return
        self.said.append((kind, stream, amount))
        if kind == CREDIT and stream == DATA:
            self.data_credit += amount
        elif kind == PING:
            self.pings += 1
            if self.answers_pings:
                self.link.send(packet(PONG, stream))

    def _need(self, what: str) -> None:
        if not self.hear():
            raise UnmetError(f"the endpoint says nothing more; waited for {what}")

    def expect(
        self, kind: type[T], fits: Callable[[T], bool] = lambda _: True, what: str = ""
    ) -> T:
        """The next control message of a kind that fits; others stay in the inbox."""
        looked_at = 0
        while True:
            for index, message in enumerate(self.inbox):
                if index >= looked_at and isinstance(message, kind) and fits(message):
                    del self.inbox[index]
                    return message
            looked_at = len(self.inbox)
            self._need(what or f"a message {kind.__name__}, heard {list(self.inbox)}")

    def expect_answer(self, number: int) -> Adjust | Cancel:
        """The answer to a request of ours."""
        while True:
            for index, message in enumerate(self.inbox):
                if isinstance(message, Adjust | Cancel) and message.request == number:
                    del self.inbox[index]
                    return message
            self._need(f"an answer to request {number}, heard {list(self.inbox)}")

    def expect_cancel(self, number: int, reason: CancelReason | None = None) -> Cancel:
        found = self.expect(
            Cancel, lambda cancel: cancel.request == number, f"a cancel of request {number}"
        )
        if reason is not None and found.reason is not reason:
            raise UnmetError(f"request {number} is cancelled with {found.reason!r}, not {reason!r}")
        return found

    def expect_said(self, kind: int, stream: int | None) -> int:
        """A bymux packet of the endpoint; returns its amount."""
        while True:
            for index, (its_kind, its_stream, amount) in enumerate(self.said):
                if (its_kind, its_stream) == (kind, stream):
                    del self.said[index]
                    return amount
            self._need(f"bymux packet of type {kind} of stream {stream}")

    def packet(self, *, with_backlink: bool = False) -> DataPacket:
        """The next data packet of a request that is of interest yet."""
        while (found := self._next(with_backlink=with_backlink)) is None:
            self._need("a data packet")
        return found

    def _next(self, *, with_backlink: bool) -> DataPacket | None:
        assert self._decoder is not None
        while (found := self._decoder.next_packet(with_backlink)) is not None:
            if isinstance(found, Switch | RequestCancelled):
                if isinstance(found, Switch):
                    self._their_current = found.request
                if found.request not in self._done:
                    return found
            elif self._their_current not in self._done:
                return found
        return None

    def expect_packet(self, expected: DataPacket) -> None:
        found = self.packet()
        if found != expected:
            raise UnmetError(f"{found!r} on the data channel, not {expected!r}")

    def expect_switch(self, number: int) -> None:
        self.expect_packet(Switch(number))

    def expect_metadata(self, history: History, seq: int, *, first: bool = False) -> None:
        """Metadata of that entry, with its backlink if `first`."""
        raw = history.metadata(seq, first=first)
        reference = DataDecoder(0)
        reference.feed(raw)
        with_backlink = len(raw) > len(history.metadata(seq))
        found = self.packet(with_backlink=with_backlink)
        if not isinstance(found, Metadata) or found != reference.next_packet(with_backlink):
            raise UnmetError(f"{found!r} on the data channel, not the metadata of {seq}")

    def expect_payload(self, history: History, seq: int, offset: int = 0) -> None:
        """The payload of that entry from a byte on, in any packets."""
        wanted = history.payload(seq)[offset:]
        got = b""
        started = False
        while not started or len(got) < len(wanted):
            found = self.packet()
            if isinstance(found, PayloadStart):
                started = True
            elif isinstance(found, PayloadBytes):
                got += found.data
            else:
                raise UnmetError(f"{found!r} on the data channel inside the payload of {seq}")
        if got != wanted:
            raise UnmetError(f"another payload of entry {seq}: {got[:40]!r}")

    def expect_apology(self) -> None:
        """An apology, behind whatever comes of the payload before it."""
        found = self.packet()
        while isinstance(found, PayloadStart | PayloadBytes):
            found = self.packet()
        if found != Apology():
            raise UnmetError(f"{found!r} on the data channel, not an apology")

    def expect_entries(
        self, history: History, seqs: range | list[int], *, first: int | None = None
    ) -> None:
        for seq in seqs:
            self.expect_metadata(history, seq, first=seq == first)
            self.expect_payload(history, seq)

    def expect_end(self, number: int) -> None:
        """Packet 32 of a request, perhaps behind a switch to it."""
        found = self.packet()
        if found == Switch(number):
            found = self.packet()
        if found != RequestCancelled(number):
            raise UnmetError(f"{found!r} on the data channel, not the 32 of request {number}")

    # Whole exchanges

    def open(self, history: History, start: int = 1, **fields: object) -> int:
        """Propose a range and have it confirmed; returns its number."""
        number = self.propose(history, start, **fields)
        answer = self.expect_answer(number)
        if not isinstance(answer, Adjust):
            raise UnmetError(f"request {number} is answered with {answer}")
        return number

    def receiving(self, history: History, start: int = 1, **fields: object) -> int:
        """The same, and switch to it: the endpoint is ready to receive."""
        number = self.open(history, start, **fields)
        self.data(encode_switch(number))
        return number

    def receiving_with(
        self, history: History, settings: Adjust, start: int = 1, **fields: object
    ) -> int:
        """The same, with a confirmation that says these settings (`Need.SETTINGS`)."""
        CHOSEN[history.log] = settings
        return self.receiving(history, start, **fields)

    def newest(self, history: History) -> int:
        """Ask which entry of a log is the newest that the endpoint holds (section 3, sparse)."""
        number = self.propose(history, 1, sparse=True, eagerness=Eagerness.NOTIFY)
        answer = self.expect_answer(number)
        found = 0
        if isinstance(answer, Adjust):
            found = answer.end or 0
            self.cancel(number)
            self.expect_cancel(number)
        else:
            self.cancel(number, CancelReason.YOU_CANCELLED)
        self.end(number)
        return found

    def wait_until_held(self, history: History, seq: int) -> None:
        """Ask until the endpoint holds everything up to an entry; each time is a round trip."""
        for _ in range(_POLLS_MAX):
            if self.newest(history) >= seq:
                return
        raise UnmetError(f"the endpoint does not come to hold entry {seq} of {history.log}")

    def deliver(self, history: History, count: int) -> None:
        """Bring the first entries of a log to the endpoint, and see them kept."""
        number = self.receiving(history, 1, end=count)
        self.data(history.entries(range(1, count + 1)), encode_request_cancelled(number))
        self.cancel(number, CancelReason.COMPLETE)
        self._done.add(number)
        self.expect_cancel(number)
        self.wait_until_held(history, count)

    def asked(self, history: History) -> Propose:
        """Have the endpoint ask for a log from entry 1: it is offered one that begins further up.

        What it proposes stays unanswered (section 8: 128, and proposes what it needs).
        """
        number = self.propose(history, 5)
        self.expect_cancel(number, CancelReason.NOT_WANTED)
        self.cancel(number, CancelReason.YOU_CANCELLED)
        self.end(number)
        self.grant()
        return self.expect(Propose, lambda found: found.log == history.log, "its own proposal")

    def asked_behind(self, history: History, count: int) -> Propose:
        """Bring the first entries; the endpoint proposes the log from behind them."""
        self.deliver(history, count)
        self.grant(CREDIT_GIVEN)
        return self.expect(
            Propose,
            lambda found: found.log == history.log and found.start == count + 1,
            f"its own proposal from {count + 1}",
        )

    def settle(self) -> None:
        """See that the endpoint has done all that it was asked to: it answers what comes behind."""
        self.newest(self.library.fresh())
        self.mux_ping()

    def mux_ping(self) -> None:
        """See that everything so far has been read."""
        self.mux(packet(PING, None))
        self.expect_said(PONG, None)

    def settle_quietly(self) -> None:
        """The same by pings alone, without a request of ours."""
        for _ in range(3):
            self.mux_ping()

    def poll(self, history: History, reason: CancelReason, start: int = 1) -> Cancel:
        """Propose a log until that is cancelled with a reason."""
        for _ in range(_POLLS_MAX):
            number = self.propose(history, start)
            answer = self._answer_unless_crossed(number)
            if answer is None:
                continue
            if isinstance(answer, Cancel) and answer.reason is reason:
                return answer
            self.cancel(number, CancelReason.YOU_CANCELLED)
            self.end(number)
        raise UnmetError(f"no proposal of {history.log} is cancelled with {reason!r}")

    def _answer_unless_crossed(self, number: int) -> Adjust | Cancel | None:
        """The answer to a request of ours; None: it has met a proposal of the endpoint that wins
        (section 7), and never was. That one is refused."""
        looked_at = len(self.inbox)
        while True:
            for message in list(self.inbox)[looked_at:]:
                if isinstance(message, Adjust | Cancel) and message.request == number:
                    return self.expect_answer(number)
                ours = self._unanswered.get(number)
                if isinstance(message, Propose) and ours is not None and _wins(message, ours):
                    del self._unanswered[number]
                    self.refuse(message)
                    return None
            looked_at = len(self.inbox)
            self._need(f"an answer to request {number}, heard {list(self.inbox)}")

    def no_own_data(self, number: int) -> None:
        """The endpoint has not switched to a request of its own."""
        found = self._next(with_backlink=False)
        if found == Switch(number):
            raise UnmetError(f"it switches to request {number}, which has no answer")

    def silent(self, kind: type[T], fits: Callable[[T], bool] = lambda _: True) -> None:
        """Nothing of that kind has been said, and is not said now either."""
        self.settle()
        said = [message for message in self.inbox if isinstance(message, kind) and fits(message)]
        if said:
            raise UnmetError(f"the endpoint says {said[0]}")

    def nothing_came(self) -> None:
        """No data has come so far. Nothing is asked to see that."""
        while self.hear():
            pass
        found = self._next(with_backlink=False)
        if found is not None:
            raise UnmetError(f"{found!r} on the data channel already")

    def no_data(self) -> None:
        """Nothing stands on the data channel."""
        self.settle()
        found = self._next(with_backlink=False)
        if found is not None:
            raise UnmetError(f"{found!r} on the data channel, where nothing is due")

    def alive(self) -> None:
        """The connection still works: a ping is answered and an entry of a new log is kept."""
        self.mux(packet(PING, None))
        self.expect_said(PONG, None)
        self.deliver(self.library.fresh(), 1)

    def end(self, number: int) -> None:
        """Our 32 of a request that is of no interest any more, behind a switch to it."""
        self._done.add(number)
        self.data(encode_switch(number), encode_request_cancelled(number))

    def close(self) -> None:
        """End the session in good order, and see the endpoint do the same."""
        for stream in (CONTROL, DATA):
            self.mux(packet(CLOSE, stream), packet(STOP_READ, stream))
        for stream in (CONTROL, DATA):
            self.expect_said(CLOSE, stream)
            self.expect_said(STOP_READ, stream)


def _wins(one: Propose, other: Propose) -> bool:
    """Whether one of two proposals that cross makes the other one void (section 7)."""
    is_first = (one.start, one.request % 2) < (other.start, other.request % 2)
    return one.log == other.log and is_first and _overlap(one, other)


def _overlap(one: Propose, other: Propose) -> bool:
    """Section 7: from start to end, open without limit, whatever the kind."""
    ends = [INFINITE if each.end is None else each.end for each in (one, other)]
    return one.log == other.log and one.start <= ends[1] and other.start <= ends[0]


def _joined(messages: tuple[ControlMessage | bytes, ...]) -> bytes:
    return b"".join(m if isinstance(m, bytes) else encode_control(m) for m in messages)
