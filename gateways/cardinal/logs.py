"""Streams in a store: the logs of a producer's topics, found, made, written to and read (spec 4).

All of it blocks.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gateways import Sign, create_logs, free_runs, sound_entries, sound_entry
from gateways.cardinal.declared import (
    DEFAULT_TOPIC,
    TopicDeclared,
    check_topics,
    declare,
    read_declared,
)
from gateways.cardinal.frames import ENTRY_BYTES, PAYLOAD_BYTES_MAX, Frame, encode_frame, frames_of
from gateways.cardinal.headers import THRESHOLD
from gateways.declaration import DeclarationError
from gateways.reading import CodecError
from logstore import ExplainedError, PayloadState, Store, StoreDamaged, StoredEntry
from wire import U64_MAX, LogKey

FIRST_LOG: Final = 1
TOGETHER_ENTRIES_MAX: Final = 1_000
TOGETHER_BYTES_MAX: Final = 1 << 20
"""What waits together shares a transaction, up to so much."""
_CHANGES: Final = 10_000


class NotAStream(ExplainedError):  # noqa: N818 - what it is
    """The log is no stream of blocks, or not the one that was meant."""


class Stream(NamedTuple):
    """A producer's stream, by the log of its default topic."""

    key: LogKey
    declared: TopicDeclared

    def topics(self) -> dict[str, LogKey]:
        """The log of each topic, the default one last, others by their ids."""
        ids = sorted(
            self.declared.log_ids.items(),
            key=lambda each: (each[0] == self.declared.default, each[1]),
        )
        return {topic: LogKey(self.key.author, log_id) for topic, log_id in ids}


class Lying(NamedTuple):
    """A message where it lies."""

    log: LogKey
    seq: int
    topic: str
    key: bytes
    value: bytes


class Unread(NamedTuple):
    """The rest of a payload that is no frame."""

    log: LogKey
    seq: int
    reason: str


class Settings(NamedTuple):
    """What a stream is made with."""

    chain: str
    default: str = DEFAULT_TOPIC
    patterns: tuple[tuple[str, str], ...] = ()
    threshold: int = THRESHOLD

    def are_those_of(self, declared: TopicDeclared) -> bool:
        """Whether a stream was made with them."""
        return self == (declared.chain, declared.default, declared.patterns, declared.threshold)


def stream_of(store: Store, key: LogKey) -> Stream:
    """The stream that a log is the default topic of. Raises NotAStream, StoreError."""
    entry = store.entry(key, 1)
    if entry is None or entry.payload is None:
        why = "nothing is held of it" if entry is None else "the payload of its entry 1 is not held"
        raise NotAStream(f"no stream of blocks: {why}", str(key), "follow it, and its author")
    try:
        declared = read_declared(entry.payload)
    except DeclarationError as error:
        raise NotAStream(f"no stream of blocks: {error}", str(key), "name another log") from None
    if not isinstance(declared, TopicDeclared):
        raise NotAStream("a reorganisation's channel", str(key), "name the stream that it is of")
    if declared.topic != declared.default:
        default = LogKey(key.author, declared.log_ids[declared.default])
        raise NotAStream(f"the topic {declared.topic!r} of a stream", str(key), f"name {default}")
    if declared.log_ids[declared.default] != key.log_id:
        raise NotAStream("a stream that names another log as its own", str(key), "name another log")
    return Stream(key, declared)


def own_stream(store: Store, chain: str) -> Stream | None:
    """The stream of this node's own author, the first if there are several."""
    found = (each for each in _own_streams(store) if each.declared.chain == chain)
    return min(found, default=None)


def _own_streams(store: Store) -> Iterator[Stream]:
    for info in store.logs(author=store.author):
        try:
            yield stream_of(store, info.key)
        except (NotAStream, StoreDamaged):
            continue


def streams_of(store: Store, declared: TopicDeclared) -> Iterator[Stream]:
    """All streams of a chain that are held, of any author, that can be consumed together."""
    for info in store.logs():
        try:
            found = stream_of(store, info.key)
        except (NotAStream, StoreDamaged):
            continue
        if found.declared.fits(declared):
            yield found


def create_stream(
    store: Store, sign: Sign, settings: Settings, *, log_id: int | None = None
) -> Stream:
    """Makes the logs of a stream in one transaction, or finds those that there are.

    `log_id`: of the default topic; the others follow it. Raises NotAStream where the chain is there
    with other settings, DeclarationError and ValueError for what cannot be declared, LogMoved where
    a log with that id has entries, StoreError.
    """
    topics = [*dict.fromkeys((settings.default, *(topic for _, topic in settings.patterns)))]

    def declared_at(first: int) -> TopicDeclared:
        log_ids = {topic: first + place for place, topic in enumerate(topics)}
        default, patterns, threshold = settings.default, settings.patterns, settings.threshold
        return TopicDeclared(
            settings.chain, default, default, dict(sorted(log_ids.items())), patterns, threshold
        )

    # Ids grow no shorter on the way: what fits with the longest fits with all.
    first = declared_at(FIRST_LOG if log_id is None else log_id)
    if log_id is not None and log_id + len(topics) - 1 > U64_MAX:
        raise ValueError(f"log id {log_id}: there is no room for {len(topics)} logs from there on")
    check_topics(first)
    # What nobody could read would be signed all the same, each time anew.
    read_declared(declare(first))
    known = own_stream(store, settings.chain)
    if known is not None:
        if not settings.are_those_of(known.declared):
            raise NotAStream(
                f"the chain {settings.chain!r} is there with other settings",
                str(known.key),
                "name another chain, or give the settings that it has",
            )
        return known

    def declarations(first: int) -> list[bytes]:
        declared = declared_at(first)
        return [declare(declared._replace(topic=topic)) for topic in topics]

    begins: int | Iterable[int] = (
        free_runs(store, len(topics), FIRST_LOG) if log_id is None else log_id
    )
    made = create_logs(sign, declarations, begins)
    return Stream(made[0].key, declared_at(made[0].key.log_id))


def lock_name(stream: Stream) -> str:
    """The file that the one writer of a stream locks."""
    return f"cardinal-{stream.key.log_id}.lock"


class Gathering:
    """Messages on their way into entries: consecutive ones of one topic share one, up to 1 MiB."""

    def __init__(self, stream: Stream) -> None:
        self._topics = stream.topics()
        self._batches: list[tuple[int, list[bytes]]] = []
        self._topic = ""
        self._frames: list[bytes] = []
        self._frames_bytes = 0
        self._bytes = 0
        self._entries = 0

    def add(self, topic: str, key: bytes, value: bytes) -> None:
        """A message of a topic. Raises KeyError for one that the stream has not."""
        log = self._topics[topic]
        frame = encode_frame(key, value)
        if topic != self._topic or self._frames_bytes + len(frame) > ENTRY_BYTES:
            self._close()
            self._topic = topic
            self._batches.append((log.log_id, []))
        self._frames.append(frame)
        self._frames_bytes += len(frame)

    def _close(self) -> None:
        if self._frames:
            self._batches[-1][1].append(b"".join(self._frames))
            self._entries += 1
            self._bytes += self._frames_bytes
        self._frames, self._frames_bytes, self._topic = [], 0, ""

    @property
    def is_full(self) -> bool:
        """Whether it is time to write what there is."""
        size = self._bytes + self._frames_bytes
        return size >= TOGETHER_BYTES_MAX or self._entries >= TOGETHER_ENTRIES_MAX

    def take(self) -> list[tuple[int, list[bytes]]]:
        """What is to be appended, in its order, of one transaction."""
        self._close()
        batches, self._batches = self._batches, []
        self._bytes = self._entries = 0
        return batches


def held_entries(
    store: Store, logs: Mapping[str, LogKey], damaged: Callable[[StoreDamaged], object]
) -> Iterator[tuple[int, str, StoredEntry]]:
    """What is held of some topics, each log in its order, and the logs in that of arrival."""
    entries = [
        _with_topic(topic, sound_entries(store, key, 2, damaged)) for topic, key in logs.items()
    ]
    return heapq.merge(*entries, key=lambda each: each[0])


def _with_topic(
    topic: str, entries: Iterable[StoredEntry]
) -> Iterator[tuple[int, str, StoredEntry]]:
    for entry in entries:
        yield entry.ingest, topic, entry


def messages_of_entry(store: Store, topic: str, entry: StoredEntry) -> Iterator[Lying | Unread]:
    """The messages of an entry; none of entry 1, of an end, or of one without its payload."""
    try:
        for frame in frames_of_entry(store, entry):
            if frame.key:
                yield Lying(entry.key, entry.seq, topic, *frame)
    except CodecError as error:
        yield Unread(entry.key, entry.seq, str(error))


def frames_of_entry(store: Store, entry: StoredEntry) -> Iterator[Frame]:
    """The frames of an entry, as `messages_of_entry`, notes too.

    Raises CodecError where a payload is too large, or at the first byte that belongs to no frame.
    """
    yield from frames_of(payload_of(store, entry))


def payload_of(store: Store, entry: StoredEntry) -> bytes:
    """Where the frames of an entry are; nothing of entry 1, of an end, or where it is not held.

    Raises CodecError where it is too large.
    """
    if entry.seq == 1 or entry.payload_state is not PayloadState.PRESENT:
        return b""
    if entry.payload_bytes > PAYLOAD_BYTES_MAX:
        raise CodecError(
            f"a payload of {entry.payload_bytes} bytes: {PAYLOAD_BYTES_MAX} are the limit"
        )
    if entry.payload is not None:
        return entry.payload
    with store.open_payload(entry.key, entry.seq) as reader:
        return reader.read(0, entry.payload_bytes)


def chosen_topics(stream: Stream, wanted: Sequence[str]) -> dict[str, LogKey]:
    """The logs of some topics, all if none is named. Raises NotAStream for one that it has not."""
    topics = stream.topics()
    for each in wanted:
        if each not in topics:
            raise NotAStream(
                f"the stream has no topic {each!r}",
                str(stream.key),
                f"it has {', '.join(topics)}",
            )
    return {topic: key for topic, key in topics.items() if not wanted or topic in wanted}


def new_entries(
    store: Store,
    position: int,
    logs: Mapping[str, LogKey],
    damaged: Callable[[StoreDamaged], object],
) -> Iterator[tuple[int, str, StoredEntry]]:
    """What has come to some topics since a place of the change feed: each with its place and topic.

    An entry comes again once its payload is there.
    """
    topics = {key: topic for topic, key in logs.items()}
    while changes := store.changes(position, _CHANGES):
        position = changes[-1].ingest
        for change in changes:
            if change.key not in topics:
                continue
            entry = sound_entry(store, change.key, change.seq, damaged)
            if entry is not None and entry.ingest == change.ingest:
                yield change.ingest, topics[change.key], entry
