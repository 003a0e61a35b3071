"""Which files of a streaming query's Parquet table count: what its `_spark_metadata` lists."""

import json
from pathlib import Path
from urllib.parse import unquote, urlparse


def committed(table: Path) -> list[str]:
    """Paths of the files that whole batches have written."""
    found: set[str] = set()
    for log in (table / "_spark_metadata").iterdir():
        if log.name.startswith("."):
            continue
        for line in log.read_text().splitlines()[1:]:
            found.add(unquote(urlparse(json.loads(line)["path"]).path))
    return sorted(found)
