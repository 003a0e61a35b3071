"""What an export says of its own files, held against what is there before Spark reads it.

Spark reads whatever files lie in a directory: one that is gone would be rows that nobody misses.

A file is known by four things. Its size and its number of rows stand in its manifest; which node's
and which arrivals it holds stand in its footer as in its name: these are looked at first, in
milliseconds, and what differs is refused. Its SHA-256 stands in the manifest too, and to compare it
the whole file is read: an analysis does so while Spark checks the rows, and goes on, since only the
rows say which entry is wrong.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlparse

from .errors import BadInput, ExportDamaged, NotAnExport, OtherExport
from .extras import require
from .java import files_behind
from .layout import MANIFESTS, Part, disk_errors, find_parts
from .manifest import Manifest, WrittenFile, load_all, load_latest
from .schema import NAMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RESTORE: Final = "take it from a copy, or export into another directory"
# Footers are read one after another from a disk that may be far away.
_LOOKS_AT_ONCE: Final = 8
# What a footer says of where its rows are from, as a name does.
_ORIGIN: Final = ("bamboo.node", "bamboo.first_ingest", "bamboo.last_ingest")


def check_exports(roots: Iterable[Path | str]) -> None:
    """Whether exports on this machine can be read, as `read_export` does: it needs no Spark.

    Raises what `check_files` does, NotAnExport where there is none, ExportTooNew for a newer
    schema, and MissingExtra without pyarrow.
    """
    require("pyarrow")
    for root in map(str, roots):
        if "://" not in root:
            check_files(Path(root))


def check_named(roots: Iterable[Path | str]) -> None:
    """Whether there is an export at each of these places on this machine: NotAnExport if not.

    It loads no library and reads no file, so that a misspelt name is told before anything else.
    """
    for root in (Path(each) for each in roots if "://" not in str(each)):
        if not root.is_dir():
            raise NotAnExport("there is no export", root, "name a directory that `export` made")
        if not (root / MANIFESTS).is_dir() and not find_parts(root):
            raise NotAnExport(
                "the directory holds no export", root, "name one that `export` has made"
            )


def check_files(root: Path) -> list[Part]:
    """The data files of an export on this machine, in the order of their ranges.

    Raises NotAnExport where there is none, and for what is no part of one; ExportTooNew for a newer
    schema; ExportDamaged for a file that is gone, or has another size or number of rows than its
    manifest says, and for fewer of them than the newest manifest says; OtherExport for one of
    another export or of other arrivals than its name says; BadInput for what is no Parquet file or
    lacks columns.
    """
    check_named([root])
    # Before the files are listed: an export that is running writes a file and then its manifest.
    newest, named = _told(root)
    parts = find_parts(root)
    for file in named.values():
        _check_size(root / file.path, file)
    if newest is not None:
        _check_names(root, parts, newest, named)
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        looks = pool.map(lambda part: _check_footer(root, part, named.get(part.name)), parts)
        rows = dict(zip(parts, looks, strict=True))
    if newest is not None:
        _check_totals(root, rows, newest)
    return parts


def _told(root: Path) -> tuple[Manifest | None, dict[str, WrittenFile]]:
    """The newest manifest, None without any, and the files that they name."""
    manifests = load_all(root)
    newest = load_latest(root)
    return newest, _named(manifests if newest is None else [*manifests, newest])


def _check_size(path: Path, file: WrittenFile) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise ExportDamaged("a file of the export is gone", path, _RESTORE) from error
    if size != file.bytes:
        raise ExportDamaged(
            f"the file has {size} bytes, and {file.bytes} were written", path, _RESTORE
        )


def _check_names(
    root: Path, parts: Sequence[Part], newest: Manifest, named: dict[str, WrittenFile]
) -> None:
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


def _check_totals(root: Path, rows: Mapping[Part, int], newest: Manifest) -> None:
    """What was removed together with the manifest that named it is missed by the newest one."""
    within = [count for part, count in rows.items() if part.last <= newest.last]
    if (len(within), sum(within)) != (newest.total_files, newest.total_rows):
        raise ExportDamaged(
            f"the export has {newest.total_files} files and {newest.total_rows} rows by its newest "
            f"manifest, and {len(within)} and {sum(within)} by what is there",
            root,
            _RESTORE,
        )


def _check_footer(root: Path, part: Part, file: WrittenFile | None) -> int:
    """How many rows a file has."""
    path = root / part.name
    footer = read_footer(path)
    check_names(footer.schema.names, str(path))
    metadata: dict[bytes, bytes] = footer.metadata or {}
    node, first, last = (metadata.get(name.encode(), b"nothing").decode() for name in _ORIGIN)
    if (node[:8], first, last) != (part.node, str(part.first), str(part.last)):
        raise OtherExport(
            f"the file is another than its name says: its footer tells of node {node[:8]}, "
            f"arrivals {first} to {last}",
            path,
            _RESTORE,
        )
    if file is not None and footer.num_rows != file.rows:
        raise ExportDamaged(
            f"the file has {footer.num_rows} rows, and {file.rows} were written", path, _RESTORE
        )
    return int(footer.num_rows)


def check_names(names: Sequence[str], where: str) -> None:
    """Raises BadInput unless all columns of an export, the partition aside, are among them."""
    missing = [name for name in NAMES if name not in names]
    if missing:
        raise BadInput(
            f"columns are missing ({', '.join(missing)})",
            where,
            'use what `export` wrote, or format("bamboo") reads',
        )


def _named(manifests: Iterable[Manifest]) -> dict[str, WrittenFile]:
    return {file.path: file for manifest in manifests for file in manifest.files}


@contextmanager
def files_hashed_meanwhile(roots: Sequence[Path | str]) -> Iterator[Future[list[Path]]]:
    """Runs `changed_files` in a thread: it waits for the disk, and hashing lets others run.

    At the end the thread has ended too, after the file that it is at.
    """
    stop = Event()
    with ThreadPoolExecutor(1, "hashes of files") as pool:
        try:
            yield pool.submit(changed_files, roots, stop)
        finally:
            stop.set()


def changed_files(roots: Iterable[Path | str], stop: Event) -> list[Path]:
    """The files of exports on this machine that are not what was written, by their SHA-256.

    Every file that a manifest names is read, at a gigabyte a second or as fast as the disk gives
    it, until `stop` is set. Raises ExportFailed where the disk fails, and ExportDamaged for a
    manifest that cannot be read.
    """
    changed: list[Path] = []
    for root in (Path(each) for each in roots if "://" not in str(each)):
        for file in _told(root)[1].values():
            if stop.is_set():
                return changed
            path = root / file.path
            with disk_errors(path), path.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            if digest != file.sha256:
                changed.append(path)
    return changed


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
        _, named = _told(root)
        for path in paths:
            file = named.get(path.relative_to(root).as_posix())
            rows += int(read_footer(path).num_rows) if file is None else file.rows
    return rows


def read_footer(path: Path) -> Any:  # noqa: ANN401 - pyarrow's FileMetaData, which has no types
    """The footer of a Parquet file. Raises BadInput where there is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise BadInput(
            "a file of the export is no Parquet file", path, "remove it and export again"
        ) from error


def roots_of(frame: "DataFrame") -> list[Path]:
    """The directories on this machine from which a DataFrame reads exports."""
    if frame.isStreaming:
        return []
    found = (_local(uri) for uri in files_behind(frame))
    return sorted({path.parents[1] for path in found if path is not None})


def _local(uri: str) -> Path | None:
    parsed = urlparse(uri)
    return Path(unquote(parsed.path)) if parsed.scheme == "file" else None
