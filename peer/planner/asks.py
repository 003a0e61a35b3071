"""Which ranges of a log to ask a peer for (point2point.md 8, 10). Pure.

Given what is wanted, what is held and what is known of the peer, `plan` names the requests to make:
what is missing between two runs of held entries as finite ranges, what is behind the newest one
as an open range. Nothing that is held, or that a request brings already, is asked for again, but
for the members of a pool that lie between those that are missing.

Whatever is held is held with its whole lower pool (bamboo.md, Verified). So the hash of one entry
answers for the pool below it, and a range that begins right behind a held entry needs no pool.
"""

from collections.abc import Container, Iterable, Mapping
from enum import Enum, auto
from itertools import dropwhile, takewhile

from msgspec import Struct
from msgspec.structs import replace

from logstore import PolicyKind, Subscription
from peer.protocol.commands import MISSING_NAMED, LookUp
from peer.protocol.events import LogView
from peer.protocol.request import OPEN_END
from wire import U64_MAX, Eagerness, LogKey, Propose, lipmaa, lower_pool, upper_pool

from .ranges import Ranges, finite_end, meet, minus, range_with, union
from .wanting import ALL_OF_IT, METADATA_ONLY, NOTIFY_ONLY, Settings, Wants, settings_of

ASKS_MAX = 8
"""Requests of one log that are made at a time; what is left is asked for when these are done. A log
in a thousand parts would else take all the credit that the others wait for."""


class TheirPart(Struct, frozen=True):
    """What a session knows of the other side's part of a log.

    `newest`: the newest entry that it told of, None if it was not asked. `holds`: the ranges that
    it offered. `refused`: what it does not want to be asked for again. `coming`: what requests in
    force bring, their pools included. `path_refused`: the newest entry whose path it refused.
    `offered`: what of `holds` it has said itself. `watched_from`: the last entry from which it was
    watched, and has ended that. `refused_before`: what it has refused, whether that rests still.
    """

    newest: int | None = None
    holds: Ranges = ()
    refused: Ranges = ()
    coming: Ranges = ()
    path_refused: int = 0
    offered: Ranges = ()
    watched_from: int = 0
    refused_before: Ranges = ()


class AskKind(Enum):
    RANGE = auto()
    """Consecutive entries."""
    COMPARISON = auto()
    """The same without their payloads, to compare them with ours, wanted or not."""
    PATH = auto()
    """The entries of a shortest path."""
    PROBE = auto()
    """What is your newest entry?"""
    WATCH = auto()
    """Tell me of what is new."""
    OFFER = auto()
    """I hold this."""
    PROOF = auto()
    """The log is forked here: made to be ended with the proof, and never planned (forking.py)."""
    PAYLOADS = auto()
    """Payloads of entries that are held here: of neighbours, or of one from an offset on. To notify
    only, they are offered (late.py)."""


class Ask(Struct, frozen=True):
    """A proposal to make; `end` None: open. Its lower info follows from what is held then."""

    kind: AskKind
    start: int
    end: int | None
    settings: Settings
    upper_info: int | None = None
    offset: int | None = None
    incomplete: bool = False
    """It is not answered yet, and was made while something was missing here that lies beside it."""

    @property
    def last(self) -> int:
        return OPEN_END if self.end is None else self.end

    @property
    def payloads(self) -> Ranges:
        """The entries that are held here and whose payloads are asked for."""
        if self.kind is AskKind.PAYLOADS:
            return ((self.start, self.last),)
        return () if self.offset is None else ((self.start, self.start),)


def look_up_for(
    wants: Wants,
    log: LogKey,
    named: tuple[int, ...],
    *,
    newest: int,
    runs_from: int,
    missing_above: int = 0,
    missing_max: int = MISSING_NAMED,
    leave_arriving: bool = False,
) -> LookUp:
    """What to look up before `plan`, so that what is not wanted does not hide what is missing.

    `named`: the entries whose hashes are needed. `newest`: the newest entry that is known of.
    `missing_above`, `missing_max`: of missing payloads only those behind an entry, and so many.
    """
    smallest, largest = wants.payload_limits
    above, of_newest = wants.missing_among(newest)
    return LookUp(
        0,
        log,
        named,
        missing_above=max(above, missing_above),
        missing_of_newest=of_newest,
        min_bytes=smallest,
        max_bytes=largest,
        any_size=meet(wants.fetches, ((missing_above + 1, U64_MAX),)),
        leave_arriving=leave_arriving,
        runs_from=runs_from,
        missing_max=missing_max,
    )


def plan(
    wants: Wants, view: LogView, peer: TheirPart, *, runs_from: int = 1, may_fetch: bool = True
) -> list[Ask]:
    """What to ask for now; empty if all that is wanted is held, refused or coming.

    `runs_from` is that of the view's look-up. Without `may_fetch` the peer is only to tell what is
    new.
    """
    stop = last_possible(view)
    subscription = wants.subscription
    if wants.listens or (subscription is not None and not may_fetch):
        return _listen(view, peer, stop)
    asks: list[Ask] = []
    newest = min(max(view.newest, peer.newest or 0), stop)
    if subscription is not None:
        # Which entries these are may follow from the newest one over there: that is asked first.
        if wants.is_relative and peer.newest is None:
            asks.append(PROBE)
        elif subscription.kind is PolicyKind.SPARSE:
            asks += _path(subscription, view, peer, newest, stop)
        else:
            asks += _missing(wants.followed(newest), wants, view, peer, newest, runs_from)
            if not asks and subscription.kind is PolicyKind.RANGE:
                asks += _rest_of_upper_pool(wants, view, peer, runs_from)
    if may_fetch:
        if wants.fetches:
            fetches = minus(wants.fetches, wants.followed(newest))
            asks += _missing(fetches, wants, view, peer, newest, runs_from)
        asks = asks or _tail(wants, view, peer, newest)
    return asks[:ASKS_MAX]


PROBE = Ask(AskKind.PROBE, 1, None, NOTIFY_ONLY)


def last_possible(view: LogView) -> int:
    """The last entry that the log may have as far as is known; OPEN_END if that is unknown."""
    if view.fork is None and view.invalid is None and view.end is None:
        return OPEN_END
    firsts = [first for first in (view.fork, view.invalid) if first is not None]
    ends = [first - 1 for first in firsts] + ([] if view.end is None else [view.end])
    return min(ends, default=OPEN_END)


def _missing(
    ranges: Ranges, wants: Wants, view: LogView, peer: TheirPart, newest: int, runs_from: int
) -> list[Ask]:
    stop = last_possible(view)
    missing = minus(meet(ranges, ((1, stop),)), union(_known_runs(view, runs_from), peer.coming))
    if not missing:
        return []
    # Whoever holds an entry holds its pool, which comes with it if it is wanted.
    unwanted = [first for first, _ in peer.offered if range_with(ranges, first) is None]
    holds = union(peer.holds, *map(_pool, unwanted))
    asks = []
    # Refused ones too, of what it has offered or will have: what was refused since counts there no
    # more (`PeerLog.refuse`).
    refused = peer.refused
    if meet(missing, peer.offered):
        # First what it has said that it holds. Asked for together with all the rest, from where we
        # end, it was refused, and would be again however often that is tried: who holds parts of a
        # log serves each of them, and no range that begins outside of them.
        refused = union(refused, peer.refused_before)
    for first, last in union(minus(missing, refused), meet(missing, holds)):
        begin = first
        # What ends with the last seqnum there can be comes to its end.
        while begin <= min(last, U64_MAX):
            settings, stop = wants.settings(begin, newest), wants.alike_up_to(begin, newest)
            end = finite_end(min(last, stop))
            upper_info = _upper_info(wants, view, peer, end)
            ask = Ask(AskKind.RANGE, begin, end, settings, upper_info)
            asks.append(_from_inside(ask, wants, view, peer, newest))
            begin = stop + 1
    return asks


def _tail(wants: Wants, view: LogView, peer: TheirPart, newest: int) -> list[Ask]:
    """The payload of the last entry that there can be: no range that follows begins with it."""
    stop = view.height
    if view.tail_partial_bytes is None or stop != last_possible(view):
        return []
    ask = Ask(AskKind.RANGE, stop + 1, stop, ALL_OF_IT, stop)
    inside = _from_inside(ask, wants, view, peer, newest)
    refused = range_with(peer.refused, stop) is not None
    return [] if inside.offset is None or refused else [inside]


def _known_runs(view: LogView, runs_from: int) -> Ranges:
    """What is held, and what the view does not tell about: that is not asked for."""
    unknown: list[tuple[int, int]] = []
    if runs_from > 1:
        unknown.append((1, runs_from - 1))
    if not view.runs_complete:
        listed = view.runs[-1][1] if view.runs else runs_from
        unknown.append((listed + 1, view.newest))
    return union(view.runs, unknown)


def _from_inside(ask: Ask, wants: Wants, view: LogView, peer: TheirPart, newest: int) -> Ask:
    """Begin with the payload before the first entry, if that is incomplete (section 10).

    Unless it is coming: its entry may have been stored while the payload is under way.
    """
    inside = view.tail_partial_bytes
    if inside is None or ask.start != view.height + 1:
        return ask
    if range_with(peer.coming, view.height) is not None:
        return ask
    fetched = range_with(wants.fetches, view.height) is not None
    if not wants.wants_payload_of(view.height, newest):
        return ask
    if view.height < wants.payloads_from(newest) and not fetched:
        return ask
    return replace(ask, start=view.height, offset=inside)


def _upper_info(wants: Wants, view: LogView, peer: TheirPart, end: int | None) -> int | None:
    """How far the upper pool of an end is wanted: as far as it may exist, for a closed range.

    But not what comes anyway: if it does not after all, the rest of the pool is asked for later.
    """
    subscription = wants.subscription
    if end is None or subscription is None or end != subscription.last:
        return end
    # A pool is sent in order and cut only at its end: what is held in the middle would come again.
    held = union(view.runs, peer.coming)
    return max(_leading(_upper_pool(end, view), held), default=end)


def _leading(pool: list[int], held: Ranges) -> list[int]:
    """The members of an ascending pool before the first one that is held."""
    return list(takewhile(lambda n: range_with(held, n) is None, pool))


def _upper_pool(end: int, view: LogView) -> list[int]:
    """The members of the pool above `end` that the log may have, ascending."""
    stop = last_possible(view)
    return [n for n in reversed(upper_pool(end)) if end < n <= stop]


def _rest_of_upper_pool(wants: Wants, view: LogView, peer: TheirPart, runs_from: int) -> list[Ask]:
    """The closed range is held, and what is above it did not exist, or not there, at that time."""
    subscription = wants.subscription
    if subscription is None or subscription.last is None:
        return []
    known = union(_known_runs(view, runs_from), peer.coming)
    if minus(wants.followed(0), union(known, peer.refused)):
        return []
    pool = _upper_pool(subscription.last, view)
    pool = list(dropwhile(lambda n: range_with(known, n) is not None, pool))
    if not pool:
        return []
    if peer.newest is None:
        return [PROBE]
    newest = peer.newest
    end = max((n for n in _leading(pool, known) if n <= newest), default=0)
    if end <= peer.path_refused:
        return []
    return [Ask(AskKind.PATH, pool[0], end, METADATA_ONLY, end)]


def _path(
    subscription: Subscription, view: LogView, peer: TheirPart, newest: int, stop: int
) -> list[Ask]:
    """The path to the newest entry, from its first member that is not held; else news of more."""
    if newest > view.newest and newest > peer.path_refused:
        if range_with(peer.coming, newest) is not None:
            return []
        settings = settings_of(subscription)
        if subscription.kept is not None and subscription.kept.last is not None:
            settings = METADATA_ONLY  # the few payloads that are kept are asked for when it is here
        return [Ask(AskKind.PATH, newest, newest, settings, newest)]
    return _watch(view, peer, stop)


def _listen(view: LogView, peer: TheirPart, stop: int) -> list[Ask]:
    """News of the log, and of the payload of its newest entry if that is wanted and missing."""
    inside = view.tail_partial_bytes
    refused = range_with(peer.refused, view.height) is not None
    if inside is not None and view.height == view.newest and not refused:
        end = finite_end(stop)
        return [Ask(AskKind.WATCH, view.height, end, NOTIFY_ONLY, end, inside)]
    return _watch(view, peer, stop)


def _watch(view: LogView, peer: TheirPart, stop: int) -> list[Ask]:
    start = view.newest + 1
    refused = start <= peer.watched_from or range_with(peer.refused, start) is not None
    return (
        []
        if refused or start > min(stop, U64_MAX)
        else [Ask(AskKind.WATCH, start, None, NOTIFY_ONLY)]
    )


# From an ask to a proposal


def named_for(ask: Ask) -> tuple[int, ...]:
    """The entries whose hashes a proposal may need."""
    if ask.offset is not None:
        return (ask.start,)
    if ask.kind is AskKind.PAYLOADS:
        return (lipmaa(ask.start),) if ask.start > 1 else ()
    return tuple(lower_pool(ask.start)[1:])


def has_hashes(ask: Ask, hashes: Mapping[int, bytes]) -> bool:
    """Whether these hashes are enough to make the proposal, without asking for more of them."""
    if ask.offset is not None:
        return ask.start in hashes
    return ask.start == 1 or lipmaa(ask.start) in hashes


def lacking_hashes(
    asks: Iterable[Ask], hashes: Mapping[int, bytes], named: Container[int]
) -> tuple[int, ...]:
    """The hashes to look up before these asks can be made; `named`: those looked up already."""
    lacking = {
        n
        for ask in asks
        if not has_hashes(ask, hashes)
        for n in named_for(ask)
        if n not in named and n not in hashes
    }
    return tuple(sorted(lacking))


def lower_info_of(start: int, hashes: Mapping[int, bytes]) -> int:
    """The smallest member of the lower pool of `start` that is not held, or `start`.

    `hashes` are those of the members that are held.
    """
    lower_info = start
    while lower_info > 1 and lipmaa(lower_info) not in hashes:
        lower_info = lipmaa(lower_info)
    return lower_info


def pool_of(ask: Ask, hashes: Mapping[int, bytes]) -> Ranges:
    """The members of the lower pool that the proposal asks for."""
    if ask.offset is not None:
        return ()
    lower_info = lower_info_of(ask.start, hashes)
    if lower_info == ask.start:
        return ()
    return union((n, n) for n in lower_pool(ask.start) if lower_info <= n < ask.start)


def proposal_of(number: int, log: LogKey, ask: Ask, hashes: Mapping[int, bytes]) -> Propose:
    """The proposal, given the hashes of what is held of `named_for`."""
    settings, start = ask.settings, ask.start
    sparse = ask.kind in (AskKind.PATH, AskKind.PROBE)
    # Also of one payload: else it would be an offer of entries (`answer.is_offer`).
    tells = settings.eagerness is Eagerness.NOTIFY
    lower_info = None
    if ask.offset is not None:
        target = start
    else:
        lower_info = lower_info_of(start, hashes)
        if ask.kind is AskKind.PATH:
            # The path from the end to there is what lies above it in the pool.
            start = lower_info
        target = lipmaa(lower_info) if lower_info > 1 else 0
    return Propose(
        request=number,
        log=log,
        start=start,
        lower_info=lower_info,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        starting_hash=hashes[target] if target else None,
        eagerness=settings.eagerness,
        eager_bytes=settings.eager_bytes if settings.eagerness is Eagerness.LIMITED else None,
        end=ask.end,
        upper_info=ask.upper_info if ask.end is not None else None,
        offset=ask.offset,
        sparse=sparse,
        payloads_only=ask.kind is AskKind.PAYLOADS and (ask.offset is None or tells),
    )


def offers(view: LogView, asked: Ranges, told: Ranges) -> list[Ask]:
    """Parts of what is held that the other side asked for and could not be given as it asked.

    What lies in the lower pool of an offered entry comes with it, and is no offer of its own.
    `told`: what it knows of.
    """
    chosen: list[Ask] = []
    pools: Ranges = union(*(_pool(first) for first, _ in told))
    for first, last in reversed(minus(meet(view.runs, asked), told)):
        if minus(((first, last),), pools):
            chosen.append(offer_of(first, last))
            pools = union(pools, _pool(first))
    return chosen[:ASKS_MAX][::-1]


def _pool(seq: int) -> Ranges:
    return tuple((n, n) for n in lower_pool(seq))


def is_pool_of_later(view: LogView, first: int, last: int) -> bool:
    """Whether all of a run belongs to the lower pools of what is held behind it."""
    later = (_pool(begin) for begin, _ in view.runs if begin > last)
    return not minus(((first, last),), union(*later))


def offer_of(first: int, last: int) -> Ask:
    return Ask(AskKind.OFFER, first, last, NOTIFY_ONLY, last)


def untold(asks: Iterable[Ask], view: LogView, wants: Wants) -> list[Ask]:
    """The asks for what nobody notifies of: gaps, and what is wanted only once."""
    return [
        ask
        for ask in asks
        if ask.end is not None
        and (ask.end <= view.newest or range_with(wants.fetches, ask.start) is not None)
    ]


def comparison_of(entries: tuple[int, int]) -> Ask:
    """The entries that one range names, without their payloads."""
    return Ask(AskKind.COMPARISON, entries[0], entries[1], METADATA_ONLY, entries[1])


def is_whole(view: LogView) -> bool:
    """Whether no payload is missing of what is held."""
    named = view.tail_partial_bytes is not None or view.missing_payloads
    return not named and view.unnamed_above is None
