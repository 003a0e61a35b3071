"""A connection of a hostile peer: says what it is told to, and need not listen.

It frames bymux by the packet factory of bymux's tests, so that nothing keeps it from breaking the
rules or from keeping them to the letter. What it sends is paced and counted.
"""

from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from tests.bymux.factory import CREDIT, PONG, WRITE, Packets, packet, write
from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    ControlDecoder,
    ControlMessage,
    Eagerness,
    Grant,
    LogKey,
    NeedMore,
    Propose,
    Setup,
    decode_setup,
    encode_control,
    encode_request_cancelled,
    encode_setup,
    encode_switch,
)

CONTROL, DATA = 0, 1
GREEDY: Final = Setup(
    send_greedily=True, accept_greedily=True, send_window=65_536, receive_window=65_536
)
SAFE: Final = Setup(
    send_greedily=False, accept_greedily=False, send_window=65_536, receive_window=65_536
)
CREDIT_GIVEN: Final = 1 << 40
"""Bytes of data that the node may send."""
PING_ALL: Final = b"\x50"
WRITE_BYTES: Final = 16 * 1024
CHUNK: Final = 64 * 1024
DENIED: Final = b"denied\n"


class LineEndedError(Exception):
    """The node has ended the connection; the text says how."""


class RefusedError(Exception):
    """The node has cancelled a request; the text is the number of the reason."""


class Pace:
    """So many units a second, for all that share it; None: as many as it gets."""

    def __init__(self, per_s: float | None, burst: float) -> None:
        self._per_s = per_s
        self._burst = self._left = burst
        self._at = trio.current_time()

    async def take(self, units: float) -> None:
        """Waits until so many may be had."""
        await trio.lowlevel.checkpoint()
        if self._per_s is None:
            return
        now = trio.current_time()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s) - units
        self._at = now
        if self._left < 0:
            await trio.sleep(-self._left / self._per_s)


class Line:
    """One connection of a hostile peer, which made it and so is proactive."""

    def __init__(self, stream: trio.abc.Stream, pace: Pace, counts: "Counter[str]") -> None:
        self.stream = stream
        self.counts = counts
        """What all lines of the attack have done."""
        self.inbox: deque[ControlMessage] = deque()
        """What the node has said on control that nothing has waited for; the last thousand."""
        self.data_credit = 0
        self.granted = 0
        self.heard_data = 0
        """Bytes on the data channel."""
        self.pongs = 0
        self.ended: str | None = None
        self._pace = pace
        self._number = -2
        self._proposed = 0
        self._theirs: Setup | None = None
        self._ending: set[int] = set()
        """Requests that we have cancelled first, and whose cancel has not come."""
        self._opening = bytearray()
        self._packets = Packets()
        self._control = ControlDecoder()
        self._changed = trio.Event()

    # Saying

    async def begin(self, setup: Setup = GREEDY, *, credit: int = CREDIT_GIVEN) -> None:
        """Our setup bytes, and credit for the node's data."""
        await self.send(encode_setup(setup) + (packet(CREDIT, DATA, credit) if credit else b""))

    async def send(self, data: bytes) -> None:
        """Any bytes. Raises LineEndedError once the node has hung up."""
        for start in range(0, len(data), CHUNK):
            chunk = data[start : start + CHUNK]
            await self._pace.take(len(chunk))
            try:
                await self.stream.send_all(chunk)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise LineEndedError(self.ended or f"cut ({error})") from None
            self.counts["sent_bytes"] += len(chunk)

    async def control(self, *messages: ControlMessage) -> None:
        """Control messages in one Write."""
        await self.send(write(CONTROL, b"".join(map(encode_control, messages))))

    async def data(self, data: bytes) -> None:
        """Data packets, in Writes, as the node grants credit for them."""
        offset = 0
        while offset < len(data):
            await self.until(lambda: self.data_credit > 0)
            size = min(len(data) - offset, self.data_credit, WRITE_BYTES)
            self.data_credit -= size
            await self.send(write(DATA, data[offset : offset + size]))
            offset += size

    async def next_number(self) -> int:
        """Of a request of ours, once the node has granted credit for one more."""
        await self.until(lambda: self.granted > self._proposed)
        self._proposed += 1
        self._number += 2
        return self._number

    async def open(self, proposal: Callable[[int], Propose]) -> int:
        """Proposes, is confirmed, and switches to it; returns the number.

        Raises RefusedError if the node cancels it.
        """
        number = await self.propose(proposal)
        await self.confirmed(number)
        return number

    async def propose(self, proposal: Callable[[int], Propose]) -> int:
        """The number of a new request, once the node has granted credit for it."""
        number = await self.next_number()
        await self.control(proposal(number))
        self.counts["proposals"] += 1
        return number

    async def confirmed(self, number: int) -> None:
        """Switches to a request once it is confirmed. Raises RefusedError if it is cancelled."""
        answer = await self.answer(number)
        if isinstance(answer, Cancel):
            self.counts[f"cancelled {int(answer.reason)}"] += 1
            raise RefusedError(int(answer.reason))
        self.counts["confirmed"] += 1
        await self.data(encode_switch(number))

    async def answer(self, number: int) -> Adjust | Cancel:
        """What the node says to a request."""
        found: list[Adjust | Cancel] = []

        def there() -> bool:
            for message in self.inbox:
                if isinstance(message, Adjust | Cancel) and message.request == number:
                    found.append(message)
                    return True
            return False

        await self.until(there)
        self.inbox.remove(found[0])
        return found[0]

    async def next_number_of_many(self) -> int:
        """The same, of who asks all the time, and ends meanwhile whatever is answered."""
        await self.end_answered()
        while self.granted <= self._proposed:
            await self.until(lambda: bool(self.inbox) or self.granted > self._proposed)
            await self.end_answered()
        return await self.next_number()

    async def end_answered(self) -> None:
        """Ends every request of ours that was confirmed or cancelled, as the protocol wants it."""
        while self.inbox:
            message = self.inbox.popleft()
            if not isinstance(message, Adjust | Cancel) or message.request % 2:
                # Ours are even; the node has no credit for requests of its own here.
                continue
            number = message.request
            if number in self._ending:
                self._ending.discard(number)
                continue
            reason = CancelReason.YOU_CANCELLED
            if isinstance(message, Adjust):
                reason = CancelReason.NOT_WANTED
                self._ending.add(number)
            await self.control(Cancel(number, reason))
            await self.data(encode_switch(number) + encode_request_cancelled(number))

    # Hearing

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for something that the node says. Raises LineEndedError if it hangs up."""
        while not condition():
            if self.ended is not None:
                raise LineEndedError(self.ended)
            await self._changed.wait()

    async def listen(self) -> None:
        """Takes in what the node says, until it has ended the connection."""
        try:
            while data := await self.stream.receive_some(CHUNK):
                self.counts["heard_bytes"] += len(data)
                self._take(data)
            self._end("closed")
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._end(f"cut ({error})" if str(error) else "cut")

    async def sip(self, size: int) -> bool:
        """Takes in so many bytes and no more; False if the node has ended the connection."""
        try:
            data = await self.stream.receive_some(size)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if data:
            self.counts["heard_bytes"] += len(data)
            self._take(data)
        else:
            self._end("closed")
        return bool(data)

    def _end(self, reason: str) -> None:
        self.ended = self.ended or reason
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _take(self, data: bytes | bytearray) -> None:
        if self._theirs is None:
            self._opening += data
            if self._opening.startswith(DENIED):
                self._end("denied")
                return
            try:
                self._theirs, used = decode_setup(bytes(self._opening))
            except NeedMore:
                return
            data = self._opening[used:]
            self.counts["set_up"] += 1
        self._packets.feed(data)
        while (found := self._packets.next()) is not None:
            self._take_packet(*found)
        self._tell()

    def _take_packet(self, kind: int, stream: int | None, amount: int, body: bytes) -> None:
        if kind == WRITE and stream == CONTROL:
            self._control.feed(body)
            while (message := self._control.next_message()) is not None:
                if isinstance(message, Grant):
                    self.granted += message.units
                else:
                    self._note(message)
        elif kind == WRITE:
            self.heard_data += len(body)
            self.counts["heard_data_bytes"] += len(body)
        elif kind == CREDIT and stream == DATA:
            self.data_credit += amount
        elif kind == PONG:
            self.pongs += 1

    def _note(self, message: ControlMessage) -> None:
        name = type(message).__name__.lower()
        self.counts[f"heard {name}"] += 1
        if isinstance(message, Cancel):
            self.counts[f"heard cancel {int(message.reason)}"] += 1
            self.counts["heard_entries"] += len(message.entries)
        self.inbox.append(message)
        if len(self.inbox) > 1000:
            self.inbox.popleft()

    async def close(self) -> None:
        """At once, and without a word."""
        with trio.CancelScope(shield=True), suppress(trio.BrokenResourceError):
            await trio.aclose_forcefully(self.stream)


def offer(log: LogKey, **fields: object) -> Callable[[int], Propose]:
    """A proposal of a log from entry 1 on, with everything, unless `fields` say otherwise."""

    def make(number: int) -> Propose:
        values: dict[str, object] = {
            "start": 1,
            "lower_info": 1,
            "min_bytes": 0,
            "max_bytes": U64_MAX,
            "starting_hash": None,
            "eagerness": Eagerness.ALL,
            **fields,
        }
        return Propose(request=number, log=log, **values)  # type: ignore[arg-type]

    return make
