"""The entries of forks, shown as the faults come that tell of them.

Two branches of a log fork at each number of theirs, so there may be as many as rows. A thousand
times a hundred are looked for in the rows at once, which is one job for whoever has a few.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .auditing import show_forks
from .chains import FAULTS_DDL, FORK
from .checks import ENCODED_DDL
from .forks import KnownFork
from .results import TableWriter
from .schema import arrow_of_ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FORKS_AT_ONCE: Final = 100_000


class ForkTable:
    """Writes `Audit.forks` of all forks among the faults that it takes in."""

    def __init__(self, frame: "DataFrame", known: Sequence[KnownFork], writer: TableWriter) -> None:
        self._frame = frame
        self._known = {(each.author, each.log_id, each.seq): each for each in known}
        self._writer = writer
        self._waiting: list[pa.Table] = []
        self._entries = 0
        self._schema = arrow_of_ddl(ENCODED_DDL)
        writer.write(self._schema.empty_table())

    def take(self, faults: "pa.Table") -> None:
        """Takes faults in; each fork has one among all that come."""
        import pyarrow.compute as pc

        forks = faults.filter(pc.equal(faults["kind"], FORK))
        for start in range(0, len(forks), FORKS_AT_ONCE):
            self._waiting.append(forks.slice(start, FORKS_AT_ONCE))
            if sum(map(len, self._waiting)) >= FORKS_AT_ONCE:
                self._show()

    def finish(self) -> int:
        """Writes the rest; how many entries there are in all."""
        self._show()
        return self._entries

    def _show(self) -> None:
        import pyarrow as pa

        if not self._waiting:
            return
        forks = pa.concat_tables(self._waiting)
        self._waiting.clear()
        keys = zip(*(forks[name].to_pylist() for name in ("author", "log_id", "seq")), strict=True)
        # Each has its fault, found in the rows too or not.
        known = [self._known[key] for key in keys if key in self._known]
        rows = self._frame.sparkSession.createDataFrame(forks, FAULTS_DDL)
        entries = show_forks(self._frame, rows, known).toArrow()
        self._writer.write(entries.cast(self._schema))
        self._entries += len(entries)
