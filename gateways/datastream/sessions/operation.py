"""The operation that a source has open (3.2): what it takes, and what it is once committed."""

from gateways.datastream.codec import (
    BOOKMARK,
    BOOKMARK_BYTES_MAX,
    DATA_BYTES_MAX,
    NOT_FOUND,
    Entry,
    encode_entry,
)


class OperationError(Exception):
    """What a source refuses, which leaves everything as it was; the text says why."""


def check_event(type_: int, data: bytes) -> None:
    """Raises OperationError for an event that no stream takes."""
    if not 0 <= type_ < NOT_FOUND:
        raise OperationError(f"type {type_} is not from 0 to {NOT_FOUND - 1}")
    if type_ == BOOKMARK:
        raise OperationError(f"type {BOOKMARK} is that of bookmarks")
    if len(data) > DATA_BYTES_MAX:
        raise OperationError(f"{len(data)} bytes of data, {DATA_BYTES_MAX} are the limit")


def check_bookmark(data: bytes) -> None:
    """Raises OperationError for a bookmark that nobody could ask for."""
    if not 1 <= len(data) <= BOOKMARK_BYTES_MAX:
        raise OperationError(
            f"a bookmark of {len(data)} bytes, 1 to {BOOKMARK_BYTES_MAX} are right"
        )


class OpenOperation:
    """Entries that are not committed, numbered from `first`.

    The host may take away what is there already (`take`), to keep it elsewhere; those entries are
    updated there.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self._entries: list[bytes] = []
        self._types: list[int] = []
        self._taken = 0
        self.bytes = 0
        """Of what is held here."""

    @property
    def next_number(self) -> int:
        """The number of the next entry."""
        return self.first + self._taken + len(self._entries)

    def event(self, type_: int, data: bytes) -> int:
        """Adds an entry; returns its number. Raises OperationError."""
        check_event(type_, data)
        return self._add(type_, data)

    def bookmark(self, data: bytes) -> int:
        """Adds a bookmark; returns its number. Raises OperationError."""
        check_bookmark(data)
        return self._add(BOOKMARK, data)

    def check_update(self, number: int, type_: int, data: bytes) -> None:
        """Raises OperationError for an update that cannot be, whatever the entry's type is."""
        if not self.first <= number < self.next_number:
            raise OperationError(f"entry {number} is none of the operation that is open")
        if type_ == BOOKMARK:
            check_bookmark(data)
        else:
            check_event(type_, data)

    def update(self, number: int, type_: int, data: bytes) -> bool:
        """Replaces an entry's data; False if it was taken. Raises OperationError."""
        self.check_update(number, type_, data)
        at = number - self.first - self._taken
        if at < 0:
            return False
        if self._types[at] != type_:
            raise OperationError(f"entry {number} has type {self._types[at]}, not {type_}")
        encoded = encode_entry(Entry(number, type_, data))
        self.bytes += len(encoded) - len(self._entries[at])
        self._entries[at] = encoded
        return True

    def take(self) -> list[bytes]:
        """The encoded entries that are held here, which are then the host's."""
        taken, self._entries, self._types = self._entries, [], []
        self._taken += len(taken)
        self.bytes = 0
        return taken

    def _add(self, type_: int, data: bytes) -> int:
        number = self.next_number
        encoded = encode_entry(Entry(number, type_, bytes(data)))
        self._entries.append(encoded)
        self._types.append(type_)
        self.bytes += len(encoded)
        return number
