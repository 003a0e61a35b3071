"""How much an event of the node matters, and `--log-level`."""

import logging
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from .settings import Parser


class Level(IntEnum):
    """How much an event matters; the numbers are those of `logging`."""

    DEBUG = logging.DEBUG
    INFO = logging.INFO
    WARNING = logging.WARNING
    ERROR = logging.ERROR

    @classmethod
    def parse(cls, text: str) -> "Level":
        """Raises ValueError for another word."""
        try:
            return cls[text.upper()]
        except KeyError:
            raise ValueError(f"{text[:40]!r} is none of debug, info, warning and error") from None

    def __str__(self) -> str:
        return self.name.lower()


_LEVELS: Final[Mapping[object, Level]] = {
    "connect_failed": Level.WARNING,
    "refused": Level.WARNING,
    "violation": Level.WARNING,
    "fork": Level.WARNING,
    "limit": Level.WARNING,
    "contested": Level.ERROR,
    "export_failed": Level.ERROR,
    "storage_failed": Level.ERROR,
    "trace_failed": Level.ERROR,
}
"""Of events that are neither progress nor the usual course of things."""
_USUAL_ENDINGS: Final = frozenset(("closed", "removed"))


def level_of(event: Mapping[str, object]) -> Level:
    """How much an event matters."""
    match event["event"]:
        case "disconnected":
            return Level.INFO if event["kind"] in _USUAL_ENDINGS else Level.WARNING
        case "config_reloaded" if event["error"] is not None:
            return Level.ERROR
        case "config_reloaded" if event["needs_restart"]:
            return Level.WARNING
        case "log":
            return Level.parse(str(event["level"]))
        case name:
            return _LEVELS.get(name, Level.INFO)


def level_argument(parser: Parser) -> None:
    """`--log-level`."""
    parser.add_argument(
        "--log-level",
        metavar="LEVEL",
        type=Level.parse,
        help="print what matters at least so much: debug, info (the default), warning or error;"
        " with --json every event is printed unless this is said",
    )
