"""Entries whose payload is at hand, as bytes, for programs.

What is stored of an entry says whether its payload is held, and has it only where it is small. A
program that asks for payloads would have to look at both each time, and at a third thing for those
in files; so `Store.read` and `Peer.entries` give out entries of which the payload is there, and
leave out the others. It is still a tuple, and a `StoredEntry`: that it has a payload is its type.

A payload above the limit is not read: whoever wrote it would say how much memory this program
takes. To take its bytes raises, and not the reading, so that one large payload keeps nobody from
the entries behind it.
"""

from typing import TYPE_CHECKING, Final

from .errors import PayloadTooLarge, PayloadUnavailable
from .records import PayloadState, StoredEntry

if TYPE_CHECKING:
    from collections.abc import Callable

    from .reader import PayloadReader

PAYLOAD_BYTES_MAX: Final = 1 << 20
"""The largest payload that is handed out whole unless told otherwise."""
_PAYLOAD: Final = StoredEntry._fields.index("payload")
_new = tuple.__new__


class EntryWithPayload(StoredEntry):
    """An entry whose payload is held; `payload` has its bytes, whatever its size up to a limit."""

    __slots__ = ()

    @property
    def payload(self) -> bytes:
        """The payload. Raises PayloadTooLarge if it is larger than `payload_bytes_max`."""
        found = super().payload
        if found is None:
            raise PayloadTooLarge(
                f"the payload has {self.payload_bytes} bytes, more than payload_bytes_max",
                f"{self.key}/{self.seq}",
                "read it in pieces with Store.open_payload, or set payload_bytes_max",
            )
        return found


def at_hand(entry: StoredEntry, payload_bytes_max: int) -> EntryWithPayload | None:
    """An entry whose payload is held, unless a file has to be read for it."""
    if entry.payload_bytes > payload_bytes_max:
        return _with(entry, None)
    return None if entry.payload is None else _new(EntryWithPayload, entry)


def with_payload(
    entry: StoredEntry,
    payload_bytes_max: int,
    open_payload: "Callable[[StoredEntry], PayloadReader]",
) -> EntryWithPayload | None:
    """An entry with its payload, read if that is in a file; None if it is not held any more."""
    if entry.payload_state is not PayloadState.PRESENT:
        return None
    found = at_hand(entry, payload_bytes_max)
    if found is not None:
        return found
    try:
        with open_payload(entry) as reader:
            payload = b""
            # As a rule in one piece; the last one proves the whole.
            while piece := reader.read(len(payload), entry.payload_bytes):
                payload += piece
    except PayloadUnavailable:
        # Deleted since the entry was read.
        return None
    return _with(entry, payload)


def _with(entry: StoredEntry, payload: bytes | None) -> EntryWithPayload:
    return _new(EntryWithPayload, (*entry[:_PAYLOAD], payload, *entry[_PAYLOAD + 1 :]))
