"""What an export says of itself: which ranges of the ingest sequence are in which files.

A manifest is written after its files. `_latest.json` is a copy of the newest one and is replaced
atomically; its range ends at the bookmark from which the next export goes on. Files beyond it
belong to a range that was interrupted.
"""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from .errors import ExportDamaged, ExportTooNew
from .layout import LATEST, MANIFESTS, write_whole
from .schema import SCHEMA_VERSION

MANIFEST_VERSION: Final = 1
_JSON_NUMBER_MAX: Final = 2**53 - 1


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file, as its manifest describes it."""

    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An entry, or a stretch of the ingest sequence, that is not in the export."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Settings:
    """What an export takes in. It stays the same for all of an export's life."""

    logs: tuple[str, ...] = ()
    """Only these, and those of `authors`; all if both are empty."""
    authors: tuple[str, ...] = ()
    payloads: bool = True
    payload_bytes_max: int = 1 << 30
    """Larger payloads are left out; their rows say `too_large`."""

    def fields(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "logs": list(self.logs),
            "authors": list(self.authors),
            "payloads": self.payloads,
            "payload_bytes_max": self.payload_bytes_max,
        }

    def __str__(self) -> str:
        words = [*(f"--log {log}" for log in self.logs), *(f"--author {a}" for a in self.authors)]
        words += [] if self.payloads else ["--no-payload"]
        if self.payload_bytes_max != Settings().payload_bytes_max:
            words.append(f"--max-payload-bytes {self.payload_bytes_max}")
        return " ".join(words) or "no filters"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One step of an export."""

    number: int
    node: str
    settings: Settings
    first: int
    last: int
    files: tuple[WrittenFile, ...] = ()
    heads: dict[str, int] = field(default_factory=dict)
    """The newest entry of each log in `files`."""
    left_out: tuple[LeftOut, ...] = ()
    total_files: int = 0
    total_rows: int = 0
    total_bytes: int = 0
    written_at: str = ""

    @property
    def rows(self) -> int:
        """Rows in this manifest's files."""
        return sum(file.rows for file in self.files)

    def encode(self) -> bytes:
        """The JSON document. Numbers that may pass 2^53 are strings where they do."""
        document = {
            "manifest_version": MANIFEST_VERSION,
            "schema_version": SCHEMA_VERSION,
            "number": self.number,
            "node": self.node,
            "settings": self.settings.fields(),
            "range": {"first": self.first, "last": self.last},
            "rows": self.rows,
            "files": [
                {"path": f.path, "rows": f.rows, "bytes": f.bytes, "sha256": f.sha256}
                for f in self.files
            ],
            "heads": {
                log: seq if seq <= _JSON_NUMBER_MAX else str(seq)
                for log, seq in sorted(self.heads.items())
            },
            "left_out": [{"where": each.where, "why": each.why} for each in self.left_out],
            "totals": {
                "files": self.total_files,
                "rows": self.total_rows,
                "bytes": self.total_bytes,
            },
            "written_at": self.written_at,
        }
        return json.dumps(document, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, path: Path) -> Self:
        """Raises ExportTooNew and ExportDamaged."""
        try:
            document: dict[str, Any] = json.loads(data)
            newest = max(document["manifest_version"], document["schema_version"])
            if newest > max(MANIFEST_VERSION, SCHEMA_VERSION):
                raise ExportTooNew(
                    f"the export has version {newest}, this program knows {SCHEMA_VERSION}",
                    path,
                    "install a newer version, or export into another directory",
                )
            settings = document["settings"]
            totals = document["totals"]
            return cls(
                number=int(document["number"]),
                node=str(document["node"]),
                settings=Settings(
                    tuple(settings["logs"]),
                    tuple(settings["authors"]),
                    bool(settings["payloads"]),
                    int(settings["payload_bytes_max"]),
                ),
                first=int(document["range"]["first"]),
                last=int(document["range"]["last"]),
                files=tuple(WrittenFile(**file) for file in document["files"]),
                heads={log: int(seq) for log, seq in document["heads"].items()},
                left_out=tuple(LeftOut(**each) for each in document["left_out"]),
                total_files=int(totals["files"]),
                total_rows=int(totals["rows"]),
                total_bytes=int(totals["bytes"]),
                written_at=str(document["written_at"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ExportDamaged(
                "the manifest cannot be read", path, "remove it; the next export writes it again"
            ) from error


def manifest_path(root: Path, number: int) -> Path:
    """Where the manifest with this number is."""
    return root / MANIFESTS / f"{number:08}.json"


def load_latest(root: Path) -> Manifest | None:
    """The newest manifest, None if there is none."""
    path = root / MANIFESTS / LATEST
    try:
        return Manifest.decode(path.read_bytes(), path)
    except FileNotFoundError:
        pass
    # Killed between the first manifest and the copy, or the copy was removed.
    numbered = sorted((root / MANIFESTS).glob("[0-9]*.json"))
    return Manifest.decode(numbered[-1].read_bytes(), numbered[-1]) if numbered else None


def load_all(root: Path) -> list[Manifest]:
    """Every manifest, oldest first."""
    paths = sorted((root / MANIFESTS).glob("[0-9]*.json"))
    return [Manifest.decode(path.read_bytes(), path) for path in paths]


def save(root: Path, manifest: Manifest) -> None:
    """Makes a manifest the newest one."""
    content = manifest.encode()
    write_whole(manifest_path(root, manifest.number), content)
    write_whole(root / MANIFESTS / LATEST, content)


def describe_file(root: Path, path: str) -> WrittenFile:
    """The manifest's line for a file that is there. Raises ExportDamaged if it is no Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = root / path
    with where.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        rows: int = pq.read_metadata(where).num_rows
    except pa.ArrowInvalid as error:
        raise ExportDamaged("the file is no whole Parquet file", where, "remove it") from error
    return WrittenFile(path, rows, where.stat().st_size, digest)
