"""Hashing what is written, beside writing it.

Theory. To hash a mebibyte takes as long as to write and sync it, and neither needs the
interpreter's lock: one after the other they are most of what an append of a large payload costs.
So what is to be hashed goes to a thread of its own, which ends with the payload: a store has no
threads that outlive a call. To start one takes 60 microseconds, as long as hashing 64 KiB: a
payload of a few pieces as small as that is hashed on the spot.
"""

from queue import Queue
from threading import Thread
from types import TracebackType
from typing import Final, Self

from wire import PayloadHasher

BESIDE_BYTES_MIN: Final = 256 * 1024
_WAITING_MAX: Final = 2
"""Pieces that wait to be hashed: a disk that is faster does not fill the memory."""

_Piece = bytes | memoryview


class Hashing:
    """The yamf hash of pieces that must not change before the block is left."""

    def __init__(self) -> None:
        self._hasher = PayloadHasher()
        self._pieces: Queue[_Piece | None] = Queue(_WAITING_MAX)
        self._thread: Thread | None = None
        self._error: Exception | None = None

    def update(self, piece: _Piece) -> None:
        """Takes the next bytes."""
        if self._thread is None and len(piece) >= BESIDE_BYTES_MIN:
            self._begin()
        if self._thread is None:
            self._hasher.update(piece)
        else:
            self._pieces.put(piece)

    def _begin(self) -> None:
        thread = Thread(target=self._run, name="hashing", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # There is none to be had: it takes longer.
            return
        self._thread = thread

    def _run(self) -> None:
        while (piece := self._pieces.get()) is not None:
            try:
                self._hasher.update(piece)
            except Exception as error:  # noqa: BLE001 - whoever hands in pieces would wait for ever
                self._error = self._error or error

    def digest_yamf(self) -> bytes:
        """The hash of all pieces, behind the block. Raises what hashing has raised."""
        if self._error is not None:
            raise self._error
        return self._hasher.digest_yamf()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._pieces.put(None)
            self._thread.join()
