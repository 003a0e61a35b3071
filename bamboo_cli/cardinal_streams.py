"""Which streams of blocks a command means, and blocks as it reads and prints them."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from logstore import Store
from peer import json_number

from .errors import Problem, WrongUsage
from .naming import resolved_log

if TYPE_CHECKING:
    from gateways.cardinal import Stream
    from gateways.cardinal.headers import Header

_HASH: Final = re.compile(r"(?:0x)?([0-9a-fA-F]{64})")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})*")


def named_stream(store: Store, text: str) -> "Stream":
    """By its log, or one's own by the chain, which comes first: chains were here before names."""
    from gateways.cardinal import own_stream, stream_of

    found = None if "/" in text else own_stream(store, text)
    if found is not None:
        return found
    try:
        log = resolved_log(store, text)
    except (Problem, WrongUsage):
        if "/" in text:
            raise
        raise Problem(
            f"{text[:70]}: this store has no such chain of its own; another's stream is AUTHOR/LOG"
        ) from None
    return stream_of(store, log)


def own_named_stream(store: Store, text: str) -> "Stream":
    """One that this store writes."""
    stream = named_stream(store, text)
    if stream.key.author != store.author:
        raise Problem(f"{stream.key}: another author's stream; only its author writes it")
    return stream


def is_stream_name(text: str) -> bool:
    """Whether a word of a command may name a stream, and no number or hash."""
    return "/" in text or not (text.isdigit() or _HASH.fullmatch(text))


def hash_of(text: str) -> bytes:
    """64 hex digits, `0x` before them or not. Raises ValueError."""
    found = _HASH.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:70]!r} is no hash of 64 hex digits")
    return bytes.fromhex(found[1])


def number_of(text: str) -> int:
    """The number of a block. Raises ValueError."""
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) >= 1 << 63:
        raise ValueError(f"{text[:40]!r} is no number from 0 to 2^63 - 1")
    return int(text)


def weight_of(text: str) -> int:
    """The weight of a block. Raises ValueError."""
    if not text.isascii() or not text.isdecimal() or len(text) > 78 or int(text) >= 1 << 256:
        raise ValueError(f"{text[:80]!r} is no weight from 0 to 2^256 - 1")
    return int(text)


def from_hex(value: object, what: str) -> bytes:
    """Bytes in hex. Raises ValueError."""
    if not isinstance(value, str) or _HEX.fullmatch(value) is None:
        raise ValueError(f"the {what} is no hex")
    return bytes.fromhex(value)


def number_field(fields: Mapping[str, object], name: str) -> int:
    """A number, as JSON has it or in digits. Raises ValueError."""
    value = fields.get(name)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 80:
        return int(value)
    if type(value) is not int:
        raise ValueError(f"{name!r} is no number")
    return value


def hash_field(fields: Mapping[str, object], name: str) -> bytes:
    """A hash in hex. Raises ValueError."""
    value = fields.get(name)
    try:
        return hash_of(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError(f"{name!r} is no hash of 64 hex digits") from None


def header_fields(header: "Header") -> dict[str, Any]:
    """A block without what is in it."""
    return {
        "number": json_number(header.number),
        "hash": header.hash.hex(),
        "parent": header.parent.hex(),
        "weight": json_number(header.weight),
    }


def named_streams(store: Store, words: Sequence[str]) -> "tuple[Stream, ...]":
    """Several, in the order of preference, each once."""
    streams = [named_stream(store, each) for each in words]
    return tuple({each.key: each for each in streams}.values())
