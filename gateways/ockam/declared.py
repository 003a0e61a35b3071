"""Entry 1 of a stream's log and of a ledger, and the address that follows from it (3.1, 4).

Sans-io. A declaration is valid by its bytes alone, so every replica agrees on what a log is.
"""

from typing import Final, NamedTuple

from gateways.declaration import DeclarationError, canonical_json, read_declaration, u64_field
from gateways.ockam.codec import NAME_BYTES_MAX, PARTITIONS_MAX

SYSTEM: Final = "ockam"
VERSION: Final = 1
INDEX_OF_SEQ: Final = 2
"""A message's index is its sequence number less this."""
ADDRESS_PREFIX: Final = "ST_S_"
LEDGER_DECLARATION: Final = canonical_json({"kind": "ledger", "stream": SYSTEM, "version": VERSION})
_DIGEST: Final = slice(2, 10)
"""Of a hash: behind the two bytes that say type and length."""


class StreamDeclared(NamedTuple):
    """A log that holds one partition of a stream."""

    name: str
    partition: int


class LedgerDeclared(NamedTuple):
    """A log that holds positions and trims."""


Declared = StreamDeclared | LedgerDeclared


def declare_stream(name: str, partition: int) -> bytes:
    """The payload of entry 1 of a stream's log."""
    return canonical_json(
        {
            "kind": "stream",
            "name": name,
            "partition": partition,
            "stream": SYSTEM,
            "version": VERSION,
        }
    )


def read_declared(payload: bytes) -> Declared:
    """What entry 1 says. Raises DeclarationError."""
    if payload == LEDGER_DECLARATION:
        return LedgerDeclared()
    fields = read_declaration(payload, stream=SYSTEM, version=VERSION)
    name = fields.get("name")
    if not isinstance(name, str) or not is_name(name):
        raise DeclarationError(f"the stream has no name of 1 to {NAME_BYTES_MAX} bytes")
    partition = u64_field(fields, "partition", PARTITIONS_MAX - 1)
    if declare_stream(name, partition) != payload:
        raise DeclarationError("entry 1 is no declaration of a stream")
    return StreamDeclared(name, partition)


def is_name(text: str) -> bool:
    """Whether a stream or a client may be called so: 1 to 255 bytes of UTF-8."""
    return 0 < len(text.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX


def address_of(first_hash: bytes) -> str:
    """The address of a stream, by the yamf hash of entry 1 of its log."""
    return ADDRESS_PREFIX + first_hash[_DIGEST].hex()
