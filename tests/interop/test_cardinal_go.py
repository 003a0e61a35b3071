"""Our Cardinal streams read by upstream's consumer, upstream's by ours, and where the two differ.

Upstream's program is built by `make interop`, where Go is at hand and a folder with upstream's
source is named; without it nothing here runs.
"""

import random
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from gateways.cardinal.codec import (
    Batch,
    Delete,
    Item,
    Message,
    Part,
    Reorg,
    ReorgComplete,
    SubBatchHeader,
    Update,
    encode_message,
)
from gateways.cardinal.declared import PatternError, Router
from gateways.cardinal.headers import Head
from tests.gateways.cardinal.vectors import VECTORS

from .cardinal_go import (
    PROGRAM,
    Line,
    UpstreamFailed,
    consume,
    produce,
    time_consuming,
    time_producing,
)
from .cardinal_histories import (
    DEFAULT,
    THRESHOLD,
    Consumer,
    History,
    decoded,
    facts,
    history,
    produced,
    shown,
    unlike,
    with_what_patterns_allow,
)

# All of them in one line.
if not PROGRAM.exists():
    pytest.skip("not built: `make interop`", allow_module_level=True)

START = Head(0, b"\1" * 32, 0)
ID = b"\2" * 32
SEEDS = range(12)


def theirs(
    messages: Sequence[Line],
    start: Head = START,
    tracked: Sequence[str] = (),
    threshold: int = THRESHOLD,
) -> list[Line]:
    """Updates of upstream's consumer."""
    return shown(consume(messages, start.number, start.hash, start.weight, threshold, tracked))


def both(
    found: History,
    messages: Sequence[Line],
    tracked: Sequence[str] = (),
    threshold: int = THRESHOLD,
) -> list[Line]:
    """The updates of both consumers, which are the same."""
    ours = Consumer(found.head, tracked, threshold)
    updates = ours.updates(messages)
    assert theirs(messages, found.head, tracked, threshold) == updates
    assert ours.told == []
    return updates


# --- the same -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", VECTORS["streams"])
def test_the_program_says_what_upstream_said_when_the_vectors_were_made(
    case: dict[str, Any],
) -> None:
    start = case["start"]
    found = theirs(
        case["messages"], Head(start["number"], bytes.fromhex(start["hash"]), start["weight"])
    )
    for side in ("added", "removed"):
        assert [[each["hash"] for each in update[side]] for update in found] == [
            update[f"{side}_hashes"] for update in case["updates_in_this_order"]
        ]
    made = produce(case["blocks"], case["default"], case["patterns"])
    assert facts(made) == facts(case["messages"])


@pytest.mark.parametrize("seed", SEEDS)
def test_both_producers_say_the_same_and_both_consumers_hear_it(seed: int) -> None:
    rng = random.Random(seed)
    found = with_what_patterns_allow(rng, history(rng))
    hashes = [each["hash"] for each in found.blocks]
    ours, upstream_s = produced(found), produce(found.blocks, DEFAULT, found.patterns)
    assert facts(ours) == facts(upstream_s)
    updates = both(found, unlike(rng, ours, hashes))
    assert both(found, unlike(rng, upstream_s, hashes)) == updates
    assert both(found, ours) == updates
    by_hash = {each["hash"]: each for each in found.blocks}
    for added in (each for update in updates for each in update["added"]):
        expected = by_hash[added["hash"]]
        values, deletes = dict(expected["values"]), {*expected["deletes"]}
        for batch in expected["batches"].values():
            values.update(batch["values"])
            deletes.update(batch["deletes"])
        assert (added["values"], added["deletes"]) == (values, sorted(deletes))


@pytest.mark.parametrize("seed", SEEDS)
def test_producers_of_both_kinds_are_consumed_together(seed: int) -> None:
    rng = random.Random(seed)
    found = with_what_patterns_allow(rng, history(rng))
    # Of equal facts the bytes differ, which is no disagreement.
    made = [
        *(each | {"producer": 0} for each in produced(found)),
        *(each | {"producer": 1} for each in produce(found.blocks, DEFAULT, found.patterns)),
    ]
    assert both(found, unlike(rng, made, [each["hash"] for each in found.blocks]))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_chain_without_forks_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    found = history(rng, forks=False)
    start, *hashes = [each["hash"] for each in found.blocks]
    rng.shuffle(hashes)
    made = produced(found) if seed % 2 else produce(found.blocks, DEFAULT, found.patterns)
    updates = both(found, unlike(rng, made, [start, *hashes]))
    assert sum(len(each["added"]) for each in updates) == len(hashes)


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_a_long_chain_of_which_upstream_forgets_all_but_the_newest(seed: int) -> None:
    rng = random.Random(seed)
    found = history(rng, blocks=150)
    messages = unlike(rng, produced(found), [each["hash"] for each in found.blocks])
    assert both(found, messages, threshold=32)


@pytest.mark.parametrize(
    "tracked", [["^a/"], ["^s/", "loose"], ["^bar/", "^sub 0"], ["#1"], ["nothing of it"]]
)
def test_what_is_tracked_is_the_same(tracked: list[str]) -> None:
    rng = random.Random(repr(tracked))
    patterns = (("a/", "a"), ("bar/[^/]+/baz/", "b"), ("s/", "s"))
    # In what order blocks become complete depends on what is tracked.
    some = history(rng, forks=False)
    found = with_what_patterns_allow(rng, History(patterns, some.start, some.blocks))
    messages = unlike(rng, produced(found), [each["hash"] for each in found.blocks])
    assert both(found, messages, tracked)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_forks_in_any_order_we_end_at_the_heaviest_and_upstream_nowhere_better(
    seed: int,
) -> None:
    rng = random.Random(seed)
    # Of equal weights upstream takes any.
    found = _heavier_each(history(rng))
    start, *hashes = [each["hash"] for each in found.blocks]
    rng.shuffle(hashes)
    messages = unlike(rng, produced(found), [start, *hashes])
    weights = [
        updates[-1]["added"][-1]["weight"]
        for updates in (Consumer(found.head).updates(messages), theirs(messages, found.head))
    ]
    assert weights[0] == max(each["weight"] for each in found.blocks)
    assert weights[0] >= weights[1]


def _heavier_each(found: History) -> History:
    """With weights that differ, each heavier than that of its parent."""
    weights: dict[str, int] = {}
    blocks = []
    for index, block in enumerate(found.blocks):
        weights[block["hash"]] = 1000 * (1 + weights.get(block["parent"], 0) // 1000) + index
        blocks.append(block | {"weight": weights[block["hash"]]})
    return History(found.patterns, blocks[0], blocks)


@pytest.mark.parametrize("case", VECTORS["ordering"])
def test_upstream_agrees_on_the_order_where_the_vectors_say_so(case: dict[str, Any]) -> None:
    blocks = {
        each["id"]: Batch(
            _hash(each["id"]), each["number"], each["weight"], _hash(each["parent"]), {}
        )
        for each in case["blocks"]
    }
    start = blocks[case["start"]]
    found = theirs(
        lines(*(blocks[each] for each in case["arrivals"])),
        Head(start.number, start.hash, start.weight),
    )
    updates = [
        [[int(block["hash"], 16) - 1 for block in update[side]] for side in ("added", "removed")]
        for update in found
    ]
    assert (updates == case["updates"]) is case["upstream_agrees"]


def _hash(number: int) -> bytes:
    # None is of zeros alone, by which upstream means that there is no start.
    return (number + 1).to_bytes(32)


# Of what patterns are made, and keys that some of it tells apart.
PIECES = [
    *("a", "b", "/", "é", "ß", ".", "^", "$", "|", "(", "(?:", "(?P<n>", ")", "*", "+", "?", "*?"),
    *("{2}", "{1,2}", "{,2}", "{2,}", "[", "[^", "]", "[a-c]", "[^/]+", "-", "&&", "[:alpha:]"),
    *(r"\d", r"\w", r"\W", r"\b", r"\B", r"\A", r"\n", r"\x61", r"\.", r"\]", "\n", "(?P<é>"),
]
SAMPLES = [
    *(
        "a",
        "ab/",
        "a/b",
        "aa/b",
        "b/a/",
        "a\n",
        "a\nb/",
        "\n",
        "a/b\n",
        "é/1",
        "éa/",
        "ß",
        "aß/",
        "-",
    ),
    *("12/", "a1_/", "]/", "a]", "a{,2}/", "&&/", ":a]", "[", "a\u00a0/", "\u0660/", "x61", "p"),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pattern_that_is_allowed_matches_the_same_in_both_languages(seed: int) -> None:
    rng = random.Random(seed)
    routers: list[Router] = []
    while len(routers) < 20:
        with suppress(PatternError):
            pattern = "".join(rng.choices(PIECES, k=rng.randrange(1, 7)))
            routers.append(Router([(pattern, "t")], DEFAULT))
    blocks = [
        {
            "number": number,
            "hash": _hash(number).hex(),
            "parent": _hash(number - 1).hex(),
            "weight": 1,
            "values": {key: "01"},
        }
        for number, key in enumerate(SAMPLES)
    ]
    for router in routers:
        [(pattern, topic)] = router.patterns
        # Upstream puts an anchor before the first way of it alone.
        made = map(decoded, produce(blocks, DEFAULT, [(f"(?:{pattern})", topic)]))
        found = {each.hash: each.items for each in made if isinstance(each, Batch)}
        for number, key in enumerate(SAMPLES):
            route = router.route(key)
            name, item = (route[0], Item(owed=1)) if route else (key, Item(b"\1"))
            assert found[_hash(number)] == {name.encode(): item}, (pattern, key)


def test_sub_batches_and_reorganisations_on_lines_of_their_own() -> None:
    hash_, parent = b"\3" * 32, START.hash
    made = produce(
        [
            {
                "number": 1,
                "hash": hash_.hex(),
                "parent": parent.hex(),
                "weight": 1,
                "batches": {"s/": {"id": ID.hex()}},
            },
            {"batch": {"hash": hash_.hex(), "id": ID.hex(), "values": {"k": "07"}}},
            {"reorg": {"number": 7, "hash": parent.hex()}},
            {"reorg_done": True},
        ],
        DEFAULT,
        [["s/", "storage"]],
    )
    assert [(each["topic"], decoded(each)) for each in made] == [
        ("main", Batch(hash_, 1, 1, parent, {b"s/": Item(batch=ID)})),
        ("storage", SubBatchHeader(hash_, ID, 1)),
        ("storage", Part(hash_, ID, 0, [], {b"k": b"\7"})),
        ("main", Reorg(parent, 7)),
        ("main", ReorgComplete(parent, 7)),
    ]


def test_what_the_program_says_of_its_time() -> None:
    found = history(random.Random(1), blocks=300, forks=False)
    messages = produced(found)
    start = found.head
    reports = [
        time_producing(found.blocks, DEFAULT, found.patterns),
        time_consuming(messages, start.number, start.hash, start.weight, THRESHOLD),
    ]
    assert [each["messages"] for each in reports] == [len(messages)] * 2
    assert [each["blocks"] for each in reports] == [301, 300]
    assert all(0 < each["seconds"] < 60 for each in reports)


# --- where upstream differs ---------------------------------------------------------------------


def lines(*messages: Message | tuple[bytes, bytes]) -> list[Line]:
    """Messages, or keys and values."""
    pairs: list[tuple[bytes, bytes]] = [
        each if type(each) is tuple else encode_message(each)  # type: ignore[arg-type, misc]
        for each in messages
    ]
    return [{"topic": DEFAULT, "key": key.hex(), "value": value.hex()} for key, value in pairs]


def block(
    name: str, number: int, parent: str = "", weight: int | None = None, **items: Item
) -> Batch:
    """A block by a letter; `_` in the names of items stands for a slash. Parent: the start."""
    found = {key.replace("_", "/").encode(): item for key, item in items.items()}
    above = hash_of(parent) if parent else START.hash
    return Batch(hash_of(name), number, number if weight is None else weight, above, found)


def hash_of(name: str) -> bytes:
    """Of a block by a letter."""
    return name.encode() * 32


def names(updates: Sequence[Line]) -> list[str]:
    """The blocks of each update, as `+bc -d`."""

    def side(sign: str, found: Sequence[Line]) -> str:
        return sign + "".join(chr(int(each["hash"][:2], 16)) for each in found) if found else ""

    both_sides = ((side("+", each["added"]), side("-", each["removed"])) for each in updates)
    return [" ".join(filter(None, each)) for each in both_sides]


OWES_ONE = block("b", 1, a_=Item(owed=1))
HASH = hash_of("b")
FIRST = Batch(START.hash, 0, 0, ID, {})
"""The block behind which it begins, if it is called so."""


@pytest.mark.parametrize(
    ("messages", "upstream_s", "ours", "told"),
    [
        pytest.param(
            [
                block("b", 1, a_=Item(owed=1), s=Item(batch=ID)),
                SubBatchHeader(HASH, ID, 1),
                Part(HASH, ID, 0, [], {b"a/1": b"x"}),
                Update(HASH, b"a/1", b"y"),
            ],
            [],
            ["+b"],
            [],
            id="a key that is counted and in a sub-batch blocks upstream",
        ),
        pytest.param(
            [Update(HASH, b"a/1", b""), Delete(HASH, b"a/2"), OWES_ONE],
            ["+b"],
            ["+b"],
            ["Conflict"],
            id="surplus passes silently",
        ),
        pytest.param(
            [block("b", 1, x=Item(owed=1)), Update(HASH, b"x", b"y"), Update(HASH, b"x", b"z")],
            ["+b"],
            ["+b"],
            ["Conflict"],
            id="so does another value",
        ),
        pytest.param(
            [block("b", 1, a__=Item(owed=1)), Update(HASH, b"a//1", b"")],
            [],
            ["+b"],
            [],
            id="paths are cleaned while counting",
        ),
        pytest.param(
            [block("b", 1), block("c", 1), block("d", 2, "c")],
            ["+b"],
            ["+b", "+cd -b"],
            [],
            id="the ancestor's block must be held",
        ),
        pytest.param(
            [block("b", 1), block("c", 1), block("d", 2, "c"), Batch(START.hash, 0, 0, ID, {})],
            ["+b"],
            ["+b", "+cd -b"],
            [],
            id="nor is a block of the head looked at that comes late",
        ),
        pytest.param(
            [
                FIRST,
                block("b", 1, weight=25),
                block("d", 2, "c", weight=28),
                block("e", 2, "c", weight=20),
                block("f", 3, "e", weight=33),
                block("c", 1, weight=12),
                block("g", 3, "d", weight=37),
            ],
            ["+b", "+cef -b"],
            ["+b", "+cef -b", "+dg -ef"],
            [],
            id="branches beside the middle of a reorganisation are forgotten",
        ),
        pytest.param(
            [
                *(FIRST, block("b", 1), block("c", 2, "b")),
                Reorg(START.hash, 0),
                block("d", 1),
                block("e", 3, "c"),
            ],
            ["+b", "+c", "+d", "+bce -d"],
            ["+b", "+c", "-bc", "+d"],
            [],
            id="a Reorg takes nothing back, and what it left may be chosen again",
        ),
    ],
)
def test_what_upstream_does_otherwise(
    messages: list[Message], upstream_s: list[str], ours: list[str], told: list[str]
) -> None:
    consumer = Consumer(START)
    assert names(consumer.updates(lines(*messages))) == ours
    assert consumer.told == told
    assert names(theirs(lines(*messages))) == upstream_s


@pytest.mark.parametrize(
    ("messages", "panic", "ours", "told"),
    [
        pytest.param(
            [block("c", 2, "b", 0), block("b", 1, weight=0)],
            "Could not find a pending batch",
            ["+bc"],
            [],
            id="weights of zero alone",
        ),
        pytest.param([(bytes(32), b"")], "out of range", [], ["Bad"], id="a short key"),
        pytest.param(
            [
                block("b", 1, s=Item(batch=ID)),
                SubBatchHeader(HASH, ID, 1),
                (b"\2" + HASH + ID + b"\1", bytes(2)),
            ],
            "out of range [-1]",
            [],
            ["Bad"],
            id="a negative index",
        ),
    ],
)
def test_what_ends_upstream(
    messages: list[Message | tuple[bytes, bytes]], panic: str, ours: list[str], told: list[str]
) -> None:
    consumer = Consumer(START)
    assert names(consumer.updates(lines(*messages))) == ours
    assert consumer.told == told
    with pytest.raises(UpstreamFailed, match=re.escape(panic)):
        theirs(lines(*messages))


def test_without_a_start_upstream_gives_out_what_comes_first_and_later_some_of_it_again() -> None:
    messages = lines(block("d", 5, "c"), block("b", 3, "a"), block("c", 4, "b"), block("e", 6, "d"))
    assert names(theirs(messages, Head(0, bytes(32), 0))) == ["+d", "+b", "+c", "+de"]
    assert names(Consumer(None).updates(messages)) == ["+d", "+e"]


def test_a_number_above_the_schema_s_is_negative_to_upstream() -> None:
    key, value = encode_message(block("b", 1))
    messages = lines((key, b"\1" + value[1:]))
    [found] = theirs(messages)
    assert [each["number"] for each in found["added"]] == [-1]
    consumer = Consumer(START)
    assert (consumer.updates(messages), consumer.told) == ([], ["Bad"])


def test_a_key_may_be_counted_under_itself_and_a_slash_by_upstream() -> None:
    opening = block("b", 1, n_=Item(owed=1), n_q_=Item(owed=1))
    messages = lines(opening, Update(HASH, b"n/q", b"x"))
    # It belongs to n/, and what n/q/ owes is still to come.
    assert names(theirs(messages, tracked=["^n/q/$"])) == ["+b"]
    assert Consumer(START, ["^n/q/$"]).updates(messages) == []


def test_only_the_first_way_of_a_pattern_begins_where_a_key_does_with_upstream() -> None:
    line = {
        "number": 1,
        "hash": HASH.hex(),
        "parent": START.hash.hex(),
        "weight": 1,
        "values": {"x/c/1": "07"},
        "deletes": [],
        "batches": {},
    }
    found = History((("b/|c/", "t"),), line, [line])
    made = produce([line], DEFAULT, found.patterns)
    assert {repr(decoded(each)) for each in made} == {
        repr(block("b", 1, c_=Item(owed=1))),
        repr(Update(HASH, b"x/c/1", b"\7")),
    }
    # Nothing that could be counted under c/ begins with x/: the block waits for ever.
    assert theirs(made) == Consumer(START).updates(made) == []
    ours = produced(found)
    assert [decoded(each) for each in ours] == [block("b", 1, x_c_1=Item(b"\7"))]
    assert names(theirs(ours)) == names(Consumer(START).updates(ours)) == ["+b"]
