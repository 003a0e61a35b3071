"""Tables of results, written by the driver: what it tells of is what the jobs gave it.

Workers write beside themselves, so a table that they wrote is whole only where OUT is a disk that
all of them share, and an audit that looked there would miss what was found elsewhere.
"""

import errno
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .layout import TEMPORARY, disk_errors

if TYPE_CHECKING:
    import pyarrow as pa

_FILE: Final = "part-00000.zstd.parquet"


def write_table(table: "pa.Table", folder: Path) -> None:
    """Makes `folder` a Parquet data set of these rows; what was there is gone.

    Raises ExportFailed where the disk does not take it.
    """
    import pyarrow.parquet as pq

    temporary = folder.with_name(f".{folder.name}{TEMPORARY}")
    with disk_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is a file", str(folder))
        remove_table(temporary)
        temporary.mkdir(parents=True)
        pq.write_table(table, temporary / _FILE, compression="zstd")
        remove_table(folder)
        temporary.rename(folder)


def remove_table(folder: Path) -> None:
    """Removes a table of an earlier run, if there is one. Raises OSError."""
    if folder.exists():
        shutil.rmtree(folder)
