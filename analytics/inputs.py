"""What an export says of its own files, held against what is there before Spark reads it.

Spark reads whatever files lie in a directory: one that is gone would be rows that nobody misses.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlparse

from .errors import BadInput, ExportDamaged, OtherExport
from .layout import Part, find_parts
from .manifest import Manifest, WrittenFile, load_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RESTORE: Final = "take it from a copy, or export into another directory"


def check_files(root: Path) -> list[Part]:
    """The data files of an export on this machine, in the order of their ranges.

    Raises ExportDamaged for a file that is gone or has another size than its manifest says,
    OtherExport for one of another export, NotAnExport for anything else in the directory.
    """
    # Before the files are listed: an export that is running writes a file and then its manifest.
    manifests = load_all(root)
    parts = find_parts(root)
    named = _named(manifests)
    for file in named.values():
        _check_size(root / file.path, file)
    if not manifests:
        return parts
    newest = manifests[-1]
    complete = len(named) == newest.total_files
    for part in parts:
        if part.node != newest.node[:8]:
            raise OtherExport(
                f"the file is of another export than that of node {newest.node[:8]}",
                root / part.name,
                "move it away, or name its own directory too",
            )
        # Beyond the newest range there may be files of one that was interrupted, or is running.
        if complete and part.name not in named and part.first <= newest.last:
            raise OtherExport(
                "no manifest of this export names the file", root / part.name, "move it away"
            )
    return parts


def _check_size(path: Path, file: WrittenFile) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise ExportDamaged("a file of the export is gone", path, _RESTORE) from error
    if size != file.bytes:
        raise ExportDamaged(
            f"the file has {size} bytes, and {file.bytes} were written", path, _RESTORE
        )


def _named(manifests: Iterable[Manifest]) -> dict[str, WrittenFile]:
    return {file.path: file for manifest in manifests for file in manifest.files}


def rows_promised(files: Iterable[str]) -> int | None:
    """How many rows an export says that these files have: `DataFrame.inputFiles`, as URIs.

    By its manifests, or by the footer of a file that none names yet. None where a file is not on
    this machine. Raises BadInput for what is no Parquet file.
    """
    found = [_local(uri) for uri in files]
    by_root: dict[Path, list[Path]] = defaultdict(list)
    for path in found:
        if path is None:
            return None
        by_root[path.parents[1]].append(path)
    rows = 0
    for root, paths in by_root.items():
        named = _named(load_all(root))
        for path in paths:
            file = named.get(path.relative_to(root).as_posix())
            rows += footer_rows(path) if file is None else file.rows
    return rows


def footer_rows(path: Path) -> int:
    """Rows of a Parquet file by its footer. Raises BadInput where there is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: int = pq.read_metadata(path).num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(
            "a file of the export is no Parquet file", path, "remove it and export again"
        ) from error
    return rows


def roots_of(frame: "DataFrame") -> list[Path]:
    """The directories on this machine from which a DataFrame reads exports."""
    if frame.isStreaming:
        return []
    found = (_local(uri) for uri in frame.inputFiles())
    return sorted({path.parents[1] for path in found if path is not None})


def _local(uri: str) -> Path | None:
    parsed = urlparse(uri)
    return Path(unquote(parsed.path)) if parsed.scheme == "file" else None
