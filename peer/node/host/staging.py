"""Payloads of one's own that come from a file or a stream, which may take its time.

They are read in a thread of their own, so that nothing of the node waits for them. Whoever is
cancelled leaves that thread behind, and it ends with the next piece.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import BinaryIO, cast

import trio

from logstore import Staged, Store

Payload = bytes | Path | BinaryIO


class _GivenUpError(Exception):
    """Nobody waits for it any more."""


class _Staging:
    """The reading of some payloads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._staged: list[Staged] | None = None
        self._is_given_up = False

    def run(self, payloads: Sequence[Payload]) -> list[Staged]:
        """Reads them, in a thread."""
        staged = self._store.stage([self._guarded(each) for each in payloads])
        with self._lock:
            if not self._is_given_up:
                self._staged = staged
                return staged
        self._store.release(staged)
        raise _GivenUpError

    def give_up(self) -> None:
        """Nobody takes what `run` returns, or returned."""
        with self._lock:
            self._is_given_up = True
            staged, self._staged = self._staged, None
        if staged is not None:
            self._store.release(staged)

    def _guarded(self, payload: Payload) -> Payload:
        if isinstance(payload, bytes | Path) or not hasattr(payload, "read"):
            return payload
        return cast("BinaryIO", _Stream(partial(self._read, payload)))

    def _read(self, stream: BinaryIO, bytes_max: int) -> bytes:
        if self._is_given_up:
            raise _GivenUpError
        return stream.read(bytes_max)


class _Stream:
    """The part of a stream that is used."""

    def __init__(self, read: "partial[bytes]") -> None:
        self.read = read


async def stage(store: Store, payloads: Sequence[Payload]) -> list[Staged]:
    """`Store.stage`; cancelled, it reads no further."""
    staging = _Staging(store)
    try:
        return await trio.to_thread.run_sync(
            staging.run,
            payloads,
            abandon_on_cancel=True,
            # The other threads of the program are not to wait for it either.
            limiter=trio.CapacityLimiter(1),
        )
    except BaseException:
        staging.give_up()
        raise
