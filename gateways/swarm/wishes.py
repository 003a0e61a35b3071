"""What other processes want of a node that serves: they leave it in the store (spec section 4).

A wish is a small value under a name that begins with `swarm/get/`. It wakes whoever serves, like
all that is committed; the outcome is in the store as well, the chunks, and then the wish is taken
out. So there is no socket between the two, nothing to be lost with either of them, and who gives
up first takes it out too.
"""

import json
import secrets
from typing import Final, NamedTuple

PREFIX: Final = "swarm/get/"
HASH_BYTES: Final = 32
_WISH_BYTES_MAX: Final = 1_000
WISHES_MAX: Final = 8
"""Fetched at once."""


class Wish(NamedTuple):
    """A file, or a range of it, that is to be fetched."""

    root: bytes
    first: int = 0
    last: int | None = None
    enode: str | None = None
    """Of a peer that is called for it, beside those that are connected."""

    def encode(self) -> bytes:
        """The value."""
        fields = {"hash": self.root.hex(), "first": self.first, "last": self.last}
        return json.dumps(fields | {"enode": self.enode}).encode()


def decode_wish(value: bytes) -> Wish:
    """Raises ValueError for what is no wish."""
    if len(value) > _WISH_BYTES_MAX:
        raise ValueError(f"a wish of {len(value)} bytes")
    try:
        fields = json.loads(value)
        root, enode = bytes.fromhex(fields["hash"]), fields["enode"]
        first, last = fields["first"], fields["last"]
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"no wish: {error!r}") from None
    if len(root) != HASH_BYTES:
        raise ValueError(f"a hash of {len(root)} bytes")
    # Neither a float, which may be infinite, nor a boolean.
    if type(first) is not int or type(last) not in (int, type(None)):
        raise ValueError("its range is none of numbers")
    return Wish(root, first, last, enode and str(enode))


def wish_name() -> str:
    """A name that no other wish has."""
    return PREFIX + secrets.token_hex(8)
