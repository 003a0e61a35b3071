"""Records with other values: those of msgspec, and dataclasses."""

import dataclasses
from typing import Any, TypeVar

import msgspec

_Record = TypeVar("_Record")


def replace(record: _Record, **changes: Any) -> _Record:  # noqa: ANN401
    """As `copy.replace` does since Python 3.13."""
    if isinstance(record, msgspec.Struct):
        return msgspec.structs.replace(record, **changes)
    return dataclasses.replace(record, **changes)  # type: ignore[type-var]
