"""Stream files: upstream's bytes; what is wrong is named before anything is signed."""

from hashlib import sha256
from pathlib import Path

import plyvel
import pytest

from gateways.datastream import (
    DataStreamSource,
    FileRefused,
    HistoryDiffers,
    StreamMismatch,
    export_file,
    import_file,
)
from logstore import Store
from wire import LogKey

from .streams import VECTORS, Model, data_of, declare, raw


def digest(path: Path) -> str:
    with path.open("rb") as file:
        hasher = sha256()
        while piece := file.read(1 << 20):
            hasher.update(piece)
    return hasher.hexdigest()


@pytest.mark.parametrize("name", ["R0", "R1", "R4", "L0"])
async def test_an_export_has_upstream_s_bytes_and_comes_back(tmp_path: Path, name: str) -> None:
    [vector] = [each for each in VECTORS["files"] if each["name"] == name]
    model = Model()
    with Store.memory() as store, Store.memory() as other:
        key = declare(store, stream_type=vector["stream_type"])
        for step in vector["steps"]:
            added = [model.add(entry["type"], data_of(entry)) for entry in step["entries"]]
            store.append([b"".join(added)])
        path = tmp_path / "s.bin"
        done = export_file(store, key, path)
        assert digest(path) == vector["file_sha256"]
        assert (done.total_entries, done.total_length) == (len(model.entries), model.length)
        assert done.bookmarks == tmp_path / "s.db"
        with pytest.raises(FileRefused, match="exists already"):
            export_file(store, key, path)
        imported = await import_file(other, path)
        assert imported.relaid is False
        assert imported[1:4] == (len(model.entries), len(model.entries), model.length)
        export_file(other, imported.key, tmp_path / "again.bin", with_bookmarks=False)
        assert digest(tmp_path / "again.bin") == vector["file_sha256"]


@pytest.mark.parametrize("name", ["R2", "R3"])
async def test_a_large_file_has_upstream_s_bytes(tmp_path: Path, name: str) -> None:
    [vector] = [each for each in VECTORS["large_files"] if each["name"] == name]
    model = Model()
    with Store.memory() as store:
        key = declare(store, stream_type=vector["stream_type"])
        for number in range(300 if name == "R2" else 120):
            if name == "R2":
                added = model.add(176, b"\0" + number.to_bytes(8, "big"))
                added += model.add(1, bytes([number % 256]) * (number * 7919 % 70000))
            else:
                added = model.add(1, bytes([number % 256]) * 1_000_000)
            store.append([added])
        done = export_file(store, key, tmp_path / "s.bin", with_bookmarks=False)
        totals = (vector["total_entries"], vector["total_length"])
        assert (done.total_entries, done.total_length) == totals
        assert digest(tmp_path / "s.bin") == vector["file_sha256"]


async def test_bookmarks_are_beside_the_file(tmp_path: Path) -> None:
    with Store.memory() as store:
        key = declare(store)
        store.append([raw(0, 176, b"a") + raw(1, 176, b"b") + raw(2, 1, b"") + raw(3, 176, b"a")])
        export_file(store, key, tmp_path / "x.y.bin")
        database = plyvel.DB(str(tmp_path / "x.db"))
        assert dict(database) == {b"a": (3).to_bytes(8, "big"), b"b": (1).to_bytes(8, "big")}
        database.close()


async def test_the_rest_of_a_file_is_added(tmp_path: Path) -> None:
    model = Model()
    with Store.memory() as source, Store.memory() as store:
        key = declare(source)
        for number in range(3):
            source.append([model.add(1, bytes([number]) * 30_000) for _ in range(3)])
            export_file(source, key, tmp_path / f"{number}.bin", with_bookmarks=False)
            done = await import_file(store, tmp_path / f"{number}.bin")
            assert done.added == 3
        assert (await import_file(store, tmp_path / "2.bin")).added == 0
        source.append([model.truncate(8), model.add(1, b"another")])
        export_file(source, key, tmp_path / "other.bin", with_bookmarks=False)
        with pytest.raises(HistoryDiffers, match="from entry 8 on"):
            await import_file(store, tmp_path / "other.bin")
        await DataStreamSource.create(store, log_id=5, system_id=137)
        with pytest.raises(StreamMismatch):
            await import_file(store, tmp_path / "2.bin", log_id=5)


@pytest.mark.parametrize(
    ("offset", "data", "why"),
    [
        (0, b"x", "begins otherwise, at byte 0"),
        (16, b"\x02", "packet type 2 where a header"),
        (17, b"\0\0\0\x27", "length of 39"),
        (38, b"\xff" * 8, "TotalLength 18446744073709551615"),
        (38, b"\0" * 8, "below 4096"),
        (46, b"\0\0\0\0\0\0\0\x04", "3 of 4 entries"),
        (46, b"\0\0\0\0\0\0\0\x02", "does not end at TotalLength"),
        (4096, b"\x01", "packet type 1"),
        (4097, b"\xff" * 4, "Length 4294967295"),
        (4105, b"\0" * 7 + b"\x09", "Number 9 instead of 0"),
        (4097, b"\0\x0f\0\0", "goes beyond TotalLength, at byte 4096"),
    ],
)
async def test_what_is_wrong_with_a_file_is_named(
    tmp_path: Path, offset: int, data: bytes, why: str
) -> None:
    with Store.memory() as source, Store.memory() as store:
        key = declare(source)
        source.append([raw(0, 176, b"a") + raw(1, 1, b"b") + raw(2, 1, b"c")])
        path = tmp_path / "s.bin"
        export_file(source, key, path, with_bookmarks=False)
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(data)
        with pytest.raises(FileRefused, match=why):
            await import_file(store, path)
        assert store.log(LogKey(store.author, 0)) is None


@pytest.mark.parametrize("size", [0, 10, 4000, 4096, 4100, 4130])
async def test_a_file_that_is_cut_is_refused(tmp_path: Path, size: int) -> None:
    with Store.memory() as source, Store.memory() as store:
        key = declare(source)
        source.append([raw(0, 176, b"a") + raw(1, 1, b"b" * 30)])
        path = tmp_path / "s.bin"
        export_file(source, key, path, with_bookmarks=False)
        with path.open("r+b") as file:
            file.truncate(size)
        with pytest.raises(FileRefused, match="at byte"):
            await import_file(store, path)
        assert store.log(LogKey(store.author, 0)) is None
