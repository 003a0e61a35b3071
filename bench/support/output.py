"""What benchmarks print: one JSON object a line."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime


def show(record: Mapping[str, object]) -> None:
    """One line, at once."""
    print(json.dumps(record), flush=True)


def report(name: str, value: float, unit: str, **more: object) -> None:
    """One measured value."""
    show({"name": name, "value": round(value, 3), "unit": unit, **more})


def date_and_load() -> dict[str, object]:
    """Of a run that begins: its day, and how many programs wanted each core in the last minute."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return {"date": str(datetime.now(UTC).date()), "load": round(load, 2)}
