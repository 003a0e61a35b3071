"""What a relay does with what it is sent (3.3): nothing is appended that may still be rolled back.

Upstream may send, at the end of its history, one entry that is not committed yet, may send entries
twice at the change to live, and may say OK to a Start and then nothing. So what has come waits
until upstream's Header counts it, and what came before it was counted is asked for again.
"""

from collections.abc import Generator
from typing import Final, NamedTuple

from gateways.datastream.codec import HEAD_BYTES, Declaration, Entry, Header

WAITING_BYTES_MAX: Final = 1 << 20
CONFIRMED_AT_ONCE: Final = 256
LOOK_AGAIN_S: Final = 0.05
SILENT_S: Final = 2.0


class RelayEnds(Exception):  # noqa: N818 - what happened
    """Both connections are to end, and it begins anew; the text says why."""


class DeclaredOtherwise(Exception):  # noqa: N818 - what was found
    """Upstream's stream is not the one that the log declares; the text says what differs."""


class HistoriesDiffer(Exception):  # noqa: N818 - what was found
    """Upstream has another entry at `number`, the first that differs, and it is not followed."""

    def __init__(self, number: int) -> None:
        super().__init__(f"from entry {number} on")
        self.number = number


class AskHeader(NamedTuple):
    """Control Header. Answered with a Header."""


class AskEntries(NamedTuple):
    """Control Entry for each number, pipelined. Answered with a list of Entry or None."""

    numbers: list[int]


class OpenLog(NamedTuple):
    """Declare the log unless it is, and open it. Answered with an OpenedLog."""

    declaration: Declaration


class OpenedLog(NamedTuple):
    """What the log declares, and how many entries it holds."""

    declaration: Declaration
    total_entries: int


class ReadOwn(NamedTuple):
    """Read an entry of the log. Answered with an Entry, or None if it cannot be read."""

    number: int


class Truncate(NamedTuple):
    """Give up the log's entries from `number` on."""

    number: int


class StartData(NamedTuple):
    """Data Start; what comes is handed to `receive` from now on, unless `is_full`."""

    number: int


class Append(NamedTuple):
    """Append entries to the log; they are durable when it goes on."""

    entries: list[Entry]


class Wait(NamedTuple):
    """Wait until something was received, so many seconds at most."""

    seconds: float


Step = AskHeader | AskEntries | OpenLog | ReadOwn | Truncate | StartData | Append | Wait
Answer = Header | list[Entry | None] | OpenedLog | Entry | None


class RelaySession:
    """One pair of connections to an upstream server.

    The host carries out the steps of `run` one by one, each with its answer, and hands to `receive`
    whatever the data connection brings meanwhile. Neither knows of the other's progress.
    """

    def __init__(self, *, once: bool = False, follow_truncation: bool = False) -> None:
        self._once = once
        self._follow_truncation = follow_truncation
        self._next = 0
        """The number of the log's next entry."""
        self._waiting: list[tuple[Entry, bool]] = []
        """What is not appended, and whether it came before upstream counted it."""
        self._again: list[Entry] = []
        """What came and is in the log already, to be compared."""
        self._bytes = 0
        self._counted = 0
        """The TotalEntries that upstream said last."""
        self._has_come = False

    # What comes as Data

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be read."""
        return self._bytes >= WAITING_BYTES_MAX

    def receive(self, entry: Entry) -> None:
        """Takes an entry. Raises RelayEnds for a number that was skipped to."""
        self._has_come = True
        at = entry.number - self._next
        if at > len(self._waiting):
            due = self._next + len(self._waiting)
            raise RelayEnds(f"upstream skips: entry {entry.number} came, and {due} was due")
        self._bytes += _size(entry)
        if at < 0:
            self._again.append(entry)
            return
        self._bytes -= sum(_size(old) for old, _ in self._waiting[at:])
        del self._waiting[at:]
        self._waiting.append((entry, entry.number >= self._counted))

    # What is to be done

    def run(self) -> Generator[Step, Answer, None]:
        """The steps. Returns when `once` is content.

        Raises RelayEnds, DeclaredOtherwise, HistoriesDiffer.
        """
        header = yield from self._header()
        wanted = Declaration(
            header.stream_type, header.system_id, header.file_version, origin="relay"
        )
        opened = yield OpenLog(wanted)
        assert isinstance(opened, OpenedLog)
        if opened.declaration != wanted:
            raise DeclaredOtherwise(
                "stream type, system id, file version and origin are"
                f" {tuple(wanted)}, those of the log {tuple(opened.declaration)}"
            )
        self._next = opened.total_entries
        if self._next and not (yield from self._is_equal(self._next - 1)):
            yield from self._differ(self._next - 1)
        if self._once and self._next >= header.total_entries:
            return
        yield StartData(self._next)
        while True:
            yield Wait(LOOK_AGAIN_S if self._waiting else SILENT_S)
            came, self._has_come = self._has_come, False
            yield from self._compare_again()
            header = yield from self._header()
            yield from self._append(header.total_entries)
            if self._once and self._next >= header.total_entries:
                return
            if header.total_entries < self._next:
                raise RelayEnds(f"upstream has {header.total_entries} entries left")
            if not came and not self._waiting and header.total_entries > self._next:
                raise RelayEnds(f"upstream counts {header.total_entries} entries and sends none")

    def _header(self) -> Generator[Step, Answer, Header]:
        header = yield AskHeader()
        assert isinstance(header, Header)
        self._counted = header.total_entries
        return header

    def _is_equal(self, number: int) -> Generator[Step, Answer, bool]:
        """Whether upstream has an entry as the log has it."""
        ours = yield ReadOwn(number)
        found = yield AskEntries([number])
        assert isinstance(found, list)
        return ours is not None and found == [ours]

    def _differ(self, high: int) -> Generator[Step, Answer, None]:
        """Entry `high` differs: gives up from the first that does, or raises."""
        low = 0
        while low < high:
            middle = (low + high) // 2
            if (yield from self._is_equal(middle)):
                low = middle + 1
            else:
                high = middle
        if not self._follow_truncation:
            raise HistoriesDiffer(low)
        yield Truncate(low)
        self._next = low

    def _compare_again(self) -> Generator[Step, Answer, None]:
        """What came again has to be what is stored, or something that upstream has not either."""
        again, self._again = self._again, []
        for entry in again:
            self._bytes -= _size(entry)
            ours = yield ReadOwn(entry.number)
            if ours == entry or (yield from self._is_equal(entry.number)):
                continue
            yield from self._differ(entry.number)
            raise RelayEnds(f"upstream has another entry {entry.number} than before")

    def _append(self, counted: int) -> Generator[Step, Answer, None]:
        """Appends what is committed; what came before that was known, as upstream has it now."""
        ready = self._waiting[: max(0, counted - self._next)]
        if not ready:
            return
        # Taken out first: what comes meanwhile and replaces one of these is compared with the log.
        del self._waiting[: len(ready)]
        first, self._next = self._next, self._next + len(ready)
        entries = [entry for entry, _ in ready]
        unsure = [entry.number for entry, is_unsure in ready if is_unsure]
        for at in range(0, len(unsure), CONFIRMED_AT_ONCE):
            numbers = unsure[at : at + CONFIRMED_AT_ONCE]
            found = yield AskEntries(numbers)
            assert isinstance(found, list)
            for number, entry in zip(numbers, found, strict=True):
                if entry is None or entry.number != number:
                    raise RelayEnds(f"upstream counts entry {number} and does not have it")
                entries[number - first] = entry
        yield Append(entries)
        self._bytes -= sum(_size(entry) for entry, _ in ready)


def _size(entry: Entry) -> int:
    return HEAD_BYTES + len(entry.data)
