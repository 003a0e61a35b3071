"""What must hold of a session after every step, seen from one end or, where possible, from both."""

from peer.engine import Engine
from peer.protocol.request import Request

from .link import End, Link, SplitEnd
from .truth import Broken

WORK_BYTES = 70_000
"""One payload or run more than the credit may be in memory while it is judged."""


def check_end(end: End) -> None:
    """Raises Broken."""
    engine = end.engine
    if engine is None or end.ending is not None or end.lie is not None:
        return
    try:
        _check_state(engine)
        _check_credit(engine)
        _check_memory(engine)
        for request in engine._table.all():
            _check_cursors(request)
    except Broken as broken:
        raise Broken(f"{end}: {broken}") from None


def check_link(link: Link) -> None:
    """What both ends of a connection know has to fit, with what is under way. Raises Broken."""
    if not link.is_up or any(end.lie is not None for end in link.ends):
        return
    first, second = link.ends
    if isinstance(first, SplitEnd) and isinstance(second, SplitEnd):
        for here, there in ((first, second), (second, first)):
            _check_both(here, there)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


def _check_state(engine: Engine) -> None:
    """Nothing is remembered of a request that is released."""
    table, timers, prover = engine._table, engine._timers, engine._prover
    known = {request.ident for request in table.all()}
    _require(set(engine._by_ident) == known, "requests by ident are not those of the table")
    _require(set(timers._unanswered) <= known, "a timer of a request that is released")
    _require(set(timers._finite) <= known, "a timer of a request that is released")
    _require(engine._outbound._inside <= known, "a released request is inside a payload")
    logs = [request for requests in table._by_log.values() for request in requests]
    _require(len(logs) == len(table), "requests by log are not those of the table")
    _require(all(table._by_log.values()), "an empty list of requests of a log")
    _require(all(sent for _, sent in prover._sent.values()), "an empty list of sent entries")
    for request in table.all():
        sink = request.incoming.sink
        _require(sink is None or sink in prover._sinks, "a request with a sink that is gone")


def _check_credit(engine: Engine) -> None:
    """Each unit that was granted is at one place (point2point.md 2)."""
    table = engine._table
    requests = [*table.all(), *table._held.values()]
    used = sum(not request.ours and not request.credit_returned for request in requests)
    total = table.their_credit + table.credit_owed + used
    granted = table._earned.unanswered_max
    _require(total == granted, f"request credit: {total} units instead of {granted}")
    _require(table.credit >= 0, "negative request credit")
    active = [request for request in requests if not request.ours and request.confirmed]
    _require(table.their_active == len(active), "a wrong count of active requests")
    returned = sum(request.credit_returned for request in active)
    enough = min(len(active), engine._config.requests_max)
    _require(returned == enough, f"the credit of {returned} requests was given back, not {enough}")


def _check_memory(engine: Engine) -> None:
    prover, config = engine._prover, engine._config
    entries = sum(each.memory_bytes for _, sent in prover._sent.values() for each in sent)
    sinks = sum(sink.in_flight_bytes for sink in prover._sinks.values())
    _require(
        prover.in_flight_bytes == entries + sinks,
        f"{prover.in_flight_bytes} bytes are in flight, {entries} + {sinks} are known",
    )
    bound = 4 * config.data_credit_bytes + WORK_BYTES
    _require(prover.in_flight_bytes <= bound, f"{prover.in_flight_bytes} bytes in flight")
    buffered = engine._inbound.buffered
    _require(buffered <= config.data_credit_bytes, f"{buffered} bytes are buffered")
    out = len(engine._outbound._out)
    bound = config.write_ahead_bytes + config.quantum_bytes + WORK_BYTES
    _require(out <= bound, f"{out} bytes wait to be sent")
    _require(len(prover._sinks) <= config.sinks_max, "too many sinks")
    _require(len(engine._table._ignored) <= config.dropped_max, "too many ignored numbers")


def _check_cursors(request: Request) -> None:
    """Cursors are within the sequence, and what is verified is not ahead of them."""
    incoming, outgoing = request.incoming, request.outgoing
    where = f"request {request.number}"
    _require(incoming.verified <= incoming.position, f"{where}: verified ahead of the cursor")
    if request.base is None:
        _require(incoming.position == outgoing.position == 0, f"{where}: moved unconfirmed")
        return
    length = request.base.length
    if length is not None:
        _require(incoming.position <= length, f"{where}: their cursor is past the end")
        _require(outgoing.position <= length, f"{where}: our cursor is past the end")


def _check_both(here: SplitEnd, there: SplitEnd) -> None:
    ours, theirs = here._engine._table, there._engine._table
    # Proposals that were sent and not charged there: under way, or dropped there by section 7.
    known = {r.number for r in (*theirs.all(), *theirs._held.values()) if not r.ours}
    uncharged = sum(r.ours and not r.answered and r.number not in known for r in ours.all())
    seen = ours.credit + here.grants_in_flight() + uncharged
    if theirs.their_credit != seen:
        raise Broken(
            f"{here} may propose {theirs.their_credit} as {there} sees it, and {ours.credit}"
            f" + {here.grants_in_flight()} granted + {uncharged} sent as it sees it itself"
        )
    limit = there._engine._config.data_credit_bytes
    unread = there.received - there._engine._inbound._credit_released
    total = here.credit + here.credit_in_flight + there.data.in_flight + unread
    if total != limit:
        raise Broken(f"{here}: data credit is {total} in all instead of {limit}")
    _check_sent(here, there)


def _check_sent(here: SplitEnd, there: SplitEnd) -> None:
    """No cursor is ahead of what was sent; an apology that is under way takes one piece back."""
    by_number = {request.number: request for request in there._engine._table.all()}
    for request in here._engine._table.all():
        other = by_number.get(request.number)
        if other is None or other.ours is request.ours or other.incoming.adrift:
            continue
        if other.incoming.position > request.outgoing.position + 1:
            raise Broken(
                f"{there} is at {other.incoming.position} of request {request.number},"
                f" of which {here} has sent {request.outgoing.position}"
            )
