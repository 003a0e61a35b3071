"""How a node answers a proposal, given what it holds and wants (point2point.md 3, 5, 6, 8, 10).

Pure: the same proposal and the same view give the same answer. A node that holds parts of a log
serves each of them: a range is confirmed from its start as far as there is no gap. What it cannot
serve as it was asked for, it refuses, and offers what it holds of it.

In this order, whatever is wanted or held: a proof or another history, which has to be told before
any data flows (section 8); what is not to be given out; what nobody here could read (section 3).
Then the two kinds that there are: who asks for something is served from a run that is held, or
confirmed for what both are still to get; who brings something is confirmed for what is missing of
it here.

What a confirmation leaves out no adjust brings back (section 5): it is named in `unserved`, and
offered later. What could not be read if it came is refused at once. `take_over` says that a refusal
is how two sides agree on who proposes (section 10): the credit for it goes back at once.
"""

from msgspec import Struct
from msgspec.structs import replace

from peer.protocol.errors import Violation
from peer.protocol.events import LogView
from peer.protocol.request import OPEN_END
from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Propose,
    decode_entry,
    lipmaa,
    shortest_path,
    upper_pool,
)

from .asks import is_pool_of_later, last_possible
from .payloads import begun_payloads, wanted_payloads
from .ranges import Ranges, finite_end, meet, minus, range_with, union
from .wanting import NOTIFY_ONLY, Settings, Wants


class Answer(Struct, frozen=True):
    """Either a confirmation or a cancel. `take_over`: we propose what we need ourselves.

    `unserved`: what the other side asked for and cannot have in this request.
    """

    confirm: Adjust | None = None
    cancel: Cancel | None = None
    take_over: bool = False
    unserved: Ranges = ()


def link_target(proposal: Propose) -> int | None:
    """The seqnum whose hash is the expected starting hash, if there is one."""
    if proposal.offset is not None:
        return proposal.start
    if proposal.lower_info is not None and proposal.lower_info > 1:
        return lipmaa(proposal.lower_info)
    return None


def is_offer(proposal: Propose) -> bool:
    """Whether the other side only says what it holds."""
    finite = proposal.end is not None and not proposal.sparse
    return finite and proposal.eagerness is Eagerness.NOTIFY and not proposal.payloads_only


def is_probe(proposal: Propose) -> bool:
    """Whether the other side asks for the number of the newest entry alone."""
    open_path = proposal.sparse and proposal.end is None
    return open_path and proposal.eagerness is Eagerness.NOTIFY


def is_late_offer(proposal: Propose) -> bool:
    """Whether the other side has come to hold payloads that it did not have before (late.py)."""
    finite = proposal.end is not None and not proposal.sparse
    return finite and proposal.payloads_only and proposal.eagerness is Eagerness.NOTIFY


def asks_for_payloads(proposal: Propose) -> bool:
    """Whether the other side lacks payloads of entries that it holds, and tells of nothing else."""
    of_one = proposal.offset is not None and proposal.end == proposal.start
    return (proposal.payloads_only or of_one) and not is_late_offer(proposal)


def goes_on(proposal: Propose) -> bool:
    """Whether a proposal asks for all that follows what its side holds, without a gap."""
    is_open = proposal.end is None and not proposal.sparse and not proposal.payloads_only
    return is_open and proposal.lower_info in (None, proposal.start)


def answer(
    proposal: Propose,
    view: LogView,
    wants: Wants,
    *,
    serve: bool,
    newest: int = 0,
    coming: Ranges = (),
    bounded: bool = False,
) -> Answer:
    """Decide on a proposal of the other side.

    `view` must hold the hash of `link_target`, and as `entry` its encoding if that hash contradicts
    the proposal or the range begins inside a payload, and its runs begin at or before the start, as
    does what it names as missing in the latter case.
    `serve`: what is held is given out; where it is not, what brings something is confirmed all the
    same. `newest`: the newest entry that is known of. `coming`: what requests in force bring.
    `bounded`: an open range is confirmed only up to what is held now. Raises Violation if the
    proposal names an offset beyond the payload.
    """
    found = obstacle(proposal, view)
    if found is not None:
        return Answer(cancel=found)
    wanted = wants.is_wanted
    held = range_with(view.runs, proposal.start)
    if not serve and asks_for_held(proposal, held):
        return _keep(proposal, wanted=wanted)
    if held is None and (proposal.offset is not None or proposal.payloads_only):
        # The receiver of a payload has to hold the metadata, and that may be us.
        return _refuse(proposal, CancelReason.NO_RESOURCES, take_over=wanted)
    _judge_offset(proposal, view)
    if proposal.sparse:
        return _answer_path(proposal, view)
    if is_late_offer(proposal):
        return _take_payloads(proposal, view, wants, newest=max(newest, view.newest), coming=coming)
    offered = is_offer(proposal)
    newest = max(newest, view.newest, (proposal.end or 0) if offered else 0)
    if not offered:
        if held is not None:
            decision = _serve(proposal, view, wants, held[1], newest=newest, until=bounded)
        else:
            decision = _go_on_behind(proposal, view, wants, newest=newest, bounded=bounded)
        return _listen_to(decision, proposal, view, coming)
    return _take_offer(proposal, view, wants, held, newest=newest, coming=coming)


def _refuse(
    proposal: Propose,
    reason: CancelReason = CancelReason.NOT_WANTED,
    *,
    take_over: bool = False,
    unserved: Ranges = (),
) -> Answer:
    return Answer(cancel=Cancel(proposal.request, reason), take_over=take_over, unserved=unserved)


def asks_for_held(proposal: Propose, held: tuple[int, int] | None) -> bool:
    """Whether a proposal can only be for what is held here: `held` is the run with its start.

    Who lacks payloads, or asks for a path or a number, brings nothing.
    """
    if is_offer(proposal) or is_late_offer(proposal):
        return False
    brings_none = proposal.sparse or proposal.payloads_only or proposal.offset is not None
    return brings_none or held is not None


def _keep(proposal: Propose, *, wanted: bool) -> Answer:
    """Nothing is given out. What is asked for of a log that we ask for too counts as not served:

    it is told of once the other side may read the log.
    """
    asked = _asked(proposal) if wanted and not is_probe(proposal) else ()
    return _refuse(proposal, take_over=wanted, unserved=asked)


def _listen_to(decision: Answer, proposal: Propose, view: LogView, coming: Ranges) -> Answer:
    """Take nothing of a range that is held or comes in another request; be told of it.

    Nor of one that begins elsewhere inside a payload than where our own part of it ends.
    """
    confirm = decision.confirm
    if confirm is None or confirm.eagerness is Eagerness.NOTIFY:
        return decision
    end = proposal.end if confirm.end is None else confirm.end
    asked = ((proposal.start, OPEN_END if end is None else end),)
    lacked = None
    if proposal.start == view.height:
        lacked = view.tail_partial_bytes
    elif range_with(view.missing_payloads, proposal.start) is not None:
        lacked = dict(view.begun_payloads).get(proposal.start, 0)
    elsewhere = None not in (proposal.offset, lacked) and lacked != proposal.offset
    if not elsewhere and minus(asked, union(view.runs, coming)):
        return decision
    return replace(decision, confirm=only_told(confirm))


def only_told(confirm: Adjust) -> Adjust:
    """A confirmation that takes nothing of a range, and is told of it."""
    return confirm._replace(eagerness=Eagerness.NOTIFY, eager_bytes=None)


def obstacle(proposal: Propose, view: LogView) -> Cancel | None:
    """A fork, an end or another history before the range: cancels 135, 134, 133."""
    number, start = proposal.request, proposal.start
    if view.fork is not None and view.fork <= start and view.fork_proof is not None:
        return Cancel(number, CancelReason.FORKED, entries=view.fork_proof)
    if view.end is not None and view.end < start:
        return Cancel(number, CancelReason.LOG_ENDED, seq=view.end)
    if last_possible(view) < start:
        # A fork without its proof, or what the author has made invalid: there is nothing to show.
        return Cancel(number, CancelReason.NOT_WANTED)
    if contradicts(proposal, view) and view.entry is not None:
        return Cancel(number, CancelReason.HASH_MISMATCH, entries=(view.entry.encoded,))
    return None


def contradicts(proposal: Propose, view: LogView) -> bool:
    """Whether the expected starting hash is that of another history than the one held here."""
    if proposal.starting_hash is None or (target := link_target(proposal)) is None:
        return False
    return view.hashes.get(target, proposal.starting_hash) != proposal.starting_hash


def _judge_offset(proposal: Propose, view: LogView) -> None:
    if proposal.offset is None or view.entry is None:
        return
    payload_bytes = decode_entry(view.entry.encoded).payload_bytes
    if proposal.offset > 0 and proposal.offset >= payload_bytes:
        raise Violation(
            "point2point.md 3",
            f"offset {proposal.offset} in a payload of {payload_bytes} bytes",
            proposal.request,
        )


def _asked(proposal: Propose) -> Ranges:
    return ((proposal.start, OPEN_END if proposal.end is None else proposal.end),)


def _missing(proposal: Propose, view: LogView, wants: Wants, newest: int) -> Ranges:
    """What we want of the range and do not hold."""
    possible = meet(_asked(proposal), ((1, last_possible(view)),))
    return minus(meet(wants.ranges(newest), possible), view.runs)


def _confirm(
    proposal: Propose, view: LogView, end: int | None, settings: Settings = NOTIFY_ONLY
) -> Answer:
    """Confirm up to `end`, and of the upper pool of a closed range what is held."""
    unserved: Ranges = ()
    upper = end
    if end is not None and end == proposal.end:
        end, upper = None, _held_upper(proposal, view)
    elif end is not None:
        unserved = minus(_asked(proposal), ((proposal.start, end),))
    limited = settings.eagerness is Eagerness.LIMITED
    confirm = Adjust(
        proposal.request,
        eagerness=settings.eagerness,
        eager_bytes=settings.eager_bytes if limited else None,
        allow_skip=True,
        end=end,
        upper_info=upper,
        min_bytes=settings.min_bytes or None,
        max_bytes=settings.max_bytes if settings.max_bytes < U64_MAX else None,
    )
    return Answer(confirm=confirm, unserved=unserved)


def _held_upper(proposal: Propose, view: LogView) -> int | None:
    """A lower upper info if we do not hold all of the pool that is asked for; None if we do."""
    end, upper = proposal.end, proposal.upper_info
    if end is None or upper is None or upper == end:
        return None
    reached = end
    for n in reversed(upper_pool(end)):
        if end < n <= upper:
            if range_with(view.runs, n) is None:
                return reached
            reached = n
    return None


def _serve(
    proposal: Propose,
    view: LogView,
    wants: Wants,
    run_last: int,
    *,
    newest: int,
    until: bool,
) -> Answer:
    """The start is held, and everything up to `run_last`. `until`: there an open range ends."""
    last = OPEN_END if proposal.end is None else proposal.end
    more = any(first > run_last for first, _ in view.runs) or not view.runs_complete
    if proposal.end is None and more and is_pool_of_later(view, proposal.start, run_last):
        # It comes with what is offered.
        return _leave_to_us(proposal, wants)
    if last <= run_last or until or more or proposal.payloads_only:
        return _confirm(proposal, view, min(last, run_last))
    missing = _missing(proposal, view, wants, newest)
    return _confirm_tail(proposal, view, wants, run_last + 1, newest, missing)


def _confirm_tail(
    proposal: Propose, view: LogView, wants: Wants, first: int, newest: int, missing: Ranges
) -> Answer:
    """A range of which we hold nothing from `first` on, and nothing behind it.

    `missing`: what we want of it and do not hold.
    """
    if missing and missing[0][0] == first:
        end = finite_end(min(missing[0][1], wants.alike_up_to(first, newest)))
        return _confirm(proposal, view, end, wants.settings(first, newest))
    if proposal.end is not None:
        return _confirm(proposal, view, max(first - 1, proposal.start))
    return _confirm(proposal, view, finite_end(last_possible(view)))


def _go_on_behind(
    proposal: Propose, view: LogView, wants: Wants, *, newest: int, bounded: bool
) -> Answer:
    """The start is not held: it may still come from there, or to both sides."""
    start, target = proposal.start, link_target(proposal)
    # With something held behind the start our cursor would stand before a gap from the beginning:
    # refused, it is offered that. A sync moves the log by itself (`bounded`).
    more = any(first > start for first, _ in view.runs) or view.newest > start
    if more or bounded:
        return _leave_to_us(proposal, wants)
    # Who confirms a range has to hold the pool of its start, or ask for it (section 8).
    if target is not None and target not in view.hashes:
        return _leave_to_us(proposal, wants)
    # What is wanted before the start is asked for with the rest, from where we stand (section 10).
    if view.newest + 1 < start and meet(wants.ranges(newest), ((view.newest + 1, start - 1),)):
        return _leave_to_us(proposal, wants)
    missing = _missing(proposal, view, wants, newest)
    # Who listens too: where the other side has ended its request to ask itself, it may not repeat
    # that (section 6, 128), and would hear nothing more.
    watches = wants.follows and view.newest == start - 1 and not wants.followed(newest)
    if watches or (missing and missing[0][0] == start):
        return _confirm_tail(proposal, view, wants, start, newest, missing)
    return _leave_to_us(proposal, wants)


def _leave_to_us(proposal: Propose, wants: Wants) -> Answer:
    """Refused: we ask for what we want of it ourselves, and offer what is held of it."""
    return _refuse(proposal, take_over=wants.is_wanted, unserved=_asked(proposal))


def _take_offer(
    proposal: Propose,
    view: LogView,
    wants: Wants,
    held: tuple[int, int] | None,
    *,
    newest: int,
    coming: Ranges,
) -> Answer:
    """The other side holds a range: take what is wanted of it, if it is as we need it."""
    missing = minus(_missing(proposal, view, wants, newest), coming)
    target = link_target(proposal)
    if not missing:
        whole = held is not None and proposal.end is not None and held[1] >= proposal.end
        return _confirm(proposal, view, proposal.end) if whole else _refuse(proposal)
    # In its request we could take it only from the start, and much of that is held.
    first, last = missing[0]
    if first != proposal.start or (target is not None and target not in view.hashes):
        return _refuse(proposal, take_over=True)
    last = min(last, wants.alike_up_to(first, newest))
    return _confirm(proposal, view, last, wants.settings(first, newest))


def offered_payloads(
    proposal: Propose, view: LogView, wants: Wants, newest: int, coming: Ranges
) -> Ranges:
    """What is lacking here of the payloads that the other side has come to hold, as runs."""
    runs: Ranges = view.missing_payloads
    if view.tail_partial_bytes is not None and not view.tail_arriving:
        runs = union(runs, ((view.height, view.height),))
    wanted = meet(wanted_payloads(wants, view, newest), _asked(proposal))
    return minus(meet(runs, wanted), coming)


def _take_payloads(
    proposal: Propose, view: LogView, wants: Wants, *, newest: int, coming: Ranges
) -> Answer:
    """Payloads that came late: take them in this request if nothing of it would come twice.

    Else be told of them, and ask for what is lacking.
    """
    if not wants.is_wanted:
        return _refuse(proposal)
    lacking = offered_payloads(proposal, view, wants, newest, coming)
    # One that is held in part is asked for from there on: in this request it would come from byte
    # 0.
    begun = proposal.start in begun_payloads(view)
    if not lacking or lacking[0][0] != proposal.start or begun:
        return _confirm(proposal, view, proposal.end)
    settings = wants.settings(proposal.start, newest)
    smallest, largest = wants.payload_limits
    if range_with(wants.fetches, proposal.start) is None:
        settings = replace(settings, min_bytes=smallest, max_bytes=largest)
    confirmed = _confirm(proposal, view, lacking[0][1], settings)
    return replace(confirmed, unserved=())


def _answer_path(proposal: Propose, view: LogView) -> Answer:
    """A sparse range: up to the newest entry whose path to the start is held."""
    start = proposal.start
    if proposal.end is None:
        end = _newest_with_path(view, start)
    else:
        end = 0
        for n in reversed(shortest_path(proposal.end, start)):
            if range_with(view.runs, n) is None:
                break
            end = n
    if end < start:
        if proposal.end is None:
            return _refuse(proposal, CancelReason.NO_RESOURCES)
        return _refuse(proposal, unserved=((proposal.end, proposal.end),))
    return _confirm(proposal, view, end)


def _newest_with_path(view: LogView, start: int) -> int:
    """The newest entry from which there is a path to `start` of entries that are held; or 0."""
    ends = [view.newest] if start == 1 else [last for _, last in reversed(view.runs)]
    for end in ends:
        if end >= start and (
            start == 1
            or all(range_with(view.runs, n) is not None for n in shortest_path(end, start))
        ):
            return end
    return 0
