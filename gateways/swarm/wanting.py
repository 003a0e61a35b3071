"""What a node subscribes to at one peer, and when (spec section 3.3).

Every node wants the answers to what it looks for, and of a full peer the bins that are its share:
of a peer outside the neighbourhood the one bin in which that peer lies, of one inside it all from
the depth on. The depth moves as peers come and go; what is no longer wanted is unsubscribed, and
what is wanted again waits until what is under way of the old subscription cannot be taken for an
answer to the new.

Upstream's nodes ask for subscriptions by the same reckoning, with their own view of the depth, and
know best what they keep for us. So what is asked for is wanted too.
"""

from collections.abc import Mapping
from typing import Final

from gateways.reading import CodecError
from gateways.swarm.client import Client
from gateways.swarm.codec import (
    BINS,
    HIGH,
    RETRIEVE_REQUEST,
    SYNC,
    TOP,
    Range,
    RequestSubscription,
    Stream,
    bin_key,
    read_bin_key,
)
from gateways.swarm.intervals import Intervals

QUIET_S: Final = 5.0
"""A peer of which nothing was offered for so long has nothing more (spec section 3.9)."""
_SYNC_PRIORITY: Final = HIGH


def share_of(proximity: int, depth: int) -> range:
    """The bins that are wanted of a full peer of this proximity."""
    return range(proximity, proximity + 1) if proximity < depth else range(depth, BINS)


class Wanting:
    """What is subscribed at one peer, whose `client` it is.

    `intervals`: the records of its bins, by their keys; those that are missing begin. `takes`:
    whether anything is synced at all, which is not between light nodes and from them.
    """

    def __init__(self, client: Client, intervals: Mapping[str, Intervals], *, takes: bool) -> None:
        self._client = client
        self._intervals = dict(intervals)
        self.takes: Final = takes
        self._share: frozenset[int] = frozenset()
        self._asked_for: set[int] = set()
        self._over: set[int] = set()
        """Bins that the peer has refused or quit: they are not asked for again here."""
        self._is_paused = False

    def begin(self, now: float) -> None:
        """Wants answers to what is looked for: v1.8.27 gives none to who has not subscribed."""
        stream = Stream(RETRIEVE_REQUEST, "", live=True)
        self._client.subscribe(stream, None, TOP, Intervals(0), now)

    def set_share(self, share: range, now: float) -> None:
        """The bins that are this peer's share are others now."""
        self._share = frozenset(share)
        self.advance(now)

    def pause(self, is_paused: bool, now: float) -> None:
        """Takes no more, or goes on: the disk or what it may hold is full, or no longer is."""
        self._is_paused = is_paused
        self.advance(now)

    def request(self, message: RequestSubscription, now: float) -> None:
        """The peer would have us subscribe. The range that it names is not the one we lack."""
        if message.stream.name != SYNC or not self.takes:
            return
        try:
            bin_ = read_bin_key(message.stream.key)
        except CodecError:
            return
        self._asked_for.add(bin_)
        self._over.discard(bin_)
        self.advance(now)

    def over(self, stream: Stream, now: float) -> None:
        """The peer has refused a stream, or has no more of it: its twin goes too."""
        if stream.name == SYNC:
            self._over.add(read_bin_key(stream.key))
            self.advance(now)

    @property
    def bins(self) -> frozenset[int]:
        """Those that are wanted now."""
        if not self.takes or self._is_paused:
            return frozenset()
        return (self._share | self._asked_for) - self._over

    def is_synced(self, now: float) -> bool:
        """Whether all is here that the peer has of the bins that are wanted of it."""
        since = self._client.quiet_since(SYNC)
        is_quiet = since is not None and now >= since + QUIET_S
        return is_quiet and not (self._is_paused or self._lacking())

    # Time ----------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float | None:
        """When `advance` is to be called at the latest."""
        return min((self._free_at(each) for each in self._lacking()), default=None)

    def advance(self, now: float) -> None:
        """Subscribes what is wanted and may be, and unsubscribes what is not."""
        wanted = self.bins
        for stream in self._client.streams:
            if stream.name == SYNC and read_bin_key(stream.key) not in wanted:
                self._client.unsubscribe(stream, now)
        for bin_ in self._lacking():
            if now >= self._free_at(bin_):
                self._subscribe(bin_, now)

    def _lacking(self) -> list[int]:
        """Bins that are wanted, and not subscribed."""
        subscribed = {each.key for each in self._client.streams if each.name == SYNC}
        return [each for each in sorted(self.bins) if bin_key(each) not in subscribed]

    def _free_at(self, bin_: int) -> float:
        twins = (Stream(SYNC, bin_key(bin_), live) for live in (True, False))
        return max(self._client.free_at(each) or 0.0 for each in twins)

    def _subscribe(self, bin_: int, now: float) -> None:
        key = bin_key(bin_)
        # 0 for peers of which we do not know that they begin at 1: upstream's begin there.
        intervals = self._intervals.setdefault(key, Intervals(0))
        gap = intervals.first_gap()
        if gap is not None:
            stream = Stream(SYNC, key, live=True)
            self._client.subscribe(stream, Range(gap.first, 0), _SYNC_PRIORITY, intervals, now)
