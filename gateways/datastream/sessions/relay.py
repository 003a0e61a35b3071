"""What a relay does with what it is sent (3.3): nothing is appended that may still be rolled back.

Upstream may send, at the end of its history, one entry that is not committed yet, and may send
entries twice at the change to live. So what has come waits until upstream's Header counts it, and
what came before it was counted is asked for again.
"""

from typing import Final

from gateways.datastream.codec import HEAD_BYTES, CodecError, Entry

WAITING_BYTES_MAX: Final = 1 << 20
CONFIRMED_AT_ONCE: Final = 256


class WaitingRoom:
    """Entries that have come and are not appended. `next_number`: of the log."""

    def __init__(self, next_number: int) -> None:
        self.next_number = next_number
        self._waiting: list[tuple[Entry, bool]] = []
        self._bytes = 0
        self.counted = 0
        """The TotalEntries that upstream said last."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be read."""
        return self._bytes >= WAITING_BYTES_MAX

    def receive(self, entry: Entry) -> Entry | None:
        """Takes an entry; one that is stored already is returned, to be compared.

        Raises CodecError for a number that was skipped to.
        """
        at = entry.number - self.next_number
        if at < 0:
            return entry
        if at > len(self._waiting):
            raise CodecError(
                f"entry {entry.number} came, and {self.next_number + len(self._waiting)} was due"
            )
        for old, _ in self._waiting[at:]:
            self._bytes -= HEAD_BYTES + len(old.data)
        del self._waiting[at:]
        self._waiting.append((entry, entry.number >= self.counted))
        self._bytes += HEAD_BYTES + len(entry.data)
        return None

    def ready(self, counted: int) -> tuple[list[Entry], list[int]]:
        """The entries that are committed now, and which numbers of them are to be asked for."""
        self.counted = counted
        found = self._waiting[: max(0, counted - self.next_number)]
        return [entry for entry, _ in found], [entry.number for entry, ask in found if ask]

    def appended(self, entries: list[Entry]) -> None:
        """The first ones that waited are in the log."""
        for old, _ in self._waiting[: len(entries)]:
            self._bytes -= HEAD_BYTES + len(old.data)
        del self._waiting[: len(entries)]
        self.next_number += len(entries)
