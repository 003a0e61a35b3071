"""Vectors of Cardinal streams: upstream's own bytes and orders, and such that were made by hand."""

import json
from pathlib import Path
from typing import Any

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())
