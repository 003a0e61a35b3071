"""Values as JSON holds them, in traces, events and what commands print."""

from typing import Final

from wire import LogKey

JSON_NUMBER_MAX: Final = 2**53 - 1
"""JSON numbers above this are not exact in every reader, so they are written as strings."""


def json_number(number: int) -> int | str:
    """As a number while every JSON reader gets it right, as a string of digits above."""
    return number if number <= JSON_NUMBER_MAX else str(number)


def seq_span(first: object, last: object) -> str:
    """The numbers of successive entries, as people write them."""
    return f"{first}" if first == last else f"{first}..{last}"


def log_fields(key: LogKey) -> dict[str, object]:
    """The fields that name a log."""
    return {"author": key.author.hex(), "log_id": json_number(key.log_id)}


def counted(number: int, noun: str) -> str:
    """`1 log`, `2 logs`, `2 entries`."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number} {noun if number == 1 else plural}"
