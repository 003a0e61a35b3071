"""What is asked for, against a model that looks at every single entry (point2point.md 8, 10)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import FULL, KeepRule, PolicyKind, Subscription
from peer.planner.asks import (
    PROBE,
    Ask,
    AskKind,
    TheirPart,
    last_possible,
    lower_info_of,
    named_for,
    offers,
    plan,
    pool_of,
    proposal_of,
)
from peer.planner.ranges import Ranges, meet, minus, range_with, union
from peer.planner.wanting import METADATA_ONLY, Wants, mended
from peer.protocol.events import LogView
from peer.protocol.request import OPEN_END
from tests.records import replace
from wire import U64_MAX, LogKey, lipmaa, lower_pool, shortest_path, upper_pool

from .partial import closed, wanted_of
from .test_partial import COUNT, RUNS, subscriptions

LOG = LogKey(b"p" * 32, 0)
TOP = COUNT + 20
"""The model looks at entries up to here."""

SETS = st.frozensets(st.integers(1, 30), max_size=12)


def ranges_of(seqs: set[int] | frozenset[int]) -> Ranges:
    return union((n, n) for n in seqs)


def seqs_of(ranges: Ranges, top: int = TOP) -> set[int]:
    return {n for first, last in ranges for n in range(first, min(last, top) + 1)}


def view_of(held: set[int], end: int | None = None) -> LogView:
    runs = ranges_of(held)
    height = runs[0][1] if runs else 0
    return LogView(LOG, height, max(held, default=0), end, runs=runs)


def entries_of(ask: Ask) -> set[int]:
    if ask.kind is AskKind.PATH:
        return set(shortest_path(ask.last, ask.start))
    return seqs_of(((ask.start, ask.last),))


@given(one=SETS, other=SETS)
def test_ranges_are_sets(one: frozenset[int], other: frozenset[int]) -> None:
    left, right = ranges_of(one), ranges_of(other)
    assert seqs_of(union(left, right)) == one | other
    assert seqs_of(minus(left, right)) == one - other
    assert seqs_of(meet(left, right)) == one & other
    for ranges in (left, union(left, right), minus(left, right)):
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))
    for n in range(1, 31):
        assert (range_with(left, n) is not None) == (n in one)


@given(
    held=RUNS.map(closed),
    wish=subscriptions(),
    newest=st.none() | st.integers(0, COUNT),
    refused=RUNS,
    coming=RUNS,
    offered=RUNS,
)
def test_what_is_wanted_and_missing_is_asked_for_once(
    held: set[int],
    wish: Subscription,
    newest: int | None,
    refused: set[int],
    coming: set[int],
    offered: set[int],
) -> None:
    """No more, unless it is refused and was not offered since, or coming."""
    view = view_of(held)
    peer = TheirPart(newest, ranges_of(offered), ranges_of(refused), ranges_of(coming))
    asks = plan(Wants(wish), view, peer)
    if wish.kind in (PolicyKind.SPARSE, PolicyKind.LATEST) and newest is None:
        assert asks == [PROBE]
        return
    known = max(view.newest, newest or 0)
    if wish.kind is PolicyKind.SPARSE:
        for ask in asks:
            assert ask.kind in (AskKind.PATH, AskKind.WATCH)
            if ask.kind is AskKind.PATH:
                assert ask.end == known > view.newest
        return
    first, last = wish.bounds(known)
    everything = set(range(first, (TOP if wish.last is None else last) + 1))
    if wish.last is not None:
        everything = set(range(wish.first, wish.last + 1))
    missing = everything - held - coming
    ranges = [ask for ask in asks if ask.kind is AskKind.RANGE]
    asked = [n for ask in ranges for n in entries_of(ask)]
    assert len(asked) == len(set(asked))
    allowed = {n for n in missing if n not in refused or n in offered}
    assert set(asked) <= allowed
    if len(asks) < 8:
        assert set(asked) == allowed
    for ask in asks:
        if ask.kind is AskKind.PATH:
            assert not missing - refused
            assert entries_of(ask) <= set(upper_pool(wish.last or 1)) - held - coming


@given(
    held=RUNS.map(closed),
    known=st.integers(1, COUNT),
    last=st.integers(1, COUNT),
    wish=subscriptions().filter(
        lambda wish: wish.kind not in (PolicyKind.SPARSE, PolicyKind.METADATA)
    ),
    fetched=SETS,
)
def test_what_a_rule_would_delete_at_once_is_asked_for_without_payloads(
    held: set[int], known: int, last: int, wish: Subscription, fetched: frozenset[int]
) -> None:
    """The same entries are asked for as without the rule."""
    view, peer, fetches = view_of(held), TheirPart(newest=known), ranges_of(fetched)
    ruled = Wants(replace(wish, kept=KeepRule(last=last)), fetches)
    asks, without = plan(ruled, view, peer), plan(Wants(wish, fetches), view, peer)
    if len(asks) < 8 > len(without):
        assert {n for ask in asks for n in entries_of(ask)} == {
            n for ask in without for n in entries_of(ask)
        }
    newest = max(known, view.newest)
    for ask in asks:
        if ask.kind is AskKind.RANGE and range_with(ruled.followed(newest), ask.start) is not None:
            goes = {n <= newest - last and n not in fetched for n in entries_of(ask)}
            assert len(goes) == 1
            if goes == {True}:
                assert ask.settings == METADATA_ONLY


@given(held=RUNS.map(closed), end=st.integers(1, COUNT), wish=subscriptions())
def test_nothing_behind_the_end_of_a_log_is_asked_for(
    held: set[int], end: int, wish: Subscription
) -> None:
    held = closed(n for n in held if n <= end)
    for ask in plan(Wants(wish), view_of(held, end), TheirPart(newest=end)):
        assert ask.kind is AskKind.PROBE or ask.last <= end or ask.kind is AskKind.WATCH
        assert ask.kind is not AskKind.WATCH or ask.start <= end


@given(held=RUNS.map(closed), start=st.integers(1, TOP))
def test_the_pool_that_is_asked_for_is_what_is_not_held(held: set[int], start: int) -> None:
    hashes = {n: bytes(66) for n in held if n in lower_pool(start)}
    lower_info = lower_info_of(start, hashes)
    lacking = [n for n in lower_pool(start) if n not in held and n < start]
    assert lower_info == min(lacking, default=start)
    ask = plan(Wants(Subscription(PolicyKind.RANGE, first=TOP)), view_of(set()), TheirPart())[0]
    ask = Ask(AskKind.RANGE, start, None, ask.settings)
    assert set(hashes) <= {*named_for(ask), start}
    assert seqs_of(pool_of(ask, hashes)) == {
        n for n in lower_pool(start) if lower_info <= n < start
    }
    proposal = proposal_of(0, LOG, ask, hashes)
    assert (proposal.start, proposal.lower_info) == (start, lower_info)
    assert (proposal.starting_hash is None) == (lower_info == 1)
    assert lower_info == 1 or lipmaa(lower_info) in held


@given(held=RUNS.map(closed), asked=RUNS, told=RUNS)
def test_what_is_offered_brings_all_that_was_asked_for(
    held: set[int], asked: set[int], told: set[int]
) -> None:
    """With the pools of what is offered, or was told before."""
    told &= held
    found = offers(view_of(held), ranges_of(asked), ranges_of(told))
    offered = {n for ask in found for n in entries_of(ask)}
    assert offered <= held & asked - told
    firsts = {ask.start for ask in found} | {first for first, _ in ranges_of(told)}
    if len(found) < 8:
        assert held & asked - told <= offered | closed(firsts)


@given(wish=subscriptions(), held=RUNS.map(closed))
def test_two_rounds_of_asks_end_with_what_is_wanted(wish: Subscription, held: set[int]) -> None:
    """Against a peer that has everything up to COUNT."""
    peer = TheirPart(newest=COUNT)
    for _ in range(COUNT):
        asks = [
            ask
            for ask in plan(Wants(wish), view_of(held), peer)
            if ask.kind in (AskKind.RANGE, AskKind.PATH) and ask.start <= COUNT
        ]
        if not asks:
            break
        brought = {n for ask in asks for n in entries_of(ask) if n <= COUNT}
        held = closed(held | brought)
    assert wanted_of(wish, COUNT) & set(range(1, COUNT + 1)) <= held


def test_nothing_from_an_invalid_entry_on_is_asked_for() -> None:
    """There is no message that says so (bamboo.md, Verified): who does not ask gets nothing."""
    view = LogView(LOG, 4, 4, invalid=5, runs=((1, 4),))
    assert last_possible(view) == 4
    assert plan(Wants(FULL), view, TheirPart(newest=9, holds=((1, OPEN_END),))) == []


def test_what_was_refused_with_all_the_rest_is_asked_for_as_it_was_offered() -> None:
    """Of a log that the other side holds parts of it has refused all from 1 on, and says which.

    Once that rests no more both were one range again, which it refused again, for ever.
    """
    parts = ((4, 4), (57, 60))
    peer = TheirPart(newest=60, holds=parts, offered=parts)
    [ask] = plan(Wants(FULL), view_of(set()), peer)
    assert (ask.start, ask.end) == (1, None)
    refused = replace(peer, refused_before=((1, OPEN_END),))
    asks = plan(Wants(FULL), view_of(set()), refused)
    assert [(ask.start, ask.end) for ask in asks] == [*parts]
    # Once all of that is here, it may have come to hold the rest.
    [ask] = plan(Wants(FULL), view_of({4, *range(57, 61)}), replace(refused, offered=()))[:1]
    assert (ask.start, ask.end) == (1, 3)


def test_an_open_range_has_no_end() -> None:
    [ask] = plan(Wants(Subscription()), view_of({1, 2, 3}), TheirPart())
    assert (ask.start, ask.end, ask.last) == (4, None, OPEN_END)


def test_nothing_is_asked_for_behind_the_last_seqnum_there_can_be() -> None:
    """What comes up to there leaves nothing of an open range."""
    view = view_of({1, 2, 3})
    assert plan(Wants(FULL), view, TheirPart(coming=((4, U64_MAX),))) == []
    [ask] = plan(Wants(FULL), view, TheirPart(coming=((4, U64_MAX - 1),)))
    assert (ask.start, ask.end) == (U64_MAX, None)


@given(st.integers(0, 40), st.integers(0, 40), SETS, SETS, SETS, st.booleans())
def test_of_a_log_held_whole_an_open_request_brings_all_there_is(
    newest: int,
    before: int,
    offered: frozenset[int],
    refused: frozenset[int],
    in_step: frozenset[int],
    has_ended: bool,
) -> None:
    """Whatever is known of the other side: no plan is made then (`Planner._brings_all`)."""
    start = min(before, newest) + 1
    view = view_of(set(range(1, newest + 1)), end=newest if has_ended and newest else None)
    # As a look-up for that proposal says it.
    view = replace(view, runs=view.runs if start <= newest else ())
    peer = TheirPart(
        newest=max(offered, default=None),
        holds=ranges_of(offered | in_step),
        refused=ranges_of(refused),
        coming=((start, OPEN_END),),
        offered=ranges_of(offered),
        refused_before=ranges_of(refused),
    )
    assert plan(Wants(FULL), view, peer, runs_from=start) == []


@pytest.mark.parametrize("fetches", [(), ((2, 3),)])
def test_the_payload_of_the_last_entry_is_asked_for_once(fetches: Ranges) -> None:
    """No range follows that could begin with it, whether it is followed or fetched or both."""
    view = LogView(LOG, 3, 3, end=3, runs=((1, 3),), tail_partial_bytes=0)
    [ask] = plan(Wants(FULL, fetches), view, TheirPart())
    assert (ask.start, ask.end, ask.offset) == (3, 3, 0)


@pytest.mark.parametrize(
    ("refused", "begins"),
    [((), [(1, 0)]), (((1, 1),), [(2, None)]), (((1, OPEN_END),), [])],
)
def test_who_only_listens_does_not_ask_again_what_was_refused(
    refused: Ranges, begins: list[tuple[int, int | None]]
) -> None:
    """Of the payload of the last entry nothing is held."""
    view = replace(view_of({1}), tail_partial_bytes=0)
    asks = plan(Wants(FULL, ()), view, TheirPart(refused=refused), may_fetch=False)
    assert [(ask.start, ask.offset) for ask in asks] == begins
    assert all(ask.kind is AskKind.WATCH for ask in asks)


def test_who_follows_the_path_alone_lacks_no_payloads_beside_it() -> None:
    """It may hold other entries from a time when it wanted all of their metadata."""
    sparse = Wants(Subscription(PolicyKind.SPARSE), fetches=((1, 1),))
    assert mended(sparse, 30) == minus(ranges_of(set(lower_pool(30))), ((1, 1),))
    assert mended(sparse, 0) == ()
    assert mended(Wants(FULL), 30) == ((1, OPEN_END),)
