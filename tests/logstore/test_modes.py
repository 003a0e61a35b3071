"""Nobody but its owner reads a store, whatever the umask says and whoever made it before."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore import Store, is_open_to_others

LARGE = bytes(100_000)


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder.parent)): stat.S_IMODE(path.stat().st_mode)
        for path in (folder, *folder.rglob("*"))
    }


def check(folder: Path) -> None:
    found = modes(folder)
    assert len(found) >= 5
    for name, mode in found.items():
        assert mode == (0o700 if (folder.parent / name).is_dir() else 0o600), name


def widen(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (folder / "author.key").chmod(0o600)


@pytest.mark.usefixtures("umask")
def test_a_new_store_and_its_backup_are_its_owners(tmp_path: Path) -> None:
    path, target = tmp_path / "store", tmp_path / "backup"
    with Store.create(path) as store:
        store.append([LARGE, b"small"])
        check(path)
        store.backup(target)
    check(path)
    check(target)


def test_a_store_that_others_could_read_is_mended_once_it_is_opened_to_write(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store"
    with Store.create(path) as store:
        store.append([LARGE])
    widen(path)
    before = modes(path)
    with Store.open(path, readonly=True):
        assert modes(path).items() >= before.items()
        assert is_open_to_others(path)
    with Store.open(path):
        check(path)
    assert not is_open_to_others(path)


def test_who_was_interrupted_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store"
    with Store.create(path) as store:
        store.append([LARGE])
    widen(path)
    real, left = Path.chmod, [3]

    def chmod(self: Path, mode: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        real(self, mode)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "chmod", chmod)
        with pytest.raises(KeyboardInterrupt):
            Store.open(path)
    with Store.open(path):
        check(path)


def test_a_backup_goes_into_an_empty_directory_that_others_could_read(tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir(mode=0o755)
    with Store.create(tmp_path / "store") as store:
        store.append([LARGE])
        store.backup(tmp_path / "backup")
    check(tmp_path / "backup")


def test_what_is_above_a_store_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with Store.create(tmp_path / "a" / "b" / "store"):
        pass
    for each in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        assert is_open_to_others(each)
