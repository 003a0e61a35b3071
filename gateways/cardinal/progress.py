"""How far a consumer has come, so that it can go on: tokens, and what `--state` keeps (spec 3.6).

Sans-io.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from gateways.cardinal.codec import HASH_BYTES, NUMBER_MAX, WEIGHT_MAX
from gateways.cardinal.headers import Head
from wire import U64_MAX, LogKey

_AT_MAX: Final = (1 << 63) - 1
_JSON_INT_MAX: Final = (1 << 53) - 1


class Progress(NamedTuple):
    """Where a consumer is, in the store that it has read."""

    head: Head | None
    """The newest block given out; None: none was."""
    at: int = 0
    """The last event that was taken."""
    channels: tuple[tuple[LogKey, int], ...] = ()
    """Channels that were taken before what came beside them, and how far; the last one goes on."""
    is_in_channel: bool = False
    bars: tuple[tuple[bytes, bytes], ...] = ()
    """What a Reorg has taken back (`Ordering.bars`)."""


class Mark(NamedTuple):
    """By what a store is known again, as it was when something was taken from it.

    Its author alone would not do: it may have been put back from a copy, and have grown again past
    the same numbers.
    """

    store: bytes
    """Its author."""
    log: LogKey | None = None
    """Of the newest entry that was taken; None: there is none that could tell."""
    seq: int = 0
    hash: bytes = b""


class Kept(NamedTuple):
    """What `--state` has kept."""

    progress: Progress
    """In the store with this mark; elsewhere only the head of it counts."""
    token: str
    mark: Mark


class StateError(ValueError):
    """It is no state that was kept; the text says why."""


def encode_token(places: Mapping[LogKey, int]) -> str:
    """By source."""
    named = {str(key): seq for key, seq in places.items()}
    return ";".join(f"{name}={named[name]}" for name in sorted(named))


def decode_token(token: str) -> dict[LogKey, int]:
    """What names no log, or no entry, says nothing."""
    found: dict[LogKey, int] = {}
    for part in token.split(";"):
        if part.count("=") != 1:
            continue
        name, seq = part.split("=")
        try:
            key = LogKey.parse(name)
        except ValueError:
            continue
        if seq.isascii() and seq.isdecimal() and len(seq) <= 20 and int(seq) <= U64_MAX:
            found[key] = int(seq)
    return found


def encode_state(progress: Progress, token: str, mark: Mark) -> bytes:
    """What `decode_state` reads."""
    head = progress.head
    entry = None
    if mark.log is not None:
        entry = {"log": str(mark.log), "seq": _json_int(mark.seq), "hash": mark.hash.hex()}
    fields = {
        "number": None if head is None else _json_int(head.number),
        "hash": None if head is None else head.hash.hex(),
        "weight": None if head is None else _json_int(head.weight),
        "token": token,
        "store": mark.store.hex(),
        "entry": entry,
        "at": _json_int(progress.at),
        "channels": [[str(key), _json_int(at)] for key, at in progress.channels],
        "in_channel": progress.is_in_channel,
        "barred": [[ancestor.hex(), root.hex()] for ancestor, root in progress.bars],
    }
    return json.dumps(fields).encode() + b"\n"


def _json_int(number: int) -> int | str:
    return number if number <= _JSON_INT_MAX else str(number)


def decode_state(data: bytes) -> Kept:
    """What was kept. Raises StateError."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise StateError("it is no JSON") from None
    if not isinstance(fields, dict):
        raise StateError("it is no JSON object")
    token = fields.get("token")
    if not isinstance(token, str):
        raise StateError("it has no token")
    progress = Progress(
        _head(fields),
        _int(fields, "at", _AT_MAX),
        tuple(
            (_key(name), _as_int(at, "channels", _AT_MAX))
            for name, at in _pairs(fields, "channels")
        ),
        fields.get("in_channel") is True,
        tuple(
            (_hash(one, "barred"), _hash(two, "barred")) for one, two in _pairs(fields, "barred")
        ),
    )
    if progress.is_in_channel and not progress.channels:
        raise StateError("it is in a channel, and names none")
    return Kept(progress, token, _mark(fields))


def _mark(fields: dict[str, object]) -> Mark:
    store = _hash(fields.get("store"), "store")
    entry = fields.get("entry")
    if entry is None:
        return Mark(store)
    if not isinstance(entry, dict):
        raise StateError("'entry' is no JSON object")
    hash_ = entry.get("hash")
    try:
        entry_hash = bytes.fromhex(hash_ if isinstance(hash_, str) else "")
    except ValueError:
        raise StateError("'hash' of 'entry' is no hash") from None
    return Mark(store, _key(entry.get("log")), _int(entry, "seq", U64_MAX), entry_hash)


def _head(fields: dict[str, object]) -> Head | None:
    if fields.get("hash") is None:
        return None
    return Head(
        _int(fields, "number", NUMBER_MAX),
        _hash(fields.get("hash"), "hash"),
        _int(fields, "weight", WEIGHT_MAX),
    )


def _pairs(fields: dict[str, object], name: str) -> list[tuple[object, object]]:
    value = fields.get(name)
    if not isinstance(value, list) or not all(
        isinstance(each, list) and len(each) == 2 for each in value
    ):
        raise StateError(f"{name!r} is no list of pairs")
    return [(one, two) for one, two in value]


def _key(value: object) -> LogKey:
    try:
        return LogKey.parse(value if isinstance(value, str) else "")
    except ValueError as error:
        raise StateError(str(error)) from None


def _hash(value: object, name: str) -> bytes:
    try:
        found = bytes.fromhex(value if isinstance(value, str) else "")
    except ValueError:
        found = b""
    if len(found) != HASH_BYTES:
        raise StateError(f"{name!r} is no hash")
    return found


def _int(fields: dict[str, object], name: str, most: int) -> int:
    return _as_int(fields.get(name), name, most)


def _as_int(value: object, name: str, most: int) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 80:
        value = int(value)
    if type(value) is not int or not 0 <= value <= most:
        raise StateError(f"{name!r} is no number from 0 to {most}")
    return value
