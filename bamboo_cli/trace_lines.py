"""Records of a trace as lines for people: aligned, with relative times, runs of packets gathered.

    0.412  #1 <  r0  metadata+payload 17..42 (26 entries, 6,656 bytes)

is 0.412 s after the trace began, on connection 1, received (`>`: sent), for request 0.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from peer import counted, seq_span
from wire import CancelReason

Record = Mapping[str, Any]

_WAYS: Final = {"sent": ">", "received": "<"}
_SHORT: Final = 8
"""Hex digits that are enough to tell hashes in one trace from each other."""
_UNLIMITED: Final = str(2**64 - 1)

_REASONS: Final = {
    CancelReason.NOT_WANTED: "not wanted",
    CancelReason.NO_RESOURCES: "no resources now",
    CancelReason.COMPLETE: "range complete",
    CancelReason.YOU_CANCELLED: "because you cancelled",
    CancelReason.PAYLOAD_MANDATORY: "payload is mandatory",
    CancelReason.HASH_MISMATCH: "starting hash differs",
    CancelReason.LOG_ENDED: "log ended before",
    CancelReason.FORKED: "log is forked",
}
_EAGERNESS: Final = {"notify": "notify only", "all": "send everything"}


class Line(NamedTuple):
    """A line to print."""

    text: str
    alert: bool
    """Whether something is wrong that the reader should not miss; it begins with two blanks."""


@dataclass(slots=True)
class _Run:
    """Neighbouring packets of one request that are gathered in a line."""

    connection: object
    way: object
    request: object
    time: float
    first: object
    last: object
    entries: int = 0
    packets: int = 0
    bytes: int = 0
    compressed: bool = False


@dataclass(slots=True)
class Narrator:
    """Takes records in the order of the file and tells them in lines."""

    _began: float | None = None
    _run: _Run | None = None
    _logs: dict[tuple[object, object], str] = field(default_factory=dict)

    def take(self, record: Record) -> Iterator[Line]:
        """The lines that are complete with this record."""
        if _is_bulk(record):
            yield from self._gather(record)
            return
        yield from self.rest()
        if record.get("bamboo_peer_trace") is not None:
            self._began, self._logs = _seconds(record), {}
            yield Line(f"trace begun {record.get('time', '?')}", alert=False)
        elif record.get("channel") == "connection":
            yield self._connection(record)
        elif record.get("channel") == "trace":
            dropped = counted(int(record.get("dropped_records", 0)), "record")
            yield Line(f"{self._when(_seconds(record))}  {dropped} dropped here", alert=True)
        else:
            yield from self._introduced(record)
            yield Line(self._message(record), alert=False)

    def rest(self) -> Iterator[Line]:
        """The line that waited for more of its kind."""
        run, self._run = self._run, None
        if run is not None:
            yield Line(self._told_run(run), alert=False)

    def _gather(self, record: Record) -> Iterator[Line]:
        key = (record.get("connection"), record.get("way"), record.get("request"))
        run = self._run
        if run is None or (run.connection, run.way, run.request) != key:
            yield from self.rest()
            yield from self._introduced(record)
            seq = record.get("seq")
            run = self._run = _Run(*key, _seconds(record), first=seq, last=seq)
        run.last = record.get("seq")
        if record["message"] == "metadata":
            run.entries += 1
        else:
            run.packets += 1
            run.bytes += int(record.get("bytes", 0))
            run.compressed = run.compressed or bool(record.get("compressed"))

    def _told_run(self, run: _Run) -> str:
        kinds = [*(["metadata"] if run.entries else []), *(["payload"] if run.packets else [])]
        entries = seq_span(run.first, run.last)
        counts = [counted(run.entries, "entry")] if run.entries else []
        if run.packets:
            if not run.entries:
                counts.append(counted(run.packets, "packet"))
            counts.append(f"{run.bytes:,} byte{'' if run.bytes == 1 else 's'}")
        if run.compressed:
            counts.append("compressed")
        where = "" if run.first is None else f" {entries}"
        start = self._start(run.time, run.connection, run.way, run.request)
        return f"{start}{'+'.join(kinds)}{where} ({', '.join(counts)})"

    def _when(self, seconds: float) -> str:
        if self._began is None:
            self._began = seconds
        return f"{seconds - self._began:10.3f}"

    def _start(self, time: float, connection: object, way: object, request: object) -> str:
        number = "" if request is None else f"r{request}"
        return f"{self._when(time)}  #{connection} {_WAYS.get(str(way), ' ')} {number:>4}  "

    def _connection(self, record: Record) -> Line:
        begins = record.get("message") == "begin"
        start = f"{self._when(_seconds(record))}  #{record.get('connection')}   "
        if begins:
            return Line(f"{start}{record.get('direction')} {record.get('peer')}", alert=False)
        text = f"{start}end of {record.get('peer')}: {record.get('kind')}"
        if record.get("reason") not in {None, record.get("kind")}:
            text += f": {record['reason']}"
        return Line(text, alert=record.get("kind") not in {"closed", "lost"})

    def _introduced(self, record: Record) -> Iterator[Line]:
        """Names the log of a request once; a proposal names its own."""
        request = record.get("request")
        key = (record.get("connection"), request)
        log = _log_of(record)
        if log is None:
            return
        known = self._logs.get(key)
        self._logs[key] = log
        if known != log and record.get("message") != "propose":
            start = self._start(_seconds(record), record.get("connection"), None, request)
            yield Line(f"{start}is about {log}", alert=False)

    def _message(self, record: Record) -> str:
        start = self._start(
            _seconds(record), record.get("connection"), record.get("way"), record.get("request")
        )
        tell = _TOLD.get(str(record.get("message")))
        told = str(record.get("message")) if tell is None else tell(record)
        return start + told


def _is_bulk(record: Record) -> bool:
    return record.get("channel") == "data" and record.get("message") in {
        "metadata",
        "payload bytes",
    }


def _seconds(record: Record) -> float:
    try:
        return datetime.fromisoformat(str(record.get("time"))).timestamp()
    except ValueError:
        return 0.0


def _log_of(record: Record) -> str | None:
    author, log_id = record.get("author"), record.get("log_id")
    return None if author is None else f"{author}/{log_id}"


def _setup(record: Record) -> str:
    wishes = {
        (True, True): "greedy both ways",
        (True, False): "wants to send greedily",
        (False, True): "accepts greedy data",
        (False, False): "nothing greedy",
    }
    wish = wishes[bool(record.get("send_greedily")), bool(record.get("accept_greedily"))]
    windows = f"windows {record.get('send_window')} out, {record.get('receive_window')} in"
    return f"setup: {wish}, {windows}"


def _propose(record: Record) -> str:
    parts = [f"propose {_log_of(record)} {_range_of(record)}", *_interest(record)]
    parts += [name for name in ("sparse", "mandatory") if record.get(name)]
    if record.get("payloads_only"):
        parts.append("payloads only")
    if record.get("starting_hash"):
        # The first two bytes are the same for all.
        parts.append(f"hash {str(record['starting_hash'])[4 : 4 + _SHORT]}...")
    return ", ".join(parts)


def _range_of(record: Record) -> str:
    start, end = record.get("start"), record.get("end")
    span = f"from {start} on" if end is None else f"{start}..{end}"
    lower, upper = record.get("lower_info"), record.get("upper_info")
    pools = f" with links {lower}" if lower not in {None, start} else ""
    pools += f" up to {upper}" if upper not in {None, end} else ""
    inside = f" at byte {record['offset']}" if record.get("offset") is not None else ""
    return span + pools + inside


def _interest(record: Record) -> Iterator[str]:
    eagerness = record.get("eagerness")
    if eagerness == "limited":
        yield f"send payloads up to {record.get('eager_bytes')}"
    elif eagerness is not None:
        yield _EAGERNESS.get(str(eagerness), str(eagerness))
    if record.get("min_bytes"):
        yield f"payloads from {record['min_bytes']} bytes"
    if str(record.get("max_bytes", _UNLIMITED)) != _UNLIMITED:
        yield f"payloads up to {record['max_bytes']} bytes"


def _adjust(record: Record) -> str:
    parts = list(_interest(record))
    if record.get("allow_skip"):
        parts.append("payloads may be skipped")
    if record.get("end") is not None:
        parts.append(f"end {record['end']}")
    if record.get("upper_info") is not None:
        parts.append(f"links up to {record['upper_info']}")
    return f"adjust: {', '.join(parts)}" if parts else "adjust"


def _cancel(record: Record) -> str:
    number = record.get("reason")
    words = _REASONS.get(number) if isinstance(number, int) else None  # type: ignore[call-overload]
    text = f"cancel {number}" + ("" if words is None else f" {words}")
    if record.get("seq") is not None:
        text += f" {record['seq']}"
    if record.get("entries"):
        text += f", with {counted(len(record['entries']), 'entry')}"
    return text


def _pieces(record: Record) -> str:
    """Which pieces a notify or a skip is about."""
    seq, last = record.get("seq"), record.get("last_seq")
    if seq is None:
        return ""
    return f" of {seq_span(seq, seq if last is None else last)}"


_TOLD: Final[Mapping[str, Callable[[Record], str]]] = {
    "setup": _setup,
    "grant": lambda record: f"grant {record.get('units')} request credit",
    "propose": _propose,
    "adjust": _adjust,
    "cancel": _cancel,
    "notify": lambda r: f"notify{_pieces(r)} ({counted(int(r.get('count', 1)), 'piece')})",
    "bytes skipped": lambda record: f"skip {record.get('count')} bytes{_pieces(record)}",
    "apology": lambda _: "apology: the last piece was wrong",
    "payload skipped: below minimum": lambda r: f"payload{_pieces(r)} skipped: below minimum",
    "payload skipped: above maximum": lambda r: f"payload{_pieces(r)} skipped: above maximum",
    "payload skipped: not held": lambda r: f"payload{_pieces(r)} skipped: not held",
}
