"""What benchmarks print: one JSON object a line."""

import json
from collections.abc import Mapping


def show(record: Mapping[str, object]) -> None:
    """One line, at once."""
    print(json.dumps(record), flush=True)


def report(name: str, value: float, unit: str, **more: object) -> None:
    """One measured value."""
    show({"name": name, "value": round(value, 3), "unit": unit, **more})
