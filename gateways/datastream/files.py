"""Stream files as upstream writes them (2.4): a stream exported to one, one imported as a log."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from gateways import LogHost
from gateways.datastream.codec import (
    BOOKMARK,
    BOOKMARK_BYTES_MAX,
    ENTRY_HEAD,
    FIRST_PLACE,
    HEAD_BYTES,
    HEADER_BYTES,
    PAGE_BYTES,
    Header,
    check_head,
    decode_header,
    encode_header,
    place,
)
from gateways.reading import CodecError
from logstore import PayloadUnavailable, Store
from peer.api import Peer
from wire import LogKey

from .errors import FileRefused, HistoryDiffers, StreamError, StreamMismatch
from .logs import State, StreamLog
from .source import DataStreamSource

if TYPE_CHECKING:
    from types import ModuleType

MAGIC: Final = b"polygonDATSTREAM"
FIRST_PAGES: Final = 100
MORE_PAGES: Final = 10
GATHERED_BYTES: Final = 1 << 16
_BATCH_BYTES: Final = 4 << 20
_BATCH_OPERATIONS: Final = 1000
_ATTEMPTS: Final = 5


class ExportedFile(NamedTuple):
    """What was written."""

    file: Path
    bookmarks: Path | None
    total_entries: int
    total_length: int


class ImportedFile(NamedTuple):
    """What came of a file."""

    key: LogKey
    added: int
    """Entries that the log had not."""
    total_entries: int
    total_length: int
    relaid: bool
    """Whether entries lie elsewhere than in the file, whose padding was another."""


def bookmarks_path(file: Path) -> Path:
    """Where upstream looks for the bookmarks of a file."""
    return file.with_name(file.name.partition(".")[0] + ".db")


def plyvel_module() -> "ModuleType":
    """The library for bookmarks. Raises StreamError, saying how to get it."""
    try:
        return import_module("plyvel")
    except ImportError:
        raise StreamError(
            "bookmarks need the library plyvel",
            "LevelDB",
            "install the extra: pip install 'bamboo-peer[leveldb]', or leave them out",
        ) from None


# Export


def export_file(
    store: Store,
    key: LogKey,
    file: Path,
    *,
    with_bookmarks: bool = True,
    bookmarks: Path | None = None,
) -> ExportedFile:
    """Writes the visible stream as upstream would have. Blocks.

    Neither `file` nor the directory of the bookmarks may exist. Raises FileRefused, NotAStream,
    StreamError where a payload is missing or plyvel is, StoreError, OSError.
    """
    folder = bookmarks or bookmarks_path(file)
    leveldb = plyvel_module() if with_bookmarks else None
    for path in (file, folder) if with_bookmarks else (file,):
        if path.exists() or path.is_symlink():
            raise FileRefused("it exists already", str(path), "choose another name")
    log = StreamLog(store, key)
    try:
        with tempfile.TemporaryDirectory(dir=file.absolute().parent, prefix=".export-") as scratch:
            new, marks = Path(scratch) / "file", Path(scratch) / "db"
            state = _export_consistent(log, new, marks, leveldb)
            # A link does not replace what somebody else has put there meanwhile.
            if leveldb is not None:
                _move_folder(marks, folder)
            os.link(new, file)
    finally:
        log.close()
    found = folder if with_bookmarks else None
    return ExportedFile(file, found, state.total_entries, state.total_length)


def _move_folder(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.rename(target)
    except OSError:  # another file system
        shutil.copytree(source, target)


def _export_consistent(
    log: StreamLog, new: Path, marks: Path, leveldb: "ModuleType | None"
) -> State:
    """Written again if the stream was truncated while it was written."""
    for _ in range(_ATTEMPTS):
        before = log.update()
        log.declared()
        new.unlink(missing_ok=True)
        shutil.rmtree(marks, ignore_errors=True)
        try:
            with new.open("xb") as out:
                _write(log, before, out, marks, leveldb)
        except PayloadUnavailable as error:
            raise StreamError(error.what, error.where, "fetch it, then export again") from None
        if log.update().cuts == before.cuts:
            return before
    raise StreamError("it was truncated all the time", str(log.key), "try again")


def _write(
    log: StreamLog, state: State, out: BinaryIO, marks: Path, leveldb: "ModuleType | None"
) -> None:
    size = FIRST_PLACE + FIRST_PAGES * PAGE_BYTES
    database = None if leveldb is None else leveldb.DB(str(marks), create_if_missing=True)
    try:
        number = 0
        for anchor, data in log.spans():
            length, offset = anchor.length, 0
            while offset < len(data) and number < state.total_entries:
                _, entry_bytes, type_, _ = ENTRY_HEAD.unpack_from(data, offset)
                at = place(length, entry_bytes)
                if at == size:
                    size += MORE_PAGES * PAGE_BYTES
                out.seek(at)
                out.write(data[offset : offset + entry_bytes])
                mark = data[offset + HEAD_BYTES : offset + entry_bytes]
                is_asked_for = type_ == BOOKMARK and 1 <= len(mark) <= BOOKMARK_BYTES_MAX
                if database is not None and is_asked_for:
                    database.put(mark, number.to_bytes(8, "big"))
                length = at + entry_bytes
                offset += entry_bytes
                number += 1
    finally:
        if database is not None:
            database.close()
    if state.total_length == size:
        # Upstream's reader fails where nothing lies behind the last entry.
        size += MORE_PAGES * PAGE_BYTES
    out.seek(0)
    out.write(MAGIC + encode_header(state.header))
    out.truncate(size)
    out.flush()
    os.fsync(out.fileno())


# Import


class _Walk:
    """Walks a stream file from page to page. Raises FileRefused, naming the offset."""

    def __init__(self, path: Path, source: BinaryIO) -> None:
        self._path = path
        self._source = source
        self.header = self._read_header()
        self.relaid = False

    def refuse(self, what: str, offset: int) -> FileRefused:
        """An error that names the place."""
        return FileRefused(f"{what}, at byte {offset}", str(self._path), "nothing was signed")

    def _read_header(self) -> Header:
        self._source.seek(0)
        start = self._source.read(FIRST_PLACE)
        if start[: len(MAGIC)] != MAGIC:
            raise self.refuse("no stream file: it begins otherwise", 0)
        if len(start) < FIRST_PLACE:
            raise self.refuse("the file is cut in its header page", len(start))
        try:
            header = decode_header(start[len(MAGIC) : len(MAGIC) + HEADER_BYTES])
        except CodecError as error:
            raise self.refuse(str(error), len(MAGIC)) from None
        if header.total_length < FIRST_PLACE:
            raise self.refuse(f"TotalLength {header.total_length} is below {FIRST_PLACE}", 38)
        return header

    def entries(self) -> Iterator[bytes]:
        """The encoded entries, checked."""
        header = self.header
        at, number, length = FIRST_PLACE, 0, FIRST_PLACE
        page, page_at = b"", -1
        while number < header.total_entries:
            if at >= header.total_length:
                raise self.refuse(
                    f"TotalLength is reached with {number} of {header.total_entries} entries", at
                )
            start = at - (at - FIRST_PLACE) % PAGE_BYTES
            if start != page_at:
                self._source.seek(start)
                page, page_at = self._source.read(PAGE_BYTES), start
            offset = at - start
            if offset and offset < len(page) and page[offset] == 0:
                at = start + PAGE_BYTES
                continue
            encoded = self._entry(page, offset, at, number)
            placed = place(length, len(encoded))
            self.relaid = self.relaid or placed != at
            length = placed + len(encoded)
            at += len(encoded)
            number += 1
            yield encoded
        # Behind a truncation TotalLength is the place of the entry that was removed.
        following = at + (FIRST_PLACE - at) % PAGE_BYTES
        if header.total_length not in (at, following):
            raise self.refuse(
                f"the last entry does not end at TotalLength {header.total_length}", at
            )
        self.relaid = self.relaid or header.total_length != length

    def _entry(self, page: bytes, offset: int, at: int, number: int) -> bytes:
        if len(page) - offset < HEAD_BYTES:
            raise self.refuse(f"entry {number} is cut", at)
        kind, size, _, found = ENTRY_HEAD.unpack_from(page, offset)
        try:
            check_head(kind, size)
        except CodecError as error:
            raise self.refuse(f"entry {number}: {error}", at) from None
        if found != number:
            raise self.refuse(f"Number {found} instead of {number}", at)
        if offset + size > len(page):
            what = "goes beyond its page" if len(page) == PAGE_BYTES else "is cut"
            raise self.refuse(f"entry {number} {what}", at)
        if at + size > self.header.total_length:
            raise self.refuse(f"entry {number} goes beyond TotalLength", at)
        return page[offset : offset + size]


def walk_file(path: Path, source: BinaryIO) -> tuple[int, Iterator[bytes]]:
    """How many entries a stream file has, and these. Raises FileRefused, also while they come."""
    walk = _Walk(path, source)
    return walk.header.total_entries, walk.entries()


async def import_file(peer_or_store: Peer | Store, file: Path, *, log_id: int = 0) -> ImportedFile:
    """Makes a stream file a log, or adds what a log that was made from it has not.

    All of the file is walked before anything is signed. Raises FileRefused, StreamMismatch for
    another declaration, HistoryDiffers for another beginning, StoreError, OSError.
    """
    host = LogHost(peer_or_store)
    with file.open("rb") as opened:
        walk = await host.call(partial(_Walk, file, opened))
        await host.call(lambda: sum(1 for _ in walk.entries()))
        header = walk.header
        key = LogKey(host.store.author, log_id)
        info = host.store.log(key)
        if info is None or not info.entries:
            await DataStreamSource.create(
                peer_or_store,
                log_id=log_id,
                stream_type=header.stream_type,
                system_id=header.system_id,
                file_version=header.file_version,
                origin="file",
            )
        async with DataStreamSource(peer_or_store, log_id=log_id) as source:
            await _check_declaration(source, header, str(file))
            rest = walk.entries()
            await host.call(partial(_skip_equal, source, rest, str(file)))
            before = source.total_entries
            while groups := await host.call(partial(_gather, rest)):
                async with source.batch() as batch:
                    for payload, count in groups:
                        batch.add_encoded(payload, count)
            done = await source.get_header()
    added = done.total_entries - before
    return ImportedFile(key, added, done.total_entries, done.total_length, walk.relaid)


async def _check_declaration(source: DataStreamSource, header: Header, where: str) -> None:
    declared = await source.declaration()
    wanted = (header.stream_type, header.system_id, header.file_version, "file")
    if tuple(declared) != wanted:
        raise StreamMismatch(
            f"stream type, system id, file version and origin are {wanted}, those of the log"
            f" {tuple(declared)}",
            where,
            "import it into another log (--log-id)",
        )


def _skip_equal(source: DataStreamSource, entries: Iterator[bytes], where: str) -> None:
    """Takes what the log has from `entries`. Raises HistoryDiffers."""
    number = 0
    for _, data in source.log.spans():
        offset = 0
        while offset < len(data):
            encoded = next(entries, b"")
            if not encoded or data[offset : offset + len(encoded)] != encoded:
                raise HistoryDiffers(number, where)
            offset += len(encoded)
            number += 1


def _gather(entries: Iterator[bytes]) -> list[tuple[bytes, int]]:
    """The next operations, of 64 KiB or one larger entry each; none at the end."""
    groups: list[tuple[bytes, int]] = []
    total = 0
    gathered = Gathered()
    for encoded in entries:
        groups += gathered.add(encoded)
        total += len(encoded)
        if total >= _BATCH_BYTES or len(groups) >= _BATCH_OPERATIONS:
            break
    return groups + gathered.finish()


class Gathered:
    """Puts entries whose operations are not known together, up to 64 KiB (4.1)."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes = 0

    def add(self, encoded: bytes) -> list[tuple[bytes, int]]:
        """Takes an entry; returns what is full by it, with its number of entries."""
        full = []
        if self._parts and self._bytes + len(encoded) > GATHERED_BYTES:
            full = self.finish()
        self._parts.append(encoded)
        self._bytes += len(encoded)
        return full

    def finish(self) -> list[tuple[bytes, int]]:
        """What is left."""
        parts, self._parts, self._bytes = self._parts, [], 0
        return [(b"".join(parts), len(parts))] if parts else []
