"""What a machine remembers of an author beside every store: how far he has signed here.

A database that was put back cannot tell it by itself: everything in its directory was put back too.
So there is one small file for each author in the user's state directory (`System.state_folder`),
found by a store that has moved, and not restored with it. It says which line of databases signs for
the author here (a random `lineage`, also in `meta`; confirming an identity draws a new one), how
many entries were `signed`, which the newest is, how many may be signed before this file is synced
again (`reserved`), and in which boot of the machine that was written. One sector, written in place,
so that a power cut leaves the old or the new.

Who appends, under the lock of this file and then the database's: compares; if `signed` would pass
`reserved`, writes and syncs a reservation; commits; writes `signed`, without a sync; and only then
returns the entries. `kill -9` takes nothing from the page cache, so that `signed` is never behind
what has left a process while the machine runs. A clean end syncs `signed` and gives back the rest.

    the database                         the boot   the end     own logs
    of another lineage                   any        any         read-only
    lacks the newest entry, or is behind any        any         read-only
    as new, or newer                     the same   any         fine
    as new, or newer                     another    clean       fine
    as new, or newer                     another    not clean   fine unless its files have changed
                                                                since the machine started

- A database is *newer* when a process was killed between the commit and the write, when the power
  went before the write reached the disk, and when another account signed, which has a state
  directory of its own. None of these loses an entry: being newer never stops anybody.
- A commit that failed leaves both where they were. There is no intent that would have to be undone.
- The last line: the power went, and what is here may be older than the truth by a reservation. What
  the crash left is the truth, and nothing has touched it since; a copy that was put back has. So
  whoever opens the store for writing looks before he writes, and notes for this boot what is there.
  A clock that is now behind the last signature (a board without a battery) can tell nothing by the
  times of files; then they are trusted, as else such a board would be stopped by every power cut.

Without a state directory that can be written (no home, read-only, full) appending goes on, with a
warning, and a store that is put back is noticed by its place alone (identity.py).

Whoever finds a store behind makes that durable: what tells may be in memory only.

What this leaves open:

- A process is killed, an image put back, and the power goes, all before the system has written
  `signed` to the disk by itself (some 30 s) and before anybody opens the store.
- The power goes while entries are signed, an image is put back, and the machine starts once more
  before anybody opens the store.
- Another process sees a commit some microseconds before `signed` is written; the appending one is
  killed in between, and what is put back is the image of exactly the entry before.
"""

import errno
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

from .errors import READ_ONLY, StoreLocked, is_full
from .system import PayloadHandle, System

RESERVED_ENTRIES: Final = 1000
"""How many own entries are signed for each sync of the witness."""
LINEAGE_BYTES: Final = 16
_RECORD: Final = struct.Struct(">8s16s16sQQQQ66sq")
_MAGIC: Final = b"bamboow1"
_DIGEST_BYTES: Final = 16
_RECORD_BYTES: Final = _RECORD.size + _DIGEST_BYTES
_LOCK_WAIT_S: Final = 20.0
_LOCK_PAUSE_S: Final = 0.002


@dataclass(frozen=True, slots=True)
class Newest:
    """One own entry that was signed, by which a database is recognised."""

    log_id: int
    seq: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Noted:
    """The content of the file. `newest` is None before the first entry."""

    lineage: bytes
    boot: bytes
    signed: int
    reserved: int
    newest: Newest | None
    written_at: int
    """Microseconds since 1970, by a clock that may be wrong."""

    @property
    def is_exact(self) -> bool:
        """Whether nothing was signed after this, even if the machine stopped since."""
        return self.signed == self.reserved

    def pack(self) -> bytes:
        """The bytes of the file."""
        newest = self.newest or Newest(0, 0, b"")
        body = _RECORD.pack(
            _MAGIC,
            self.lineage,
            self.boot,
            self.signed,
            self.reserved,
            newest.log_id,
            newest.seq,
            newest.hash,
            self.written_at,
        )
        return body + _digest(body)

    @classmethod
    def unpack(cls, data: bytes) -> "Noted | None":
        """What the bytes say; None if they are damaged."""
        body = data[: _RECORD.size]
        if len(data) != _RECORD_BYTES or data[_RECORD.size :] != _digest(body):
            return None
        magic, lineage, boot, signed, reserved, log_id, seq, hash_, at = _RECORD.unpack(body)
        newest = Newest(log_id, seq, hash_) if seq else None
        return cls(lineage, boot, signed, reserved, newest, at) if magic == _MAGIC else None


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES, person=b"bamboo-witness").digest()


class Damaged:
    """The file is there and what it says is lost."""


class Witness:
    """The file of one author on this machine. May be used from any thread."""

    def __init__(self, system: System, author: bytes) -> None:
        self.system = system
        folder = system.state_folder()
        self.path: Final = None if folder is None else folder / "authors" / author.hex()
        self.problem: str | None = None
        """Why there is no witness, for whoever wants to know; None if there is one."""
        if self.path is None:
            self.fail("there is no home directory")
        self.boot: Final = blake2b(system.boot_id(), digest_size=16, person=b"bamboo-boot").digest()
        self.looked_at: Noted | None = None
        """What was found to be no older than the files when this store was opened."""

    @contextmanager
    def locked(self, *, wait: bool = True) -> Iterator["Held | None"]:
        """The file, for this caller alone across processes; made if there is none.

        Never refused for what is wrong with the state directory. Where somebody has held it for
        20 s, raises StoreLocked; None at once if it is not to be waited for.
        """
        handle = self._open(create=True)
        if handle is None:
            yield Held(self, None)
            return
        with handle:
            give_up = time.monotonic() + _LOCK_WAIT_S
            while not handle.try_lock():
                if not wait:
                    yield None
                    return
                if time.monotonic() > give_up:
                    raise StoreLocked(
                        "another process has been signing for too long",
                        str(self.path),
                        "end that process, or try again",
                    )
                time.sleep(_LOCK_PAUSE_S)
            yield Held(self, handle)

    def read(self) -> "Noted | Damaged | None":
        """What the file says, without its lock."""
        handle = self._open(create=False)
        if handle is None:
            return None
        with handle:
            return _read(handle)

    def _open(self, *, create: bool) -> PayloadHandle | None:
        if self.path is None:
            return None
        try:
            return self._open_or_make(self.path) if create else self._open_to_read(self.path)
        except OSError as error:
            self.fail(error.strerror or str(error))
            return None

    def _open_to_read(self, path: Path) -> PayloadHandle | None:
        try:
            return self.system.open_file(path, write=False)
        except FileNotFoundError:
            return None

    def _open_or_make(self, path: Path) -> PayloadHandle:
        try:
            return self.system.open_file(path)
        except FileNotFoundError:
            self.system.make_private_folder(path.parent)
            return self.system.open_file(path, create=True)
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise
            # It can still say that a store is behind it.
            return self.system.open_file(path, write=False)

    def fail(self, reason: str) -> None:
        """There is no witness, or none that can be written to: said once."""
        if self.problem is None:
            self.problem = f"{self.path or 'the state directory'}: {reason}"
            # Not at the top: it cannot be imported where the clock is beyond the year 2262.
            import logging

            logging.getLogger(__name__).warning(
                "a restored copy of this store may go unnoticed: what is signed cannot be"
                " remembered outside of it (%s); set BAMBOO_PEER_STATE to a directory that can be"
                " written",
                self.problem,
            )


class Held:
    """The file while its lock is held."""

    def __init__(self, witness: Witness, handle: PayloadHandle | None) -> None:
        self._witness = witness
        self._handle = handle

    def read(self) -> "Noted | Damaged | None":
        """What the file says; None if there is none."""
        return None if self._handle is None else _read(self._handle)

    def reserve(self, found: Noted, count: int) -> Noted:
        """Makes sure that `count` more entries may be signed: synced if it has to be written.

        Raises OSError if the disk fails; that it is full or must not be written to stops nobody.
        """
        if found.signed + count <= found.reserved and found.boot == self._witness.boot:
            return found
        reserved = replace(found, reserved=found.signed + count + RESERVED_ENTRIES)
        try:
            self._write(reserved, sync=True)
        except OSError as error:
            if is_full(error) or error.errno in READ_ONLY:
                self._witness.fail(error.strerror or str(error))
                return found
            # Others see what may not be on the disk, and would not sync it again.
            with suppress(OSError):
                self._write(replace(found, reserved=found.signed), sync=False)
            raise
        return reserved

    def replace(self, found: Noted) -> None:
        """Begins anew, synced, if there can be a witness at all. Raises OSError."""
        self._write(found, sync=True)

    def write(self, found: Noted, *, sync: bool) -> None:
        """Replaces what the file says; what fails is told once and stops nobody."""
        try:
            self._write(found, sync=sync)
        except OSError as error:
            self._witness.fail(error.strerror or str(error))

    def _write(self, found: Noted, *, sync: bool) -> None:
        if self._handle is None:
            return
        witness = self._witness
        found = replace(found, boot=witness.boot, written_at=witness.system.now_us())
        data = found.pack()
        if self._handle.size() == 0 and witness.path is not None:
            # Before there is anything in it: were the name synced last and that failed, nobody
            # would do it again, and a power cut would take all that the file says.
            witness.system.sync_folder(witness.path.parent)
        if self._handle.write(data, 0) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if sync:
            self._handle.sync()


def _read(handle: PayloadHandle) -> "Noted | Damaged | None":
    try:
        data = handle.read(_RECORD_BYTES + 1, 0)
    except OSError:
        return Damaged()
    if not data.strip(b"\0"):
        # Made and not written to when the power went: nothing was signed relying on it.
        return None
    return Noted.unpack(data) or Damaged()
