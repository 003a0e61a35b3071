"""From what a view says to updates of the chain: order, reorganisations, and where to go on.

The events of the side table are taken in their order. Blocks that are complete go to `Ordering`;
a Reorg sets its head; and as long as one has a channel, that log is taken alone (spec 3.5, 4.3),
up to its end, before anything else that has come.

Where a consumer is, is a number: that of the last event it has taken. It stays what it is for as
long as the store lives, also if the table is made anew, so that who goes on with it has lost
nothing and is told nothing twice. On another node the events have other numbers, and a *token* says
where to go on: the first entry of each log that holds anything that was not taken (3.6). What
Reorgs have taken back before, a token does not say: that follows from the events up to there.

Blocks.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gateways import applied_ingest, applied_row, pack_u64, unpack_u64
from gateways.cardinal.content import Content, NotWhole, content_of
from gateways.cardinal.headers import Head, Header, Outcome, TooDeep
from gateways.cardinal.ordering import Ordering
from gateways.cardinal.progress import (
    Mark,
    Progress,
    decode_state,
    decode_token,
    encode_state,
    encode_token,
)
from logstore import ExplainedError, LogState, Store
from wire import LogKey

from .side import (
    EVENTS_MAX,
    BadEvent,
    CompleteEvent,
    ConflictEvent,
    Event,
    ReorgDone,
    ReorgEvent,
    Side,
    View,
)
from .spilling import Spilling
from .taking import EVENT_MAX, PLACE_BITS

_WAY_BLOCKS: Final = 1_000
"""Of a way through the blocks that is read at once."""
_LOST: Final = "its payloads were deleted here"


class HistoryGone(ExplainedError):  # noqa: N818 - what it is
    """What is asked for was dropped here."""


class ProducersDisagree(ExplainedError):  # noqa: N818 - what they do
    """Declarations of streams that cannot be consumed together."""


class Updated(NamedTuple):
    """Undo `removed` from its end, then apply `added`: both are oldest first."""

    added: tuple[Header, ...]
    removed: tuple[tuple[int, bytes], ...]
    """Number and hash of each."""
    progress: Progress


class ReorgSaid(NamedTuple):
    """A producer has set the head back to a common ancestor."""

    number: int
    hash: bytes


class Found(NamedTuple):
    """A block is complete, whether or not it becomes part of the chain."""

    header: Header


Said = Updated | ReorgSaid | Found | TooDeep | ConflictEvent | BadEvent


def check_streams(view: View) -> None:
    """Raises ProducersDisagree."""
    first = view.streams[0]
    for other in view.streams[1:]:
        if not first.declared.fits(other.declared):
            raise ProducersDisagree(
                "streams that are declared with another chain, default topic or patterns",
                f"{first.key} and {other.key}",
                "consume each alone",
            )


def read_state(store: Store, data: bytes) -> tuple[Progress, str | None]:
    """What `Consuming.state` has kept: the progress, and a token where only its head counts.

    Raises StateError, StoreError.
    """
    kept = decode_state(data)
    mark = kept.mark
    seq = log_id = None
    if mark.log is not None:
        log_id, seq = pack_u64(mark.log.log_id), pack_u64(mark.seq)
    author = mark.log and mark.log.author
    row = (mark.store, _newest(kept.progress), author, log_id, seq, mark.hash)
    return kept.progress, None if applied_ingest(store, row) is not None else kept.token


def _newest(progress: Progress) -> int:
    """The number in the feed of the newest entry of which anything was taken."""
    return max(progress.at, *(at for _, at in progress.channels), 0) >> PLACE_BITS


def ordered(store: Store, side: Side, view: View) -> "Consuming":
    """A consumer that has taken everything there is.

    What was in order before is not ordered anew: that is kept in the side table, for as long as the
    view is. Raises ProducersDisagree, StoreError.
    """
    side.bring_on(view)
    kept = side.ordered(view)
    before = None if kept is None else decode_state(kept).progress
    try:
        consuming = Consuming(store, side, view, progress=before)
    except HistoryGone:
        # Up to there payloads were deleted since.
        consuming = Consuming(store, side, view)
    while consuming.take() is not None:
        consuming.bring_on()
    if (after := consuming.progress()) != before:
        side.keep_ordered(view, encode_state(after, "", Mark(store.author)))
    return consuming


class _Channel:
    """A channel that was entered, and how far it was taken."""

    def __init__(self, key: LogKey, view: View, entered_at: int, at: int = 0) -> None:
        self.key = key
        self.view = View(view.streams, view.tracking, key)
        self.at = at
        self._entered_at = entered_at

    def is_behind(self, at: int) -> bool:
        """Whether everything that was taken from it was taken with all others' by an event."""
        return max(self.at, self._entered_at) >> PLACE_BITS < at >> PLACE_BITS


class _First:
    """The first entry of a log that holds anything of what was not taken."""

    def __init__(self, side: Side, view: View, key: LogKey) -> None:
        self._side = side
        self._view = view
        self._key = key
        self.seq = 2
        self._page: deque[tuple[int, int | None]] = deque()
        """Entries from there on, and by which event what they hold was taken."""

    def read_again(self) -> None:
        """By which events may be known now of more than before."""
        self._page.clear()

    def move(self, at: int) -> None:
        """Everything up to an event was taken."""
        while True:
            while self._page:
                seq, by = self._page[0]
                self.seq = seq
                if by is None or by > at:
                    return
                self._page.popleft()
                self.seq = seq + 1
            self._page.extend(self._side.held_from(self._view, self._key, self.seq))
            if not self._page:
                return


class Consuming:
    """A consumer of one view.

    `start`: behind which block it begins, without one with the first there is. `progress`: where to
    go on instead; with a `token`, of another store, only its head counts. `threshold`: instead of
    the declared one. Raises HistoryGone, ProducersDisagree, StoreError.
    """

    def __init__(
        self,
        store: Store,
        side: Side,
        view: View,
        *,
        start: Head | None = None,
        token: str | None = None,
        progress: Progress | None = None,
        threshold: int | None = None,
    ) -> None:
        check_streams(view)
        self._store = store
        self._side = side
        self.view: Final = view
        side.bring_on(view)
        is_elsewhere = token is not None
        if progress is None or is_elsewhere or progress.at >> PLACE_BITS > store.position():
            head = start if progress is None else progress.head
            progress = Progress(head)
            if token:
                progress = self._replayed(self._until(decode_token(token)), head, threshold)
        self._at = progress.at
        self._channels = [_Channel(key, view, self._at, at) for key, at in progress.channels]
        for channel in self._channels:
            side.bring_on(channel.view)
        self._is_in_channel = progress.is_in_channel
        self._firsts: dict[LogKey, _First] = {}
        declared = view.streams[0].declared.threshold
        self._threshold = declared if threshold is None else threshold
        head = self._checked(progress.head)
        self._ordering = Ordering(head, threshold=self._threshold, index=self)
        self._recall(progress)

    def _checked(self, head: Head | None) -> Head | None:
        """Where to begin, if some of the chain was deleted here. Raises HistoryGone."""
        first = self._side.first_held(self.view)
        if first is None:
            return head
        before = Head(first.number - 1, first.parent, 0)
        if head is None:
            return before
        if head.number < before.number and head.hash != before.hash:
            raise HistoryGone(
                f"block {head.number} is before what is held",
                f"the first block held is {first.number} {first.hash.hex()}",
                f"begin with --from {before.number}/{before.hash.hex()}",
            )
        return head

    def _recall(self, progress: Progress) -> None:
        """What was complete by then."""
        if progress.head is not None and progress.at:
            lowest = max(0, progress.head.number - 2 * self._threshold)
            known: dict[bytes, Header] = {}
            for view, at in self._taken():
                for each in self._side.recent(view, lowest, at):
                    if each.hash not in known or each.at < known[each.hash].at:
                        known[each.hash] = each
            self._ordering.recall(sorted(known.values(), key=lambda each: each.at))
        for ancestor, root in progress.bars:
            self._ordering.bar(ancestor, root)

    def _replayed(self, at: int, head: Head | None, threshold: int | None) -> Progress:
        """Where to begin behind an event, for who has not seen what was before.

        What was barred then is known from the chain alone: so it is taken from its beginning. A
        token from within a channel names the Reorg that begins it, and its head was given out
        behind that: carried out again from there, it would take back something else. So it is gone
        on with until the head is that one.
        """
        plain = Progress(head, at)
        if self._side.last_reorg(self.view) is None:
            return plain
        before = Consuming(self._store, self._side, self.view, threshold=threshold)
        while before.take(at) is not None:
            pass
        plain = plain._replace(bars=before.progress().bars)
        if head is None or (before.head is not None and before.head.hash == head.hash):
            return plain
        was_in_channel = False
        while before.take(limit=1) is not None:
            if not before._is_in_channel:
                if was_in_channel:
                    break
                continue
            was_in_channel = True
            if before.head is not None and before.head.hash == head.hash:
                return before.progress()
        return plain

    def _until(self, token: Mapping[LogKey, int]) -> int:
        """The last event of which a token says that it was taken."""
        found = [self._side.until(self.view, key, token.get(key, 1)) for key, _ in self.view.logs()]
        events = [each for each in found if each is not None]
        return min(events) if events else self._side.newest(self.view)

    # What Ordering asks --------------------------------------------------------------------------

    def header(self, hash_: bytes) -> Header | None:
        """Of a block that was taken."""
        for view, at in self._taken():
            block = self._side.block(view, hash_)
            if block is not None and block.header is not None and 0 < block.header.at <= at:
                return block.header
        return None

    def children(self, hash_: bytes) -> Iterable[Header]:
        """Of the blocks with this parent that were taken."""
        found: dict[bytes, Header] = {}
        for view, at in self._taken():
            for each in self._side.children(view, hash_, at):
                found.setdefault(each.hash, each)
        return sorted(found.values(), key=lambda each: each.at)

    def below(self, hash_: bytes, limit: int) -> Iterable[Header]:
        """Of blocks that hang on this one and were taken, each behind what it hangs on."""
        found: dict[bytes, Header] = {}
        for view, at in self._taken():
            for each in self._side.below(view, hash_, at, limit):
                found.setdefault(each.hash, each)
        return sorted(found.values(), key=lambda each: each.number)[:limit]

    def _taken(self) -> Iterable[tuple[View, int]]:
        yield self.view, self._at
        for channel in self._channels:
            yield channel.view, channel.at

    # What happens --------------------------------------------------------------------------------

    @property
    def head(self) -> Head | None:
        """The newest block given out, or what it began behind."""
        return self._ordering.head

    @property
    def channel(self) -> LogKey | None:
        """The channel that is taken now, before anything else."""
        return self._channels[-1].key if self._is_in_channel else None

    def bring_on(self) -> None:
        """Has the side table take what is new."""
        before = self._side.newest(self.view)
        if not self._side.bring_on(self.view):
            self._firsts.clear()
        elif self._side.newest(self.view) != before:
            for first in self._firsts.values():
                first.read_again()
        if self._is_in_channel:
            self._side.bring_on(self._channels[-1].view)

    def take(self, until: int = EVENT_MAX, limit: int = EVENTS_MAX) -> list[Said] | None:
        """What is said by the next events, `limit` at most; None if there are none.

        `until`: up to this event; what is in a channel is taken with that which names it.
        """
        view, at = (
            (self._channels[-1].view, self._channels[-1].at)
            if self._is_in_channel
            else (self.view, self._at)
        )
        events = self._side.events(view, at, limit)
        if not self._is_in_channel:
            events = [each for each in events if each.at <= until]
        if not events:
            if self._is_in_channel and self._is_at_end():
                self._leave()
                return []
            return None
        found: list[Said] = []
        for event in events:
            was_in_channel = self._is_in_channel
            found += self._take(event)
            if self._is_in_channel != was_in_channel:
                # What comes next comes from another log.
                break
        return found

    def _is_at_end(self) -> bool:
        """Whether a channel has ended, and nobody has said that it has; or it is none."""
        key = self._channels[-1].key
        if self._side.is_no_channel(self.view, key):
            return True
        # One that is forked or invalid never says more: its author keeps nobody from the others.
        info = self._store.log(key)
        is_over = info is not None and info.state is not LogState.LIVE
        return is_over and info is not None and info.height == info.newest

    def _leave(self) -> None:
        """What else came is taken again."""
        self._is_in_channel = False
        self._side.leave(self._channels[-1].view)

    def _take(self, event: Event) -> list[Said]:
        if self._is_in_channel:
            self._channels[-1].at = event.at
        else:
            self._at = event.at
            self._forget_channels()
        match event:
            case CompleteEvent(_, header):
                found: list[Said] = [] if self._is_in_channel else [Found(header)]
                outcomes = self._ordering.complete(header)
                # Only behind the last of them all of it was taken.
                left = [*range(len(outcomes) - 1, -1, -1)]
                return found + [self._said(*each) for each in zip(outcomes, left, strict=True)]
            case ReorgEvent():
                return self._reorg(event) if event.is_news else []
            case ReorgDone():
                self._leave()
                return []
            case _:
                # In a channel it is said where the others' events are.
                return [] if self._is_in_channel else [event]

    def _forget_channels(self) -> None:
        """What came in channels up to here was taken with everything else."""
        if self._channels:
            self._channels = [each for each in self._channels if not each.is_behind(self._at)]

    def _reorg(self, event: ReorgEvent) -> list[Said]:
        if event.channel is not None:
            channel = _Channel(event.channel, self.view, event.at)
            self._side.bring_on(channel.view)
            self._channels.append(channel)
            self._is_in_channel = True
        step = self._ordering.reorg(event.number, event.hash)
        said: list[Said] = [ReorgSaid(event.number, event.hash)]
        if step is None or not (step.added or step.removed):
            return said
        return [*said, self._said(step)]

    def _said(self, outcome: Outcome, left: int = 0) -> Said:
        if isinstance(outcome, TooDeep):
            return outcome
        added = [self._known(each) for each in outcome.added]
        removed = [(self._known(each).number, each) for each in outcome.removed]
        progress = self.progress(outcome.head)
        if left and self._is_in_channel:
            key, at = progress.channels[-1]
            progress = progress._replace(channels=(*progress.channels[:-1], (key, at - 1)))
        elif left:
            progress = progress._replace(at=progress.at - 1)
        return Updated(tuple(added), tuple(removed), progress)

    def _known(self, hash_: bytes) -> Header:
        found = self._ordering.header(hash_) or self.header(hash_)
        if found is None:
            # A start that nothing is known of but what was given.
            raise KeyError(hash_.hex())
        return found

    def chain(self) -> Iterable[Header]:
        """The blocks of the chain, the newest first, as far as they were taken."""
        head = self._ordering.head
        hash_ = None if head is None else head.hash
        number: int | None = None
        while hash_ is not None:
            ways = (self._side.way(view, hash_, at, _WAY_BLOCKS) for view, at in self._taken())
            way = next((each for each in ways if each), [])
            hash_ = None
            for block in way:
                if number is not None and block.number >= number:
                    return
                yield block
                number, hash_ = block.number, block.parent

    def hole_below(self, hash_: bytes) -> tuple[int, bytes] | None:
        """The lowest block below another one that was taken, and the hash that is missing there.

        None if there is a way down to the chain.
        """
        chain = {each.hash for each in self.chain()}
        block = self.header(hash_)
        while block is not None and block.hash not in chain:
            parent = self.header(block.parent)
            if parent is None or parent.number >= block.number:
                return block.number, block.parent
            block = parent
        return None

    # Where it is ---------------------------------------------------------------------------------

    def progress(self, head: Head | None = None) -> Progress:
        """Where to go on."""
        return Progress(
            self._ordering.head if head is None else head,
            self._at,
            tuple((each.key, each.at) for each in self._channels),
            self._is_in_channel,
            tuple(self._ordering.bars()),
        )

    def state(self, progress: Progress) -> bytes:
        """What `read_state` reads. The progress of each update in its turn."""
        _, _, author, log_id, seq, hash_ = applied_row(self._store, _newest(progress))
        mark = Mark(self._store.author)
        if author is not None and log_id is not None and seq is not None and hash_ is not None:
            log = LogKey(author, unpack_u64(log_id))
            mark = Mark(self._store.author, log, unpack_u64(seq), hash_)
        return encode_state(progress, self.token(progress), mark)

    def token(self, progress: Progress) -> str:
        """Where to go on on any node. The progress of each update in its turn."""
        for key, _ in self.view.logs():
            first = self._firsts.get(key)
            if first is None:
                first = self._firsts[key] = _First(self._side, self.view, key)
            first.move(progress.at)
        places = {key: first.seq for key, first in self._firsts.items()}
        if progress.is_in_channel:
            # Elsewhere nothing else says that it goes on: the channel is begun anew there.
            author = progress.channels[-1][0].author
            for stream in self.view.streams:
                if stream.key.author == author and stream.key in places:
                    said = self._side.reorg_seq(self.view, stream.key, progress.at)
                    places[stream.key] = min(places[stream.key], said)
        return encode_token(places)

    # What is in blocks ---------------------------------------------------------------------------

    def content(self, hash_: bytes) -> Content:
        """What a block that was taken changes. Raises HistoryGone where it was dropped here."""
        for view, _ in self._taken():
            block = self._side.block(view, hash_)
            if block is None or block.header is None or not block.header.at:
                continue
            places = [
                each
                for each in self._side.places(block)
                if block.producer is None or each.producer == block.producer
            ]
            try:
                return content_of(self._side.messages(places, hash_), view.tracking, Spilling)
            except NotWhole:
                continue
        raise HistoryGone(f"block {hash_.hex()} cannot be read", _LOST, "begin behind it")
