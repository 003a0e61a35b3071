"""Tables of results, written by the driver: what it tells of is what the jobs gave it.

Workers write beside themselves, so a table that they wrote is whole only where OUT is a disk that
all of them share, and an audit that looked there would miss what was found elsewhere.
"""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .layout import TEMPORARY, disk_errors

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_FILE: Final = "part-00000.zstd.parquet"


class TableWriter:
    """A table that is being written, part by part."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._temporary = folder.with_name(f".{folder.name}{TEMPORARY}")
        self._writer: pq.ParquetWriter | None = None

    def write(self, part: "pa.Table") -> None:
        """Adds rows; the first part, which may have none, says of which columns.

        Raises ExportFailed where the disk does not take it.
        """
        import pyarrow.parquet as pq

        with disk_errors(self._folder):
            if self._writer is None:
                if self._folder.exists() and not self._folder.is_dir():
                    raise NotADirectoryError(errno.ENOTDIR, "it is a file", str(self._folder))
                remove_table(self._temporary)
                self._temporary.mkdir(parents=True)
                path = self._temporary / _FILE
                self._writer = pq.ParquetWriter(path, part.schema, compression="zstd")
            self._writer.write_table(part)

    def finish(self) -> None:
        """Puts it in the place of an earlier one. Raises ExportFailed."""
        assert self._writer is not None, "a table has at least one part"
        with disk_errors(self._folder):
            self._writer.close()
            remove_table(self._folder)
            self._temporary.rename(self._folder)

    def abandon(self) -> None:
        """Leaves what was there before as it is."""
        if self._writer is not None:
            with disk_errors(self._folder):
                self._writer.close()
                remove_table(self._temporary)


@contextmanager
def table_writer(folder: Path) -> Iterator[TableWriter]:
    """Makes `folder` a Parquet data set of what is written meanwhile; what was there is gone.

    After an exception what was there is still there.
    """
    writer = TableWriter(folder)
    try:
        yield writer
    except BaseException:
        writer.abandon()
        raise
    writer.finish()


def remove_table(folder: Path) -> None:
    """Removes a table of an earlier run, if there is one. Raises OSError."""
    if folder.exists():
        shutil.rmtree(folder)
