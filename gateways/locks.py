"""The lock that who writes one thing of a gateway holds: a source its log, a gateway its area.

A file in the store's directory, locked as long as it is open: it ends with the process, however
that ends. What it holds is the number of the process, for whoever is refused.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from logstore import StoreLocked, from_os_error

_PID_BYTES_MAX: Final = 20
_LOOKS: Final = 5
_LOOK_AGAIN_S: Final = 0.01


class WriterLock:
    """Held until `close`. Raises StoreLocked, naming the process that has it; StoreError.

    `folder`: the store's, None for one in memory, which no other process has. `name`: of the file,
    with the gateway's name first. `what`: for the message, what it is that others are kept from.
    """

    def __init__(self, folder: Path | None, name: str, what: str) -> None:
        self._fd: int | None = None
        if folder is None:
            return
        path = folder / name
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise from_os_error(error, path) from None
        try:
            _lock(fd)
        except BlockingIOError:
            holder = os.pread(fd, _PID_BYTES_MAX, 0).decode("ascii", "replace").strip()
            os.close(fd)
            who = f"process {holder or 'unknown'}"
            raise StoreLocked(f"{what} ({who})", folder, "end it, or wait for it") from None
        except OSError as error:
            os.close(fd)
            raise from_os_error(error, path) from None
        self._fd = fd
        # Held without it as well: a disk that is full keeps nobody from starting.
        with suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)

    @staticmethod
    def is_held(folder: Path | None, name: str) -> bool:
        """Whether somebody holds it. Raises StoreError."""
        if folder is None:
            return False
        path = folder / name
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise from_os_error(error, path) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def close(self) -> None:
        """Lets another one in."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _lock(fd: int) -> None:
    """Raises BlockingIOError if somebody else holds it.

    Not at the first look: who only asks whether it is held locks it for a moment as well.
    """
    for _ in range(_LOOKS - 1):
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_LOOK_AGAIN_S)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
