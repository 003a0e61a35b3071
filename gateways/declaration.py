"""Entry 1 of a gateway's log: canonical JSON that says what the log is.

Canonical: UTF-8, keys sorted, no blanks, nothing escaped that need not be. So a declaration is
valid or not by its bytes alone, and all replicas agree. Numbers from 2^53 on are strings of decimal
digits, since many readers of JSON lose their last bits; below they are numbers.
"""

import json
from collections.abc import Mapping
from typing import Final, NoReturn

from wire import U64_MAX

DECLARATION_BYTES_MAX: Final = 4096
EXACT_MAX: Final = (1 << 53) - 1
"""The largest number that every reader of JSON keeps."""


class DeclarationError(Exception):
    """A payload that declares nothing; the text says why, for people."""


def canonical_json(fields: Mapping[str, object]) -> bytes:
    """The one encoding of some fields."""
    text = json.dumps(
        fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def json_u64(number: int) -> int | str:
    """A number as declarations have it."""
    return number if number <= EXACT_MAX else str(number)


def read_declaration(payload: bytes, *, stream: str, version: int) -> dict[str, object]:
    """The fields of entry 1. Raises DeclarationError, also for another stream or version."""
    fields = read_any_declaration(payload)
    if fields["stream"] != stream:
        raise DeclarationError(f"the log declares {str(fields['stream'])[:60]!r}, not {stream!r}")
    if fields["version"] != version:
        raise DeclarationError(
            f"version {str(fields['version'])[:20]} of {stream} is later than this program,"
            f" which knows {version}"
        )
    return fields


def read_any_declaration(payload: bytes) -> dict[str, object]:
    """The fields of entry 1 of any gateway's log. Raises DeclarationError."""
    if len(payload) > DECLARATION_BYTES_MAX:
        raise DeclarationError(
            f"a declaration of {len(payload)} bytes, {DECLARATION_BYTES_MAX} are the limit"
        )
    try:
        fields: object = json.loads(payload.decode(), parse_constant=_refuse)
        is_canonical = isinstance(fields, dict) and canonical_json(fields) == payload
    except (ValueError, RecursionError):
        # Lone surrogates come through the parser and not out of it again.
        raise DeclarationError("entry 1 is no canonical JSON") from None
    if not isinstance(fields, dict) or not is_canonical:
        raise DeclarationError("entry 1 is no object in canonical JSON")
    if not isinstance(fields.get("stream"), str):
        raise DeclarationError('entry 1 has no text "stream"')
    if type(fields.get("version")) is not int:
        raise DeclarationError('entry 1 has no number "version"')
    return fields


def u64_field(fields: Mapping[str, object], name: str, most: int = U64_MAX) -> int:
    """A number of a declaration, from 0 to `most`. Raises DeclarationError."""
    value = fields.get(name)
    number = None
    if type(value) is int and 0 <= value <= EXACT_MAX:
        number = value
    elif isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 20:
        # The other form of a number below 2^53 would be a second encoding of one declaration.
        number = int(value) if str(int(value)) == value and int(value) > EXACT_MAX else None
    if number is None or number > most:
        raise DeclarationError(f"{name!r} is no number from 0 to {most}")
    return number


def text_field(fields: Mapping[str, object], name: str, choices: tuple[str, ...]) -> str:
    """One of some words of a declaration. Raises DeclarationError."""
    value = fields.get(name)
    if not isinstance(value, str) or value not in choices:
        raise DeclarationError(f"{name!r} is none of {', '.join(choices)}")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
