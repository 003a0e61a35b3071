"""Spark Connect: sessions that hand queries to a server, which shows nothing of its executors.

An analysis asks each executor what it has before it is given work, and says on which machine
something is missing. Through Connect neither can be had: a query goes to whichever executors the
server chooses, and an error comes back without the machine. So there is none through it, rather
than one that looks like the others and knows less.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from .errors import SparkFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME: Final = "sc://"
_REMOTE: Final = "spark.remote"
_MODE: Final = "spark.api.mode"
_REMEDY: Final = (
    "give Spark's own master, like spark://HOST:7077 or local[*], without SPARK_REMOTE, "
    "SPARK_API_MODE and settings of these names"
)


def refuse_connect(spark: "SparkSession") -> None:
    """Raises SparkFailed if a session is of Spark Connect."""
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        raise _refusal("the session")


def refuse_connect_settings(master: str, settings: Mapping[str, str]) -> None:
    """Raises SparkFailed where a session would be one of Spark Connect.

    By its master, its settings, or the two variables by which PySpark is told the same.
    """
    remote = settings.get(_REMOTE) or os.environ.get("SPARK_REMOTE")
    mode = settings.get(_MODE) or os.environ.get("SPARK_API_MODE", "")
    if master.startswith(_SCHEME) or remote or mode.lower() == "connect":
        raise _refusal(master)


def _refusal(where: str) -> SparkFailed:
    return SparkFailed(
        "Spark Connect tells nothing of the executors, so they could not be asked what they have",
        where,
        _REMEDY,
    )
