"""The lock that one node per store holds: other processes may append and read, not serve."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .errors import StoreLocked, translated
from .system import PayloadHandle, System

NODE_LOCK: Final = "node.lock"
_PID_BYTES_MAX: Final = 20
_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.02
"""Whoever only asks has the lock for less."""


def _locked(handle: PayloadHandle) -> bool:
    """Takes the lock, also in the moment in which others ask who has it."""
    for _ in range(_ATTEMPTS):
        if handle.try_lock():
            return True
        time.sleep(_PAUSE_S)
    return False


class NodeLock:
    """Held until `close`, or until the process ends in whatever way."""

    def __init__(self, folder: Path | None, system: System, pid: int) -> None:
        self._handle = None
        if folder is None:
            return
        path = folder / NODE_LOCK
        with translated(path):
            handle = system.open_file(path, create=True)
            with ExitStack() as opened:
                opened.callback(handle.close)
                if not _locked(handle):
                    holder = handle.read(_PID_BYTES_MAX, 0).decode("ascii", "replace").strip()
                    raise StoreLocked(
                        f"another node is serving this store (process {holder or 'unknown'})",
                        folder,
                        "end it, or use another store",
                    )
                handle.truncate(0)
                handle.write(f"{pid}\n".encode(), 0)
                opened.pop_all()
            self._handle = handle

    @staticmethod
    def is_held(folder: Path | None) -> bool:
        """Whether a node serves the store. Raises StoreError.

        Any number may ask at once: the lock that tells it is shared, and nothing is written.
        """
        if folder is None:
            return False
        with NodeLock.kept_free(folder) as free:
            return not free

    @staticmethod
    @contextmanager
    def kept_free(folder: Path) -> Iterator[bool]:
        """No node begins to serve the store while the block runs; False if one does already.

        Any number may do so at once. Nothing is written, and where no node has ever been, one is
        not kept from coming. Raises StoreError.
        """
        path = folder / NODE_LOCK
        free = True
        with ExitStack() as opened:
            with translated(path), suppress(FileNotFoundError):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                opened.callback(os.close, fd)
                try:
                    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    free = False
            yield free

    def close(self) -> None:
        """Lets another node in."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
