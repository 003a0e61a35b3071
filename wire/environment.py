"""The one thing that `wire` asks of its surroundings: whether the native core is wanted."""

import os
from enum import Enum


class Wanted(Enum):
    """What the environment variable BAMBOO_NATIVE says."""

    NO = "0"
    """Python does all the work."""
    DEMANDED = "1"
    """Without the native core nothing is to run: so that a test of it cannot test Python."""
    IF_THERE = ""
    """Anything else, or nothing."""


def native_wanted() -> Wanted:
    """Whether the native core is to be used."""
    try:
        return Wanted(os.environ.get("BAMBOO_NATIVE", ""))
    except ValueError:
        return Wanted.IF_THERE
