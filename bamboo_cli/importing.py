"""`import`: verifies JSON lines of `dump` and stores what is good, whatever order they come in.

Lines are judged a few hundred at a time. An entry whose links lead to nothing that is held waits in
a spool until the input has ended; by then everything that it could lead to has been seen, and going
through the spool upward, log by log, settles each entry in one pass.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from logstore import BUNDLE_MAGIC, NewEntry, PayloadBusy, PayloadMismatch, PayloadState, Store
from peer import counted, json_number, log_fields
from wire import LogKey, lipmaa

from .errors import DONE, FAILED, Problem
from .import_lines import BadLine, Candidate, Line, parse_line, parse_long_line, read_lines
from .opening import opened_store
from .registry import Definition
from .settings import Parser
from .spool import Spool

if TYPE_CHECKING:
    from argparse import Namespace

    from logstore import PayloadFile, PayloadSink

    from .import_lines import LongLine
    from .lines import Readable
    from .terminal import Terminal

SOURCE = "import"
BATCH_LINES, BATCH_BYTES = 256, 4 << 20


def _import_arguments(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="default: stdin")


def _import(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args) as store, Spool() as spool:
        importer = _Importer(store, spool, terminal)
        if args.file == "-":
            importer.take_all(terminal.input, "standard input")
        else:
            with Path(args.file).open("rb") as file:
                importer.take_all(file, args.file)
    terminal.detail(
        f"{counted(importer.stored, 'entry')} stored, {importer.known} held already,"
        f" {counted(importer.bad, 'bad line')}"
    )
    return FAILED if importer.bad else DONE


class _Importer:
    """One import."""

    def __init__(self, store: Store, spool: Spool, terminal: "Terminal") -> None:
        self._store = store
        self._spool = spool
        self._terminal = terminal
        self._batch: list[Candidate] = []
        self._batch_bytes = 0
        self.stored = 0
        self.known = 0
        self.bad = 0

    def take_all(self, stream: "Readable", name: str) -> None:
        """Reads the input to its end, then the spool. Raises Problem for a bundle."""
        for line in read_lines(stream):
            if line.number == 1 and isinstance(line, Line) and line.data == BUNDLE_MAGIC.rstrip():
                raise Problem(f"{name}: this is a bundle: `bundle import` takes it")
            try:
                self._take(line)
            except BadLine as reason:
                self._report_line(line.number, str(reason))
        self._settle(may_wait=True)
        for candidate, parts in self._spool.ascending():
            if parts is None:
                self._add(candidate, may_wait=False)
                continue
            self._settle(may_wait=False)
            try:
                self._take_parts(candidate, parts, may_wait=False)
            except BadLine as reason:
                self._report_line(candidate.number, str(reason))
        self._settle(may_wait=False)

    def _take(self, line: "Line | LongLine") -> None:
        if not isinstance(line, Line):
            candidate, pieces = parse_long_line(line)
            self._settle(may_wait=True)
            self._take_parts(candidate, pieces, may_wait=True)
        elif (found := parse_line(line)) is not None:
            self._add(found, may_wait=True)

    def _add(self, candidate: Candidate, *, may_wait: bool) -> None:
        self._batch.append(candidate)
        self._batch_bytes += candidate.bytes_in_memory
        if len(self._batch) >= BATCH_LINES or self._batch_bytes >= BATCH_BYTES:
            self._settle(may_wait=may_wait)

    def _settle(self, *, may_wait: bool) -> None:
        """Stores, spools or refuses everything in the batch."""
        by_log: defaultdict[LogKey, list[Candidate]] = defaultdict(list)
        for candidate in self._batch:
            by_log[candidate.key].append(candidate)
        self._batch.clear()
        self._batch_bytes = 0
        for key, candidates in by_log.items():
            remaining = sorted(candidates, key=lambda each: (each.seq, each.number))
            waiting: list[Candidate] = []
            while remaining:
                ready, unconnected = self._connected(key, remaining)
                waiting += unconnected
                remaining = self._put(key, ready)
            self._set_aside(waiting, may_wait=may_wait)
        self._terminal.flush()

    def _set_aside(self, waiting: list[Candidate], *, may_wait: bool) -> None:
        if may_wait:
            self._spool.add(waiting)
            return
        for candidate in waiting:
            self._report_unconnected(candidate)

    def _connected(
        self, key: LogKey, candidates: list[Candidate]
    ) -> tuple[list[Candidate], list[Candidate]]:
        """Those with a path to entry 1 through what is held and each other, and the others."""
        wanted = {
            target
            for each in candidates
            for target in (each.seq, each.seq - 1, lipmaa(each.seq))
            if target > 0
        }
        reachable = set(self._store.hashes(key, sorted(wanted)))
        ready: list[Candidate] = []
        others: list[Candidate] = []
        for each in candidates:
            links = {each.seq - 1, lipmaa(each.seq)}
            if each.seq == 1 or each.seq in reachable or not reachable.isdisjoint(links):
                reachable.add(each.seq)
                ready.append(each)
            else:
                others.append(each)
        return ready, others

    def _put(self, key: LogKey, ready: list[Candidate]) -> list[Candidate]:
        """Stores up to the first entry that is refused; returns those after it."""
        if not ready:
            return []
        held = set(self._store.hashes(key, [each.seq for each in ready]))
        filled = {each.number for each in ready if each.seq in held and self._lacks(each)}
        news = [NewEntry(each.seq, each.encoded, each.hash, each.payload) for each in ready]
        (result,) = self._store.put_many([(key, news)], source=SOURCE)
        for index, each in enumerate(ready):
            if result.fork is not None and each.seq >= result.fork.seq:
                self._report(each, _fork_reason(each, result.fork.seq))
            elif result.rejected is not None and each.seq >= result.rejected.seq:
                self._report(each, result.rejected.reason)
                return ready[index + 1 :]
            elif each.seq in held and each.number not in filled:
                self.known += 1
            else:
                held.add(each.seq)
                self._print(each)
        return []

    def _lacks(self, candidate: Candidate) -> bool:
        """Whether a candidate brings the payload of an entry that is held without."""
        if candidate.payload is None:
            return False
        stored = self._store.entry(candidate.key, candidate.seq)
        return stored is not None and stored.payload_state is not PayloadState.PRESENT

    def _take_parts(self, candidate: Candidate, pieces: Iterator[bytes], *, may_wait: bool) -> None:
        """A candidate whose payload comes in pieces. Raises BadLine."""
        key, seq = candidate.key, candidate.seq
        ready, _ = self._connected(key, [candidate])
        if not ready and may_wait:
            self._spool.add_in_parts(candidate, pieces)
        elif not ready:
            self._report_unconnected(candidate)
        elif self._holds_payload(key, seq):
            self._put(key, ready)
        else:
            payload = self._receive(candidate, pieces)
            self._put(key, [replace(candidate, payload=payload)])
            if not isinstance(payload, bytes) and not self._holds_payload(key, seq):
                self._store.discard_payload(payload)

    def _holds_payload(self, key: LogKey, seq: int) -> bool:
        stored = self._store.entry(key, seq)
        return stored is not None and stored.payload_state is PayloadState.PRESENT

    def _sink(self, candidate: Candidate) -> "PayloadSink":
        entry = candidate.entry
        try:
            return self._store.payload_sink(
                entry.key, entry.seq, entry.payload_bytes, entry.payload_hash, source=SOURCE
            )
        except PayloadBusy as busy:
            raise BadLine(str(busy)) from None

    def _receive(self, candidate: Candidate, pieces: Iterable[bytes]) -> "bytes | PayloadFile":
        sink = self._sink(candidate)
        if sink.offset:
            # What a peer sent earlier may be wrong, and all of it comes again here.
            sink.discard()
            sink = self._sink(candidate)
        with sink:
            try:
                for piece in pieces:
                    sink.write(piece)
                return sink.finish()
            except PayloadMismatch:
                raise BadLine("the payload is not the one whose hash the entry has") from None
            except BadLine:
                sink.discard()
                raise

    def _print(self, candidate: Candidate) -> None:
        self.stored += 1
        key, seq = candidate.key, candidate.seq
        fields = log_fields(key) | {"seq": json_number(seq), "hash": candidate.hash.hex()}
        self._terminal.result(fields, f"{key}/{seq}")

    def _report_unconnected(self, candidate: Candidate) -> None:
        reason = "there is no path to entry 1, neither here nor in the input"
        info = self._store.log(candidate.key)
        if info is not None and info.fork_seq is not None and candidate.seq >= info.fork_seq:
            reason = _fork_reason(candidate, info.fork_seq)
        self._report(candidate, reason)

    def _report(self, candidate: Candidate, reason: str) -> None:
        self._report_line(candidate.number, f"{candidate.key}/{candidate.seq}: {reason}")

    def _report_line(self, number: int, reason: str) -> None:
        self.bad += 1
        self._terminal.note(f"line {number}: {reason}")


def _fork_reason(candidate: Candidate, fork: int) -> str:
    if candidate.seq == fork:
        return "two different entries have this number, the log is forked (see `forks`)"
    return f"the log is forked at entry {fork}, nothing after it is taken in"


COMMANDS = {"import": Definition(arguments=_import_arguments, run=_import)}
