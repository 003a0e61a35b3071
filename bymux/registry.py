"""Which streams are active, whose ids are whose, and which ids are free."""

import heapq

from .channel import Creation, Stream
from .config import Config, Role
from .errors import Violation

CREATING = "bymux.md Creating streams"
PACKETS = "bymux.md Packets"


class Registry:
    """The streams of a connection, by id, and the creation of more."""

    def __init__(self, role: Role, config: Config) -> None:
        self._parity = role.parity
        self._config = config
        self.creation = Creation(possible=config.streams_creatable)
        self._credits_free = config.limits.credits_free
        self.streams = {
            initial.id: Stream(
                initial.id, initial.send_credit, initial.receive_credit, self._credits_free
            )
            for initial in config.initial_streams
        }
        self._ended: list[int] = []
        """Streams that are over and not yet reported."""
        self._fresh = self._parity
        self._freed: list[int] = []

    def __getitem__(self, number: int) -> Stream:
        """An active stream. Raises Violation for any other id."""
        stream = self.streams.get(number)
        if stream is None:
            detail = f"no stream {number} is active"
            raise Violation(PACKETS, detail, stream=number, value=number)
        return stream

    def create_ours(self) -> Stream:
        """A new stream of ours with the lowest free id, which keeps headers short."""
        while self._freed:
            number = heapq.heappop(self._freed)
            if number not in self.streams:
                return self._create(number, self._config.creator_credit, self._config.other_credit)
        while self._fresh in self.streams or self._fresh in self._ended:
            self._fresh += 2  # an initial stream's id
        number = self._fresh
        self._fresh += 2
        return self._create(number, self._config.creator_credit, self._config.other_credit)

    def create_theirs(self, number: int) -> Stream:
        """A new stream of the peer's. Raises Violation if it may not have this id."""
        if number % 2 == self._parity:
            detail = f"global: Write creates stream {number}, an id of the other side's parity"
            raise Violation(CREATING, detail, stream=number, value=number)
        if number in self.streams:
            detail = f"global: Write creates stream {number}, which is in use"
            raise Violation(CREATING, detail, stream=number, value=number)
        return self._create(number, self._config.other_credit, self._config.creator_credit)

    def _create(self, number: int, send_credit: int, receive_credit: int) -> Stream:
        stream = self.streams[number] = Stream(
            number, send_credit, receive_credit, self._credits_free
        )
        return stream

    def release(self, stream: Stream) -> None:
        """The stream is over."""
        number = stream.number
        del self.streams[number]
        self._ended.append(number)

    def take_ended(self) -> list[int]:
        """The streams that are over since the last call.

        Only now are ids of ours used again, so that no report of an end is taken for the end of the
        next stream of that id.
        """
        ended, self._ended = self._ended, []
        for number in ended:
            if number % 2 == self._parity and number < self._fresh:
                heapq.heappush(self._freed, number)
        return ended
