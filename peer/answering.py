"""How a node answers a proposal, given what it holds and wants (point2point.md 3, 5, 6, 8, 10).

Pure: the same proposal and the same view give the same answer.
"""

from dataclasses import dataclass

from wire import (
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

from .errors import Violation
from .events import LogView


@dataclass(frozen=True, slots=True)
class Answer:
    """Either a confirmation or a cancel. `take_over`: we propose what we need ourselves."""

    confirm: Adjust | None = None
    cancel: Cancel | None = None
    take_over: bool = False


def link_target(proposal: Propose) -> int | None:
    """The seqnum whose hash is the expected starting hash, if there is one."""
    if proposal.offset is not None:
        return proposal.start
    if proposal.lower_info is not None and proposal.lower_info > 1:
        return lipmaa(proposal.lower_info)
    return None


def answer(
    proposal: Propose, view: LogView, *, wanted: bool, serve: bool, bounded: bool = False
) -> Answer:
    """Decide on a proposal of the other side.

    `view` must hold the hash and, as `entry`, the encoding of `link_target`. `bounded`: an open
    range is confirmed only up to what is held now. Raises Violation if the proposal names an offset
    beyond the payload.
    """
    number, start = proposal.request, proposal.start
    obstacle = _obstacle(proposal, view)
    if obstacle is not None:
        return Answer(cancel=obstacle)
    if proposal.offset is not None or proposal.payloads_only:
        # The receiver of a payload has to hold the metadata, and that may be us.
        last = start if proposal.end is None or not proposal.payloads_only else proposal.end
        if view.height < last:
            return _refuse(number, CancelReason.NO_RESOURCES, take_over=wanted)
        _judge_offset(proposal, view)
    if proposal.sparse and proposal.end is None:
        if view.height < start or not (wanted or serve):
            reason = CancelReason.NO_RESOURCES if wanted else CancelReason.NOT_WANTED
            return _refuse(number, reason)
        end = view.height
        return Answer(
            confirm=Adjust(
                number, eagerness=Eagerness.NOTIFY, allow_skip=True, end=end, upper_info=end
            )
        )
    if view.height + 1 < start:
        return _refuse(number, CancelReason.NOT_WANTED, take_over=wanted)
    if not wanted and (not serve or view.height < start):
        return _refuse(number, CancelReason.NOT_WANTED)
    if bounded and view.height < start:
        return _refuse(number, CancelReason.NOT_WANTED)
    return Answer(confirm=_confirmation(proposal, view, wanted=wanted, bounded=bounded))


def _refuse(number: int, reason: CancelReason, *, take_over: bool = False) -> Answer:
    return Answer(cancel=Cancel(number, reason), take_over=take_over)


def _obstacle(proposal: Propose, view: LogView) -> Cancel | None:
    """A fork, an end or another history before the range: cancels 135, 134, 133."""
    number, start = proposal.request, proposal.start
    if view.fork is not None and view.fork <= start and view.fork_proof is not None:
        return Cancel(number, CancelReason.FORKED, entries=view.fork_proof)
    if view.end is not None and view.end < start:
        return Cancel(number, CancelReason.LOG_ENDED, seq=view.end)
    target = link_target(proposal)
    if target is not None and proposal.starting_hash is not None:
        held = view.hashes.get(target)
        if held is not None and held != proposal.starting_hash and view.entry is not None:
            return Cancel(number, CancelReason.HASH_MISMATCH, entries=(view.entry.encoded,))
    return None


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


def _confirmation(proposal: Propose, view: LogView, *, wanted: bool, bounded: bool) -> Adjust:
    held = proposal.end is not None and proposal.end <= view.height
    payloads_held = view.tail_partial_bytes is None
    wants_data = wanted and not (held and payloads_held)
    stops = [proposal.end, view.end, None if view.fork is None else view.fork - 1]
    if proposal.end is None and (bounded or proposal.payloads_only):
        stops.append(view.height)
    end = min((stop for stop in stops if stop is not None), default=None)
    upper = end
    if end is not None and end == proposal.end:
        end, upper = None, None if wants_data else _held_upper(proposal, view)
    if end is not None and proposal.sparse and proposal.end is not None:
        end = upper = _on_path(proposal, proposal.end, end)
    return Adjust(
        proposal.request,
        eagerness=Eagerness.ALL if wants_data else Eagerness.NOTIFY,
        allow_skip=True,
        end=end,
        upper_info=upper,
    )


def _held_upper(proposal: Propose, view: LogView) -> int | None:
    """A lower upper info if we do not hold all of the pool that is asked for; None if we do."""
    end, upper = proposal.end, proposal.upper_info
    if end is None or upper is None or upper <= view.height:
        return None
    return next(n for n in upper_pool(end) if n <= max(view.height, end))


def _on_path(proposal: Propose, end: int, stop: int) -> int:
    """The newest entry of a sparse path that is not above `stop`."""
    return next(n for n in shortest_path(end, proposal.start) if n <= stop)
