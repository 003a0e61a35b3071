"""Records with other values: those of msgspec, dataclasses and named tuples."""

import dataclasses
from typing import Any, TypeVar

import msgspec

_Record = TypeVar("_Record")


def replace(record: _Record, **changes: Any) -> _Record:  # noqa: ANN401
    """As `copy.replace` does since Python 3.13."""
    if isinstance(record, msgspec.Struct):
        return msgspec.structs.replace(record, **changes)
    if isinstance(record, tuple):
        return record._replace(**changes)  # type: ignore[attr-defined, no-any-return]
    return dataclasses.replace(record, **changes)  # type: ignore[type-var]
