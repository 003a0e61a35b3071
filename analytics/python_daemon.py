"""Spark's Python daemon with the pyspark that is installed: `python -m analytics.python_daemon`.

Theory. Spark starts a process from which its Python workers are forked, and puts its own
`python/lib/pyspark.zip` and py4j's before all else on that one's path. Nothing that comes out of a
zip is kept compiled, so each such process compiles pyspark anew, for 0.7 s before the first row is
looked at: one for each session, and one more for a data source. The package around that folder has
the same modules, compiled when it was installed.

So the zips of the pyspark that is found without them come off the path, and no others: with a
SPARK_HOME of its own Spark brings another pyspark, which has to be the one that workers use.
"""

import runpy
import sys
from importlib.machinery import PathFinder
from pathlib import Path

DAEMON = "pyspark.daemon"


def without_own_zips(path: list[str]) -> list[str]:
    """Of a module search path what is no zip inside the pyspark that it leads to without them."""
    rest = [entry for entry in path if not entry.endswith(".zip")]
    found = PathFinder.find_spec("pyspark", rest)
    if found is None or found.origin is None:
        return path
    package = Path(found.origin).resolve().parent
    return [
        entry
        for entry in path
        if not (entry.endswith(".zip") and Path(entry).resolve().is_relative_to(package))
    ]


if __name__ == "__main__":
    sys.path[:] = without_own_zips(sys.path)
    runpy.run_module(DAEMON, run_name="__main__", alter_sys=True)
