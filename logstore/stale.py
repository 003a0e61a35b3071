"""Parts of payloads that nobody goes on with: they are given up after a while (doors.md 4).

A part is worth keeping for whoever resumes it, and it counts against quotas with the size that the
whole is to have. So it goes away once its file was not written to for so long. The file's own time
says that, which every write changes and no copy of a row could get wrong; a clock that jumps makes
at worst that a part is fetched again.

Whoever is at it just now holds its lock, and keeps it, however long nothing has come.
"""

from typing import TYPE_CHECKING, Final

from .errors import translated
from .files import PayloadFiles, set_file_state
from .schema import FILE_GARBAGE, FILE_PARTIAL, FILE_WHOLE

if TYPE_CHECKING:
    from .opening import Opened

_STATES: Final = (FILE_PARTIAL, FILE_WHOLE)


def drop_stale(opened: "Opened", files: PayloadFiles, age_s: float) -> int:
    """Removes parts that were not written to for `age_s` seconds; returns how many."""
    with opened.database.read() as db:
        rows = list(
            db.execute("SELECT id FROM files WHERE state <> 3 AND state IN (?, ?)", _STATES)
        )
    before_us = opened.system.now_us() - int(age_s * 1_000_000)
    dropped = 0
    for (id_,) in rows:
        with translated(opened.database.where):
            modified_us = opened.system.modified_us(files.path_of(id_))
        if modified_us is not None and modified_us >= before_us:
            continue
        # A row that never got its file gets one here, and with it a time to count from.
        claimed = files.claim(id_, _STATES)
        if claimed is None:
            continue
        with claimed.handle:
            if modified_us is not None:
                with opened.database.write() as transaction:
                    dropped += set_file_state(transaction.db, id_, FILE_GARBAGE)
    if dropped:
        files.tidy()
    return dropped
