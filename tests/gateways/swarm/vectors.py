"""Vectors of Swarm chunks: upstream's own bytes, and such that were made by its rules."""

import json
from pathlib import Path
from typing import Any

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())
