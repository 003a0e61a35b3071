"""The client's side of all streams of one peer (spec section 3.2).

An offer is answered with what of it is wanted, which lets the next offer come; but that one is
answered only when all chunks of the first are on disk. So two batches are open at most, the disk
sets the pace, and what the next answer says about the first is true after a crash too. What is
wanted is decided when the answer goes out and not when the offer comes: in between much of it may
have come from elsewhere.

All that a client sends goes the same way, in the order in which it is made. An Unsubscribe that
overtook the last WantedHashes would have the server hear of a stream that it does not know, and
drop us.

The server's numbers are taken as they are, and for what was asked: a gap in them is covered, since
upstream's nodes leave items out. Where a peer that keeps to our rules owes more, an empty first
offer and proofs, is in `_take_offer`.
"""

from dataclasses import dataclass
from typing import Final

from gateways.swarm.bmt import is_valid, span_of
from gateways.swarm.book import Batch, Book
from gateways.swarm.codec import (
    OPEN_END,
    RETRIEVE_REQUEST,
    TOP,
    OfferedHashes,
    Quit,
    Range,
    RetrieveDelivery,
    RetrieveRequest,
    Stream,
    StreamDelivery,
    Subscribe,
    SubscribeError,
    Unsubscribe,
    WantedHashes,
    encode_bits,
)
from gateways.swarm.commands import ClientCommand, Ended, Found, Keep, Refused, Save, Send
from gateways.swarm.devp2p import breach
from gateways.swarm.ended import JustEnded
from gateways.swarm.files import Fit, fit_of
from gateways.swarm.intervals import Intervals
from gateways.swarm.sources import FailedError

CLIENTS_MAX: Final = 512
BATCH_S: Final = 30.0
"""A peer that owes something of a batch for so long is dropped."""

ClientMessage = OfferedHashes | StreamDelivery | RetrieveDelivery | SubscribeError | Quit


@dataclass(slots=True)
class _Subscription:
    """One stream, live or history."""

    stream: Stream
    intervals: Intervals
    bound: int
    """The end that every answer names: 0 of a live one."""
    quiet_since: float
    """When the last offer came; when it was subscribed, before the first."""
    asked: int | None = None
    """What the next offer is to begin with; None where only the server knows."""
    batch: Batch | None = None
    next_offer: OfferedHashes | None = None
    """The offer that waits until `batch` is on disk."""


class Client:
    """What is had from one peer. `book` is the one of the node, shared by all of its clients."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._subscriptions: dict[Stream, _Subscription] = {}
        # Each Subscribe that no offer has come of yet, with the streams it stands for.
        self._unanswered: dict[Stream, list[Stream]] = {}
        self._ended = JustEnded()
        self._commands: list[ClientCommand] = []
        self.received = 0
        """Chunks that were asked for and have come."""
        self.failure: FailedError | None = None
        """Why an offer could not be answered when its turn came: the connection is to end."""
        self.ignored = 0
        """Chunks that were not asked for, or came twice."""

    def commands(self) -> list[ClientCommand]:
        """What is to be done since the last call, in this order."""
        commands, self._commands = self._commands, []
        return commands

    @property
    def streams(self) -> list[Stream]:
        """Those that are subscribed."""
        return [*self._subscriptions]

    # What is wanted of the peer ------------------------------------------------------------------

    def free_at(self, stream: Stream) -> float | None:
        """When a stream that has ended may be subscribed again; None if it has not ended.

        Before, an offer of it might be one of the old, and its answer taken as one to the new.
        """
        return self._ended.until(stream)

    def subscribe(
        self, stream: Stream, range_: Range | None, priority: int, intervals: Intervals, now: float
    ) -> None:
        """Subscribes a stream, and beside a live one its history if there is a range.

        `priority`: 0 to 3. `intervals`: the record of both twins, which is added to; `Save` says
        so. Raises ValueError if one of them is subscribed, or not free yet, or there are 512.
        """
        streams = [stream]
        if stream.live and range_ is not None:
            streams.append(stream._replace(live=False))
        for each in streams:
            if each in self._subscriptions:
                raise ValueError(f"{each.described} is subscribed")
            if self._ended.has(each, now):
                raise ValueError(f"{each.described} has just ended")
        if len(self._subscriptions) + len(streams) > CLIENTS_MAX:
            raise ValueError(f"{CLIENTS_MAX} streams of a peer are the limit")
        for each in streams:
            subscription = _Subscription(each, intervals, 0, now)
            if not each.live:
                start, end = range_ or Range(0, 0)
                subscription.asked, subscription.bound = start, end or OPEN_END
            self._subscriptions[each] = subscription
        self._unanswered[stream] = streams
        self._commands.append(Send(TOP, Subscribe(stream, range_, priority)))

    def unsubscribe(self, stream: Stream, now: float) -> None:
        """Wants no more of a stream; its twin stays. One that is not subscribed changes nothing."""
        if self._end(stream, now):
            self._commands.append(Send(TOP, Unsubscribe(stream)))

    def _end(self, stream: Stream, now: float) -> bool:
        subscription = self._remove(stream)
        if subscription is not None:
            self._ended.note(stream, now)
        return subscription is not None

    def _remove(self, stream: Stream) -> _Subscription | None:
        subscription = self._subscriptions.pop(stream, None)
        if subscription is not None and subscription.batch is not None:
            self._book.forget(subscription.batch)
        self._answered(stream)
        return subscription

    def _answered(self, stream: Stream) -> None:
        for each, streams in [*self._unanswered.items()]:
            if stream in streams:
                del self._unanswered[each]

    def close(self, now: float) -> None:
        """The connection is over: others are asked for what this peer was to deliver."""
        self._subscriptions.clear()
        self._book.leave(self, now)

    def quiet_since(self, name: str) -> float | None:
        """Since when nothing was offered of the streams of a name; None: an offer is worked on."""
        found = [each for each in self._subscriptions.values() if each.stream.name == name]
        if any(each.batch is not None or each.next_offer is not None for each in found):
            return None
        return max((each.quiet_since for each in found), default=0.0)

    # Messages ------------------------------------------------------------------------------------

    def receive(self, message: ClientMessage, now: float) -> None:
        """Takes a message. Raises RefusedError, which ends the connection (spec section 7)."""
        match message:
            case OfferedHashes():
                self._take_offer(message, now)
            case StreamDelivery(address, chunk) | RetrieveDelivery(address, chunk):
                self._take_chunk(address, chunk)
            case SubscribeError(text):
                self._take_refusal(text)
            case Quit(stream):
                if self._end(stream, now):
                    self._commands.append(Ended(stream))

    def _take_offer(self, offer: OfferedHashes, now: float) -> None:
        stream = offer.stream
        subscription = self._subscriptions.get(stream)
        if subscription is None:
            if self._ended.has(stream, now):
                return
            raise breach(f"an offer of {stream.described}, which is not subscribed")
        if not offer.hashes:
            raise breach(f"an offer of {stream.described} without a hash")
        if subscription.next_offer is not None:
            raise breach(f"a second offer of {stream.described} before the first is answered")
        asked = offer.start if subscription.asked is None else subscription.asked
        # Behind the last number there is none to ask for, and no encoding of it.
        if not max(offer.start, asked) <= offer.end < OPEN_END:
            span = f"from {offer.start} to {offer.end}"
            raise breach(f"an offer of {stream.described}, {span}, where {asked} was asked for")
        self._answered(stream)
        subscription.next_offer, subscription.quiet_since = offer, now
        self._answer(subscription, now)

    def _answer(self, subscription: _Subscription, now: float) -> None:
        """Answers the offer that waits, once the batch before it is on disk."""
        offer = subscription.next_offer
        if offer is None or subscription.batch is not None:
            return
        stream = subscription.stream
        first = offer.start if subscription.asked is None else subscription.asked
        batch = Batch(self, stream, first, offer.end, now)
        if stream.name == RETRIEVE_REQUEST:
            # What we look for we ask to be sent without an offer: none of these were asked for.
            wanted = [False for _ in offer.addresses]
        else:
            wanted = self._book.want(batch, offer.addresses, now)
        bits = encode_bits(wanted)
        subscription.next_offer, subscription.asked = None, offer.end + 1
        answer = WantedHashes(stream, bits, offer.end + 1, subscription.bound)
        self._commands.append(Send(TOP, answer))
        if batch.missing:
            subscription.batch = batch
        else:
            self._cover(subscription, batch)

    def _cover(self, subscription: _Subscription, batch: Batch) -> None:
        name, key, _ = subscription.stream
        if name == RETRIEVE_REQUEST:
            # It begins anew with each connection, and nobody goes on with it.
            return
        subscription.intervals.add(batch.first, batch.last)
        self._commands.append(Save(name, key, subscription.intervals.encode()))

    def _take_chunk(self, address: bytes, chunk: bytes) -> None:
        if not is_valid(address, chunk):
            raise breach(f"a chunk that is not the one of its address {address.hex()}")
        is_kept = self._book.take(self, address)
        # One that can be part of no file, with zeros behind it or cut off, ends no search.
        is_sought = address in self._book.sought and is_of_use(chunk)
        if is_kept:
            self._commands.append(Keep(address, chunk))
        if is_sought:
            self._commands.append(Found(address, chunk))
        if is_kept or is_sought:
            self.received += 1
        else:
            self.ignored += 1

    def _take_refusal(self, text: str) -> None:
        """It names no subscription: the oldest without an offer that it fits is meant."""
        for stream, streams in self._unanswered.items():
            if _fits(text, stream):
                for each in streams:
                    self._remove(each)
                self._commands.append(Refused(stream, text))
                return

    # Events --------------------------------------------------------------------------------------

    def ask(self, address: bytes) -> None:
        """Asks for a chunk that it has offered: another owed it, or somebody waits for it."""
        self.seek(address, 0)

    def seek(self, address: bytes, hops: int) -> None:
        """Asks for a chunk that it may have, or find: it owes nothing."""
        self._commands.append(Send(TOP, RetrieveRequest(address, skip_check=True, hops=hops)))

    def settle(self, batch: Batch, now: float) -> None:
        """All chunks of a batch are on disk: it is covered, and the next offer answered."""
        subscription = self._subscriptions[batch.stream]
        subscription.batch = None
        self._cover(subscription, batch)
        try:
            self._answer(subscription, now)
        except FailedError as error:
            # Whoever else waits for what has come is not to miss it.
            self.failure = error

    @property
    def next_deadline(self) -> float | None:
        """When `advance` is to be called at the latest."""
        return min((each.since + BATCH_S for each in self._batches()), default=None)

    def advance(self, now: float) -> None:
        """Raises RefusedError if the peer owes something for too long."""
        for batch in self._batches():
            if now < batch.since + BATCH_S:
                continue
            self._book.look(batch, now)
            if self._book.is_owed(batch):
                span = f"{batch.first} to {batch.last}"
                raise breach(f"{batch.stream.described}: {span} did not come in {BATCH_S:.0f} s")
            batch.since = now

    def _batches(self) -> list[Batch]:
        found = (each.batch for each in self._subscriptions.values())
        return [each for each in found if each is not None]


def is_of_use(chunk: bytes) -> bool:
    """Whether a valid chunk can be part of a file, or is an update of a feed."""
    return not span_of(chunk) or fit_of(chunk) is not Fit.NONE


def _fits(text: str, stream: Stream) -> bool:
    """Whether a refusal may be about a subscription, by what it names, if anything."""
    kind, _, rest = text.partition(" ")
    named = {
        "stream": f"{stream.name} ",
        "server": f"{stream.name}|{stream.key}|",
        "document": f"{stream.key} ",
    }
    return rest.startswith(named.get(kind, ""))
