"""What the tests of a cluster do there, in one session: a process, and a line of JSON for each."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analytics import AnalyticsError, analyze, start_spark
from analytics.probing import ask_workers


def say(name: str, work: Callable[[], object]) -> None:
    """What it gave, or the error that it raised."""
    try:
        told: dict[str, object] = {"found": work()}
    except AnalyticsError as error:
        told = {"error": str(error)}
    sys.stdout.write(json.dumps({"name": name, **told}) + "\n")
    sys.stdout.flush()


def main(asked: dict[str, Any]) -> None:
    root, out = asked["root"], Path(asked["out"])
    pythons = asked["pythons"]
    with start_spark(asked["master"], "cluster test", asked["settings"]) as spark:
        context = spark.sparkContext
        for name, python in pythons.items():
            context.pythonExec = python
            say(f"probe {name}", lambda: asdict(ask_workers(spark, [root])))
        context.pythonExec = pythons["bare"]
        say("input", lambda: asdict(ask_workers(spark, [root, out])))
        say("out", lambda: asdict(ask_workers(spark, [root], out)))
        say("stages", lambda: {s.name: asdict(s) for s in analyze(spark, [root], out)})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
