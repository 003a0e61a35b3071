"""The trace of a node's connections: a file with one JSON object per line, for `trace show`.

The first line says what the file is. A connection has a number, a line when it begins, one for each
message in either direction (peer.Tracer), and one that says how it ended. Lines are made in the
event loop and written in a thread, at least once a second and at the end of each connection. What
a slow disk leaves waiting is bounded: lines beyond it are dropped, and a line says how many. A
file that cannot be written any more ends the trace, not the node.
"""

import json
import os
import stat
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import trio

from logstore import wall_clock_us
from peer import Tracer

from .connection import Ending, EndKind, words_of
from .records import Direction, Observer

Record = Mapping[str, object]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TRACE_VERSION: Final = 1
INTERVAL_S: Final = 1.0
WRITE_BYTES: Final = 256 * 1024
"""So much is not left waiting for the next second."""
WAITING_BYTES_MAX: Final = 16 * 1024 * 1024

_HEADER: Final = b'{"bamboo_peer_trace": '


class CannotTraceError(Exception):
    """A trace cannot be written to a file; the text is one line for people."""


class TraceFile:
    """Takes the records of any number of connections, until it is closed or cannot be written.

    The file is made with mode 0600. A trace that is there already is replaced, as every program
    does that captures traffic; anything else that is there is left alone. Raises CannotTraceError.
    """

    def __init__(
        self, path: Path, observer: Observer, *, clock: Callable[[], int] = wall_clock_us
    ) -> None:
        self._path = path
        self._observer = observer
        self._clock = clock
        self._connections = 0
        self._waiting = bytearray()
        self._dropped = 0
        self._wake = trio.Event()
        self._open = True
        self._handle = _opened(path)
        self._append({"bamboo_peer_trace": TRACE_VERSION, "time": self._time()})

    def begin(
        self, address: str, direction: Direction, peer_id: bytes | None = None
    ) -> "ConnectionTrace":
        """A connection has been made, or is about to be. `peer_id`: what was proved over TLS."""
        self._connections += 1
        return ConnectionTrace(self, self._connections, address, direction, peer_id)

    def put(self, number: int, address: str, record: Record) -> None:
        """Takes a record of a connection."""
        if not self._open:
            return
        if len(self._waiting) >= WAITING_BYTES_MAX:
            self._dropped += 1
            return
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._append({"time": self._time(), "channel": "trace", "dropped_records": dropped})
        self._append({"time": self._time(), "connection": number, "peer": address, **record})
        if len(self._waiting) >= WRITE_BYTES:
            self.flush_soon()

    def flush_soon(self) -> None:
        """What waits is written at once."""
        self._wake.set()

    async def run(self) -> None:
        """Writes until cancelled; `close` writes the rest."""
        while True:
            with trio.move_on_after(INTERVAL_S):
                await self._wake.wait()
            self._wake = trio.Event()
            await self._write_waiting()

    async def close(self) -> None:
        """Writes what is left and closes the file."""
        await self._write_waiting()
        self._open = False
        os.close(self._handle)

    async def _write_waiting(self) -> None:
        if not (self._waiting and self._open):
            return
        data, self._waiting = self._waiting, bytearray()
        try:
            # What was taken would be lost.
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(_write_all, self._handle, data)
        except OSError as error:
            self._open = False
            reason = f"{self._path}: {words_of(error)}; the trace ends here"
            self._observer({"event": "trace_failed", "reason": reason})

    def _append(self, fields: Record) -> None:
        self._waiting += json.dumps(fields).encode() + b"\n"

    def _time(self) -> str:
        moment = _EPOCH + timedelta(microseconds=self._clock())
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class ConnectionTrace:
    """The part of a trace that is about one connection."""

    def __init__(
        self,
        file: TraceFile,
        number: int,
        address: str,
        direction: Direction,
        peer_id: bytes | None,
    ) -> None:
        self._file = file
        self._number = number
        self._address = address
        proved = None if peer_id is None else peer_id.hex()
        self._put(
            {
                "channel": "connection",
                "message": "begin",
                "direction": str(direction),
                "peer_id": proved,
            }
        )
        self.tracer = Tracer(self._put)
        """For the session."""

    def ended(self, ending: Ending | None) -> None:
        """The connection is over; None: this program was in a hurry."""
        ending = ending or Ending(EndKind.LOST, "ended by us")
        fields = {"kind": str(ending.kind), "reason": ending.reason}
        self._put({"channel": "connection", "message": "end", **fields})
        self._file.flush_soon()

    def _put(self, record: Record) -> None:
        self._file.put(self._number, self._address, record)


def _opened(path: Path) -> int:
    try:
        _refuse_what_is_no_trace(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        handle = os.open(path, flags, 0o600)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            os.fchmod(handle, 0o600)
    except OSError as error:
        raise CannotTraceError(f"cannot write the trace {path}: {words_of(error)}") from None
    return handle


def _refuse_what_is_no_trace(path: Path) -> None:
    if not path.is_file():
        return
    with path.open("rb") as file:
        start = file.read(len(_HEADER))
    if start and start != _HEADER:
        raise CannotTraceError(
            f"cannot write the trace {path}: it is there and no trace; name another file"
        )


def _write_all(handle: int, data: bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
