"""The state of a list of addresses: one hash that says what all of them are (spec section 2.10).

It is the hash of a file whose bytes are the addresses, one behind the other. Whoever appends has to
remember only what is unfinished: addresses that do not fill a leaf yet, and the rows above. Two
nodes with equal states have had the same items in the same order.
"""

from gateways.swarm.bmt import ADDRESS_BYTES, content_chunk
from gateways.swarm.files import BRANCHES, LEAF_BYTES, Rows


class State:
    """The state after so many items, to which more are appended."""

    __slots__ = ("_items", "_rows", "count")

    def __init__(self, count: int = 0, rows: bytes = b"") -> None:
        """Of no items, or as a state was that had this `count` and these `rows()`.

        Raises ValueError for a negative count, or rows of another length than follows from it.
        """
        if count < 0:
            raise ValueError(f"a state of {count} items")
        found: list[bytes] = []
        end, digits = 0, count
        while digits:
            at, end = end, end + digits % BRANCHES * ADDRESS_BYTES
            found.append(rows[at:end])
            digits //= BRANCHES
        if end != len(rows):
            raise ValueError(f"{len(rows)} bytes of rows: those of {count} items have {end}")
        self.count = count
        """Items that were appended: the newest index."""
        self._items = bytearray().join(found[:1])
        self._rows = Rows(found[1:])

    def append(self, items: bytes) -> None:
        """Appends items, whose addresses stand one behind the other.

        Raises ValueError if they are not of 32 bytes each.
        """
        if len(items) % ADDRESS_BYTES:
            raise ValueError(f"{len(items)} bytes of items: each has {ADDRESS_BYTES}")
        self.count += len(items) // ADDRESS_BYTES
        self._items += items
        while len(self._items) >= LEAF_BYTES:
            leaf = content_chunk(LEAF_BYTES, bytes(self._items[:LEAF_BYTES]))
            del self._items[:LEAF_BYTES]
            self._rows.append(leaf.address)

    def root(self) -> bytes:
        """The hash of all items: 32 bytes, or none if there are no items (spec section 2.10)."""
        items = bytes(self._items)
        _, root = self._rows.close(content_chunk(len(items), items) if items else None)
        return root

    def rows(self) -> bytes:
        """What has to be kept beside `count`: the unfinished rows, that of the items first.

        How long each of them is follows from the count, whose digits in base 128 they are.
        """
        return b"".join((self._items, *self._rows.rows))
