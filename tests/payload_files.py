"""The files of a store's large payloads, for tests that look at what is on the disk."""

from pathlib import Path


def payload_files(store: Path) -> list[Path]:
    """Those with something in them, in order of their names: others may have been made ahead."""
    return sorted(path for path in (store / "payloads").rglob("*") if _has_something(path))


def _has_something(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size > 0
    except FileNotFoundError:
        return False  # removed in between, by who waits for that
