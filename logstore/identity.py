"""Whether this store is where it was and as new as it was (bamboo.md One's own logs).

Signing a number twice forks a log for ever, and the usual ways to it are a store that was copied to
another machine, a backup that was put back, and a tail that was lost. So the database remembers the
machine, and the inodes of its folder and of itself; and the file `authored` beside it remembers how
many entries were ever signed here. If the first differ or the second says more than the database,
own logs are read-only until `Store.confirm_identity`.

`authored` is 8 bytes of count and the same 8 bytes inverted. It is written after each commit and
never synced: an old or torn one proves nothing and stops nobody, a newer one than the database is
proof that entries are gone.
"""

import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final

from .database import DATABASE
from .errors import OwnLogsReadOnly
from .rows import pack_u64, unpack_u64
from .system import System

WITNESS: Final = "authored"
RESTORED: Final = "restored"
"""The row of `meta` that a backup carries, and a store whose key was in use before."""
BACKUP: Final = b"\x01"
IMPORTED: Final = b"\x02"
"""Which of the two."""
IDENTITY: Final = "identity"
_INVERSE: Final = 2**64 - 1


def place_of(folder: Path, system: System) -> bytes:
    """What the database remembers of the place: machine, inode of the folder, its own inode."""
    # A machine's name for itself is nobody's business, so only a hash of it is kept.
    machine = blake2b(system.machine_id(), digest_size=16, person=b"bamboo-store").digest()
    inodes = (system.inode(folder), system.inode(folder / DATABASE))
    return machine + b"".join(pack_u64(inode) for inode in inodes)


def write_witness(folder: Path, authored: int) -> None:
    """Notes how many entries were signed. Not synced; a failure weakens a check, nothing else."""
    try:
        fd = os.open(folder / WITNESS, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return
    try:
        os.pwrite(fd, pack_u64(authored) + pack_u64(_INVERSE - authored), 0)
    except OSError:
        return
    finally:
        os.close(fd)


def read_witness(folder: Path) -> int:
    """The count in the witness; 0 if there is none or it is torn."""
    try:
        data = (folder / WITNESS).read_bytes()
    except OSError:
        return 0
    count = unpack_u64(data[:8])
    return count if data[8:] == pack_u64(_INVERSE - count) else 0


def why_read_only(
    folder: Path, system: System, meta: Mapping[str, bytes], signed: int, authored: int
) -> OwnLogsReadOnly | None:
    """The reason why own logs must not be appended to, None if they may.

    `signed` is the witness's count and has to be read before `authored`, the database's: another
    process may be appending.
    """
    remedy = (
        "sync with the peers that follow your logs, then confirm the store's identity"
        " (`key confirm`); never do it for a copy while the other one is in use"
    )
    where = f"{folder} (own logs are read-only)"
    if meta.get(RESTORED) == IMPORTED:
        return OwnLogsReadOnly("the store's key was imported", where, remedy)
    if RESTORED in meta:
        return OwnLogsReadOnly("the store is a backup", where, remedy)
    then, now = meta.get(IDENTITY, b""), place_of(folder, system)
    if then[:16] != now[:16]:
        return OwnLogsReadOnly("the store comes from another machine", where, remedy)
    if then[16:] != now[16:]:
        return OwnLogsReadOnly("the store was copied or restored", where, remedy)
    if signed > authored:
        return OwnLogsReadOnly(
            f"the database knows {authored} own entries of {signed} that were signed here",
            where,
            remedy,
        )
    return None
