"""The ends of a connection that push and pull, without socket or clock (spec section 3.7).

Times are seconds of any clock, given as arguments. A connection is told by `connected` and
`receive`; what is to be sent comes from `take`, and `due` says when `tick` is to be called. A hub
that has been silent for too long is `Silent`: connect again, the state goes on.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

from gateways.ockam.codec import (
    CREATE_PARTITIONED,
    Address,
    Create,
    Created,
    Failure,
    FrameDecoder,
    GetIndex,
    Index,
    Pull,
    Pulled,
    Push,
    Pushed,
    Request,
    Response,
    Route,
    SaveIndex,
    decode_message,
    decode_payload,
    decode_response,
    encode_frame,
    encode_message,
    encode_request,
    local,
)
from gateways.reading import CodecError
from wire import U64_MAX

UNCONFIRMED_MAX: Final = 256
UNCONFIRMED_BYTES_MAX: Final = 1 << 20
REFUSALS_MAX: Final = 5
REPEAT_AFTER_S: Final = 1.0
ANSWER_S: Final = 10.0
PULL_LIMIT: Final = 100
SAVE_EVERY_S: Final = 1.0
QUIET_S: Final = 0.25
QUIET_MAX_S: Final = 2.0
INDEX_END: Final = U64_MAX
"""Indexes of messages are below it, since that of the next one has to be a number as well."""
OWN: Final = local("bamboo")
CREATOR: Final = (local("stream"),)
KEEPER: Final = (local("stream_index"),)


class Silent(Exception):  # noqa: N818 - what the hub is
    """The hub has not answered in time: the connection is as good as lost."""


class Refused(Exception):  # noqa: N818 - what has happened
    """The hub will not do what it was asked; the text says what and why."""


class _End:
    """What both have in common: frames, and the address of the stream."""

    def __init__(self, name: str, partition: int) -> None:
        self.name: Final = name
        self.partition: Final = partition
        self._frames = FrameDecoder()
        self._out: list[bytes] = []
        self._stream: Route | None = None
        self._heard_at_s = 0.0

    def _connect(self, now_s: float) -> None:
        self._frames = FrameDecoder()
        self._out.clear()
        self._stream = None
        self._heard_at_s = now_s
        if self.partition:
            create = Create(self.name, self.partition + 1, CREATE_PARTITIONED)
        else:
            create = Create(self.name)
        self._ask(CREATOR, create)

    def _ask(self, onward: tuple[Address, ...], request: Request) -> None:
        self._out.append(encode_frame(encode_message(onward, (OWN,), encode_request(request))))

    def _responses(self, data: bytes) -> Iterator[Response]:
        """Raises CodecError for what is no routing message; ignores what says nothing to us."""
        self._frames.feed(data)
        while (frame := self._frames.next_frame()) is not None:
            message = decode_message(frame)
            try:
                response = decode_response(*decode_payload(message.payload))
            except CodecError:
                continue
            if isinstance(response, Failure):
                raise Refused(f"{self.name}: the hub says {response.reason!r}")
            if isinstance(response, Created):
                if response.name != self.name or (response.partition or 0) != self.partition:
                    continue
                self._stream = message.back
            yield response

    @property
    def address(self) -> str | None:
        """Of the stream at this hub, once it is known."""
        return None if not self._stream else self._stream[-1].value.decode("utf-8", "replace")

    def take(self) -> bytes:
        """What is to be sent."""
        out, self._out = b"".join(self._out), []
        return out


@dataclass(slots=True)
class _Unconfirmed:
    data: bytes
    refusals: int = 0
    again_at_s: float | None = None


class Confirmed(NamedTuple):
    """A push is on the hub's disk. `token`: what `push` returned."""

    token: int
    position: int
    """Its index."""


class PublisherEnd(_End):
    """Pushes to one partition of a stream, at least once, in order.

    What is refused is pushed again after a second. Whatever is not on its way by then waits behind
    it: what was pushed first is sent first, over one connection or several.
    """

    def __init__(self, name: str, partition: int = 0) -> None:
        super().__init__(name, partition)
        self._unconfirmed: dict[int, _Unconfirmed] = {}
        self._bytes = 0
        self._unsent: list[int] = []
        """Tokens of what is not on its way over this connection, a heap."""
        self._sent: dict[int, int] = {}
        self._request = 0
        self._token = 0
        self._confirmed: list[Confirmed] = []

    def connected(self, now_s: float) -> None:
        """A new connection: create, then what is unconfirmed, before anything newer."""
        self._connect(now_s)
        self._sent.clear()
        self._unsent = sorted(self._unconfirmed)

    @property
    def has_room(self) -> bool:
        """Whether `push` may be called: up to 256 or 1 MiB may be unconfirmed."""
        return len(self._unconfirmed) < UNCONFIRMED_MAX and self._bytes < UNCONFIRMED_BYTES_MAX

    @property
    def unconfirmed(self) -> int:
        """How many pushes are."""
        return len(self._unconfirmed)

    def push(self, data: bytes, now_s: float) -> int:
        """Takes a message; its token comes back in `Confirmed`."""
        self._token += 1
        if not self._unconfirmed:
            self._heard_at_s = now_s
        self._unconfirmed[self._token] = _Unconfirmed(data)
        self._bytes += len(data)
        heappush(self._unsent, self._token)
        self._send_due(now_s)
        return self._token

    def _send_due(self, now_s: float) -> None:
        """Sends what is not on its way, the oldest first, up to one whose second is not over."""
        while self._stream is not None and self._unsent:
            push = self._unconfirmed[self._unsent[0]]
            if push.again_at_s is not None and push.again_at_s > now_s:
                return
            token = heappop(self._unsent)
            push.again_at_s = None
            self._request += 1
            self._sent[self._request] = token
            self._ask(self._stream, Push(self._request, push.data))

    def receive(self, data: bytes, now_s: float) -> None:
        """Takes bytes of the hub. Raises CodecError; Refused for what the hub refuses for good."""
        for response in self._responses(data):
            self._heard_at_s = now_s
            if isinstance(response, Created):
                self._send_due(now_s)
            elif isinstance(response, Pushed):
                self._pushed(response, now_s)

    def confirmed(self) -> list[Confirmed]:
        """What is on the hub's disk, since the last call.

        Also of bytes that end the connection further on: it is not pushed again.
        """
        confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def _pushed(self, response: Pushed, now_s: float) -> None:
        token = self._sent.pop(response.request, None)
        if token is None:
            return
        push = self._unconfirmed[token]
        if response.is_stored:
            del self._unconfirmed[token]
            self._bytes -= len(push.data)
            self._confirmed.append(Confirmed(token, response.index))
            return
        push.refusals += 1
        if push.refusals > REFUSALS_MAX:
            raise Refused(f"{self.name}/{self.partition}: the hub refused a push six times")
        push.again_at_s = now_s + REPEAT_AFTER_S
        heappush(self._unsent, token)

    @property
    def due_s(self) -> float | None:
        """When `tick` is to be called."""
        times = []
        if self._stream is not None and self._unsent:
            times.append(self._unconfirmed[self._unsent[0]].again_at_s)
        if self._stream is None or self._sent:
            times.append(self._heard_at_s + ANSWER_S)
        return min((each for each in times if each is not None), default=None)

    def tick(self, now_s: float) -> None:
        """Repeats what was refused a second ago. Raises Silent."""
        if self._stream is None or self._sent:
            _check_heard(self._heard_at_s, now_s)
        self._send_due(now_s)


def _check_heard(heard_at_s: float, now_s: float) -> None:
    if now_s >= heard_at_s + ANSWER_S:
        raise Silent(f"no answer in {ANSWER_S:g} s")


class ConsumerEnd(_End):
    """Pulls one partition of a stream from where `client` is, or from `start`.

    `start`: the index of the first message; it wins over the place of `client`. What was given out
    is saved by `handled`, which the caller calls when the next message is asked for.
    """

    def __init__(
        self,
        name: str,
        partition: int = 0,
        *,
        client: str | None = None,
        start: int | None = None,
        limit: int = PULL_LIMIT,
    ) -> None:
        super().__init__(name, partition)
        self._client = client
        self.next: int | None = 0 if client is None and start is None else start
        """The next index to read, None until the hub has said where `client` is."""
        self.limit = limit
        self._handled: int | None = None
        self._saved_at_s = -SAVE_EVERY_S
        self._request = 0
        self._pulling: int | None = None
        self._getting = False
        self._quiet_s = QUIET_S
        self._pull_at_s: float | None = None
        self._saved_to: int | None = None
        self._is_settled = True
        self.settled: int | None = None
        """What the hub has said last of the position."""
        self.at_end = False
        """Whether the last pull was answered with nothing new."""
        self.paused = False
        """Whether no pull is to be sent: the caller has messages enough."""
        self.messages: deque[tuple[int, bytes]] = deque()
        """Index and data of what has come, for the caller to take."""

    def connected(self, now_s: float) -> None:
        """A new connection: create, Get, then pulls from the place reached."""
        self._connect(now_s)
        self._pulling = None
        self._getting = False

    def receive(self, data: bytes, now_s: float) -> None:
        """Takes bytes of the hub. Raises CodecError, Refused."""
        for response in self._responses(data):
            self._heard_at_s = now_s
            if isinstance(response, Created):
                self._go_on(now_s)
            elif isinstance(response, Index):
                self._positioned(response, now_s)
            elif isinstance(response, Pulled) and response.request == self._pulling:
                self._pulled(response, now_s)

    def _go_on(self, now_s: float) -> None:
        if self._stream is None or self._pulling is not None or self._getting:
            return
        if self.next is None:
            self._get()
        elif not self.paused:
            self._request += 1
            self._pulling, self._pull_at_s = self._request, None
            self._heard_at_s = now_s
            self._ask(self._stream, Pull(self._request, self.next, self.limit))

    def _get(self) -> None:
        assert self._client is not None
        self._getting = True
        partition = self.partition or None
        self._ask(KEEPER, GetIndex(self._client, self.name, partition))

    def _positioned(self, response: Index, now_s: float) -> None:
        if not self._getting or (response.client, response.name) != (self._client, self.name):
            return
        self._getting = False
        self.settled = response.index
        self._is_settled = True
        if self.next is None:
            self.next = response.index or 0
        self._go_on(now_s)

    def _pulled(self, response: Pulled, now_s: float) -> None:
        assert self.next is not None
        self._pulling = None
        # Nothing new is as good as nothing: who is asked again at once would be for ever.
        self.at_end = True
        for index, data in response.messages:
            # Never below the one asked for, and never down again within one answer. Behind the last
            # number that there is nothing could be asked for.
            if self.next <= index < INDEX_END:
                self.messages.append((index, data))
                self.next = index + 1
                self.at_end = False
        if self.at_end:
            self._pull_at_s = now_s + self._quiet_s
            self._quiet_s = min(2 * self._quiet_s, QUIET_MAX_S)
        else:
            self._quiet_s = QUIET_S
            self._go_on(now_s)

    def resume(self, now_s: float) -> None:
        """Pulls again, unless one is under way or due later."""
        self.paused = False
        if self._pull_at_s is None:
            self._go_on(now_s)

    def handled(self, index: int, now_s: float) -> None:
        """A message was dealt with; the position is saved at most once a second."""
        self._handled = index + 1
        self._is_settled = False
        if now_s >= self._saved_at_s + SAVE_EVERY_S:
            self._save(now_s)

    def _save(self, now_s: float) -> None:
        if self._client is None or self._handled in (None, self._saved_to):
            return
        if self._stream is None:
            return
        assert self._handled is not None
        self._saved_at_s, self._saved_to = now_s, self._handled
        partition = self.partition or None
        self._ask(KEEPER, SaveIndex(self._client, self.name, self._handled, partition))

    def finish(self, now_s: float) -> bool:
        """Saves, and asks with a Get whether it is on disk; False if there is nothing to ask."""
        if self._client is None or self._handled is None or self._stream is None:
            return False
        self.paused = True
        self.settled = None
        # Again, whatever was sent before: a connection that was lost may have lost it too.
        self._saved_to = None
        self._save(now_s)
        self._heard_at_s = now_s
        self._get()
        return True

    @property
    def needs_settling(self) -> bool:
        """Whether a position was reached that the hub has not said to know since."""
        return self._client is not None and not self._is_settled

    @property
    def is_finished(self) -> bool:
        """Whether the hub has answered the Get of `finish`."""
        return not self._getting

    @property
    def due_s(self) -> float | None:
        """When `tick` is to be called."""
        if self._stream is None or self._pulling is not None or self._getting:
            return self._heard_at_s + ANSWER_S
        times = [] if self.paused or self._pull_at_s is None else [self._pull_at_s]
        if self._client is not None and self._handled not in (None, self._saved_to):
            times.append(self._saved_at_s + SAVE_EVERY_S)
        return min(times, default=None)

    def tick(self, now_s: float) -> None:
        """Pulls again after an empty list, saves what is due. Raises Silent."""
        if self._stream is None or self._pulling is not None or self._getting:
            _check_heard(self._heard_at_s, now_s)
        if now_s >= self._saved_at_s + SAVE_EVERY_S:
            self._save(now_s)
        if self._pull_at_s is not None and self._pull_at_s <= now_s and not self.paused:
            self._go_on(now_s)
