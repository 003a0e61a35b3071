"""Entry 1 of each log of a Swarm node: what the log is for (spec section 4).

Sans-io. A node has 36 logs in a row: chunks, receipts, and for each of the 17 bins the order in
which chunks are offered (`sync`), and in which they leave (`gone`). Any further log may hold
chunks, and each feed that is followed or posted to has one for its updates.
"""

from typing import Final, NamedTuple

from gateways.declaration import (
    DeclarationError,
    canonical_json,
    read_declaration,
    text_field,
    u64_field,
)

SYSTEM: Final = "swarm"
VERSION: Final = 1
FIRST_LOG: Final = 7_000
BINS: Final = 17
"""A chunk's bin is its proximity to the holder, which is 16 at most."""
CHUNKS: Final = 0
RECEIPTS: Final = 1
SYNC: Final = 2
GONE: Final = SYNC + BINS
"""Where the logs of a kind begin, counted from the first."""
LOGS: Final = GONE + BINS
ADDRESS_BYTES: Final = 32
USER_BYTES: Final = 20
_ROLES: Final = ("chunks", "receipts", "sync", "gone", "feed")
_BIN_ROLES: Final = ("sync", "gone")


class ChunksDeclared(NamedTuple):
    """Each entry behind it is a chunk."""


class ReceiptsDeclared(NamedTuple):
    """Which chunks were taken over, and by whom."""

    overlay: bytes


class BinDeclared(NamedTuple):
    """Addresses of a bin: offered in this order, or leaving in it."""

    role: str
    """`sync` or `gone`."""
    bin: int
    overlay: bytes


class FeedDeclared(NamedTuple):
    """Addresses of the updates of a feed."""

    overlay: bytes
    topic: bytes
    user: bytes


Declared = ChunksDeclared | ReceiptsDeclared | BinDeclared | FeedDeclared


def declare(declared: Declared) -> bytes:
    """The payload of entry 1."""
    fields: dict[str, object] = {"stream": SYSTEM, "version": VERSION}
    match declared:
        case ChunksDeclared():
            fields["role"] = "chunks"
        case ReceiptsDeclared(overlay):
            fields |= {"role": "receipts", "overlay": overlay.hex()}
        case BinDeclared(role, bin_, overlay):
            fields |= {"role": role, "bin": bin_, "overlay": overlay.hex()}
        case FeedDeclared(overlay, topic, user):
            fields |= {"role": "feed", "overlay": overlay.hex()}
            fields |= {"topic": topic.hex(), "user": user.hex()}
    return canonical_json(fields)


def declarations(overlay: bytes) -> list[bytes]:
    """Entry 1 of each of a node's logs, in the order of their ids."""
    declared: list[Declared] = [ChunksDeclared(), ReceiptsDeclared(overlay)]
    declared += [BinDeclared(role, bin_, overlay) for role in _BIN_ROLES for bin_ in range(BINS)]
    return [declare(each) for each in declared]


def read_declared(payload: bytes) -> Declared:
    """What entry 1 says. Raises DeclarationError."""
    fields = read_declaration(payload, stream=SYSTEM, version=VERSION)
    role = text_field(fields, "role", _ROLES)
    found: Declared
    match role:
        case "chunks":
            found = ChunksDeclared()
        case "receipts":
            found = ReceiptsDeclared(_hex_field(fields, "overlay", ADDRESS_BYTES))
        case "feed":
            found = FeedDeclared(
                _hex_field(fields, "overlay", ADDRESS_BYTES),
                _hex_field(fields, "topic", ADDRESS_BYTES),
                _hex_field(fields, "user", USER_BYTES),
            )
        case _:
            overlay = _hex_field(fields, "overlay", ADDRESS_BYTES)
            found = BinDeclared(role, u64_field(fields, "bin", BINS - 1), overlay)
    if declare(found) != payload:
        raise DeclarationError(f"entry 1 is no declaration of a log of {role}")
    return found


def _hex_field(fields: dict[str, object], name: str, size: int) -> bytes:
    value = fields.get(name)
    try:
        found = bytes.fromhex(value if isinstance(value, str) else "")
    except ValueError:
        found = b""
    if len(found) != size:
        raise DeclarationError(f"{name!r} is no hexadecimal number of {size} bytes")
    return found
