"""Random histories of Cardinal streams for upstream and for us, and what we make of them.

Lines are those of the program in `cardinal/`: blocks with all their sub-batches, messages, updates.
"""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gateways.cardinal import codec
from gateways.cardinal.assembly import Assembly, Changed, Come, Complete, Happened, Opened
from gateways.cardinal.codec import Batch, Message, Part, Reorg
from gateways.cardinal.content import content_of
from gateways.cardinal.counted import State
from gateways.cardinal.declared import Router
from gateways.cardinal.headers import Head, Step
from gateways.cardinal.ordering import Ordering
from gateways.cardinal.producing import Block, messages_of, sub_batch

from .cardinal_go import Line

DEFAULT = "main"
THRESHOLD = 128
PATTERNS: tuple[tuple[tuple[str, str], ...], ...] = (
    (),
    (("a/", "accounts"),),
    (("a/", "a"), ("bar/[^/]+/baz/", "b"), ("s/", "s")),
    # A key as a whole, two ways to one topic, and prefixes of which one begins with another.
    (("whole$", "w"), ("c/(x|y)/", "c"), ("n/([a-z]/)?", "c"), ("(?:é|ß)[0-9]/", "letters")),
)
KEYS = ("a/{0}", "a/x/{0}", "bar/{1}/baz/{0}", "s/{0}", "c/x/{0}", "c/y/{0}", "n/{0}", "n/q/{0}")
ODD_KEYS = ("whole", "n/q", "é7/{0}", "ß1/{0}", "loose/{0}", "{0}", "a", "<&>/{0}", "bar/baz/{0}")


@dataclass(frozen=True, slots=True)
class History:
    """Blocks, where they begin, and which keys are whose."""

    patterns: tuple[tuple[str, str], ...]
    start: Line
    """It is said to be known, and is sent all the same: upstream needs it."""
    blocks: list[Line]

    @property
    def router(self) -> Router:
        """Of its patterns."""
        return Router(self.patterns, DEFAULT)

    @property
    def head(self) -> Head:
        """Behind which it begins."""
        return Head(self.start["number"], bytes.fromhex(self.start["hash"]), self.start["weight"])


# --- random ones --------------------------------------------------------------------------------


def history(rng: random.Random, *, blocks: int = 18, forks: bool = True) -> History:
    """Numbers follow each other, and no block is lighter than its parent.

    Without forks each is heavier.
    """
    patterns = rng.choice(PATTERNS)
    number = rng.choice([0, 1 << 40, (1 << 63) - 1 - 2 * blocks])
    start = _block(rng, number, rng.randbytes(32).hex(), rng.choice([0, 1 << 53, 1 << 255]))
    found = [start]
    for _ in range(blocks):
        parent = rng.choice(found[-4:]) if forks else found[-1]
        weight = parent["weight"] + (rng.randrange(4) if forks else 1)
        found.append(_block(rng, parent["number"] + 1, parent["hash"], weight))
    return History(patterns, start, found)


def _block(rng: random.Random, number: int, parent: str, weight: int) -> Line:
    count = rng.choice([0, 1, 5, 20, 20, 250])
    keys = _keys(rng, count)
    # Which keys a pattern matches, and so may be empty or deleted as well, differs by history.
    values = {key: rng.randbytes(rng.randrange(1, 20)).hex() for key in keys if rng.random() < 0.8}
    batches = {}
    for index in range(rng.choice([0, 0, 1, 3])):
        name = rng.choice(["s/#{}", "a/#{}", "sub {}"]).format(index)
        own = [f"{name}/{key}" for key in _keys(rng, rng.randrange(5))]
        batches[name] = {
            "id": rng.randbytes(32).hex(),
            "values": {key: rng.randbytes(rng.randrange(6)).hex() for key in own},
            "deletes": [key for key in own if rng.random() < 0.3],
        }
    return {
        "number": number,
        "hash": rng.randbytes(32).hex(),
        "parent": parent,
        "weight": weight,
        "values": values,
        "deletes": [key for key in keys if key not in values],
        "batches": batches,
    }


def _keys(rng: random.Random, count: int) -> list[str]:
    found = (
        rng.choice(KEYS + ODD_KEYS if rng.random() < 0.5 else KEYS).format(index, rng.randrange(3))
        for index in range(count)
    )
    return [*dict.fromkeys(found)]


def with_what_patterns_allow(rng: random.Random, found: History) -> History:
    """The same with empty values, and keys that are updated and deleted: under patterns alone."""
    blocks = []
    for block in found.blocks:
        matched = [key for key in block["values"] if found.router.route(key)]
        empty = {key: "" for key in matched if rng.random() < 0.2}
        both = [key for key in matched if rng.random() < 0.2]
        values, deletes = block["values"] | empty, sorted({*block["deletes"], *both})
        blocks.append(block | {"values": values, "deletes": deletes})
    return History(found.patterns, blocks[0], blocks)


def unlike(rng: random.Random, messages: Sequence[Line], hashes: Sequence[str]) -> list[Line]:
    """The messages in another order, some twice; the blocks become complete in that of `hashes`."""
    slots = {hash_: slot for slot, hash_ in enumerate(hashes)}
    by_key: dict[str, list[Line]] = {}
    for each in messages:
        by_key.setdefault(each["key"], []).append(each)
    keys = [*by_key]
    rng.shuffle(keys)
    last = {key[2:66]: key for key in keys}
    at: list[tuple[float, Line]] = []
    for key in keys:
        slot = slots[key[2:66]]
        first = slot - (0 if key == last[key[2:66]] else rng.expovariate(0.5))
        each, *again = rng.sample(by_key[key], len(by_key[key]))
        at.append((first, each))
        again += [each] if rng.random() < 0.3 else []
        at += ((first + rng.expovariate(0.5), repeat) for repeat in again)
    at.sort(key=lambda each: each[0])
    return [each for _, each in at]


# --- what we make of them -----------------------------------------------------------------------


def produced(found: History) -> list[Line]:
    """Our messages."""
    return [
        {"topic": topic, "key": key.hex(), "value": value.hex()}
        for block in found.blocks
        for topic, key, value in _messages_of(block, found.router)
    ]


def _messages_of(line: Line, router: Router) -> Iterator[tuple[str, bytes, bytes]]:
    block = Block(
        line["number"],
        bytes.fromhex(line["hash"]),
        bytes.fromhex(line["parent"]),
        line["weight"],
        _unhexed(line["values"]),
        line["deletes"],
        {name: bytes.fromhex(batch["id"]) for name, batch in line["batches"].items()},
    )
    for topic, messages in messages_of(block, router).items():
        yield from ((topic, *each) for each in messages)
    own = {key.encode() for key in (*line["values"], *line["deletes"])}
    for name, batch in line["batches"].items():
        parts = sub_batch(
            block.hash, block.batches[name], _unhexed(batch["values"]), batch["deletes"], own
        )
        yield from ((router.topic(name), *each) for each in parts)


def _unhexed(values: dict[str, str]) -> dict[str, bytes]:
    return {key: bytes.fromhex(value) for key, value in values.items()}


def facts(messages: Iterable[Line]) -> list[str]:
    """What messages say, in no order: equal facts may have other bytes."""
    return sorted(f"{each['topic']} {_fact(decoded(each))!r}" for each in messages)


def _fact(message: Message) -> Message:
    match message:
        case Batch():
            return message._replace(items=dict(sorted(message.items.items())))
        case Part(hash_, batch, index, deletes, updates):
            return Part(hash_, batch, index, sorted(deletes), dict(sorted(updates.items())))
        case _:
            return message


def decoded(line: Line) -> Message:
    """A message."""
    return codec.decode_message(bytes.fromhex(line["key"]), bytes.fromhex(line["value"]))


class Consumer:
    """Our assembly and ordering, and what a consumer reads of a block once it is given out.

    Messages are those of the producer that is beside them, or of one. Of a Reorg there is one.
    `tracked`: what has to be found in the keys that count.
    """

    def __init__(
        self, start: Head | None, tracked: Sequence[str] = (), threshold: int = THRESHOLD
    ) -> None:
        self._tracked = [re.compile(each) for each in tracked]
        self._come: dict[bytes, list[Come]] = {}
        self._assembly = Assembly(self, is_tracked=self._counts)
        self._ordering = Ordering(start, threshold=threshold)
        self._blocks: dict[bytes, Line] = {}
        self.told: list[str] = []
        """What else happened, by the names of their classes."""

    def state(self, hash_: bytes) -> int | None:
        """Nothing leaves memory here."""
        return State.MET if hash_ in self._come else None

    def messages(self, hash_: bytes) -> Iterable[Come]:
        """All of a block before the one that is taken now."""
        return [*self._come.get(hash_, ())]

    def _counts(self, key: bytes) -> bool:
        return not self._tracked or any(each.search(key.decode()) for each in self._tracked)

    def updates(self, messages: Iterable[Line]) -> list[Line]:
        """Those that messages make."""
        found = []
        for line in messages:
            key, value = bytes.fromhex(line["key"]), bytes.fromhex(line["value"])
            come = Come(line.get("producer", 0), key, value)
            if key[0] == codec.REORG:
                reorg = codec.decode_message(key, value)
                assert isinstance(reorg, Reorg)
                step = self._ordering.reorg(reorg.number, reorg.hash)
                assert step is not None
                found.append(self._update(step))
            happened = self._assembly.take(come)
            self._come.setdefault(key[1:33], []).append(come)
            for each in happened:
                found += self._take(each)
        return found

    def _take(self, happened: Happened) -> list[Line]:
        if isinstance(happened, Opened | Changed):
            return []
        if not isinstance(happened, Complete):
            self.told.append(type(happened).__name__)
            return []
        header = happened.header
        self._blocks[header.hash] = {
            "number": header.number,
            "hash": header.hash.hex(),
            "parent": header.parent.hex(),
            "weight": header.weight,
            **self._content(happened),
        }
        found = []
        for outcome in self._ordering.complete(header):
            if isinstance(outcome, Step):
                found.append(self._update(outcome))
            else:
                self.told.append(type(outcome).__name__)
        return found

    def _update(self, step: Step) -> Line:
        removed = [self._blocks[each] for each in step.removed]
        return {
            "added": [self._blocks[each] for each in step.added],
            "removed": [{name: each[name] for name in ("number", "hash")} for each in removed],
        }

    def _content(self, complete: Complete) -> Line:
        come = [
            each
            for each in self._come[complete.header.hash]
            if complete.producer in (None, each.producer)
        ]
        content = content_of(come, self._counts)
        values = {key.decode(): value.hex() for key, value in content.values.pairs()}
        return {
            "values": dict(sorted(values.items())),
            "deletes": sorted(key.decode() for key, _ in content.deletes.pairs()),
        }


def shown(updates: Iterable[Line]) -> list[Line]:
    """Updates that can be compared: large numbers are strings in JSON."""
    return [
        {
            "added": [
                each | {"number": int(each["number"]), "weight": int(each["weight"])}
                for each in update["added"]
            ],
            "removed": [each | {"number": int(each["number"])} for each in update["removed"]],
        }
        for update in updates
    ]
