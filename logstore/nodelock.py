"""The lock that one node per store holds: other processes may append and read, not serve."""

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .errors import StoreLocked, translated
from .system import System

NODE_LOCK: Final = "node.lock"
_PID_BYTES_MAX: Final = 20


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
                if not handle.try_lock():
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
        path = folder / NODE_LOCK
        with translated(path):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(fd)
        return False

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
