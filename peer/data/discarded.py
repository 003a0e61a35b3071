"""What a session throws away of what comes on the data channel, and what that costs the sender."""

from collections.abc import Callable

from peer.protocol.config import SessionConfig
from wire import PIECE_BYTES_MAX


class Discarded:
    """What is thrown away, which costs us work: `idle_work` is called for some of it.

    Each 64 KiB of it, as they came: of a payload that shrinks well an honest side may have a
    thousand times as much under way when we give it up. But each turn of reading that was for
    nothing counts too: what thirty bytes say may be 2^40, at which a core would work for half an
    hour.
    """

    def __init__(self, config: SessionConfig, idle_work: Callable[[], None]) -> None:
        self._idle_work = idle_work
        self._turn_bytes = config.read_work_bytes_max
        self._bytes = self._payload_bytes = 0

    def add(self, size: int, payload_bytes: int) -> None:
        """So much more, that stood for so many bytes of a payload."""
        as_it_came, self._bytes = divmod(self._bytes + size, PIECE_BYTES_MAX)
        turns, self._payload_bytes = divmod(self._payload_bytes + payload_bytes, self._turn_bytes)
        for _ in range(as_it_came + turns):
            self._idle_work()
