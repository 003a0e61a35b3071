"""New logs for gateways: which ids, decided in the transaction that signs their first entries.

The lock under which ids are given out is the store's own, that of its one writer: `expected_seqs`
are compared where entry 1 is signed, so that two gateways, in whatever processes, never take one
id. Where a run of ids may begin is a hint, and whoever is quicker is met by the append.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from logstore import Appended, LogClosed, LogMoved, Store
from wire import U64_MAX, LogKey

ATTEMPTS: Final = 100
"""Places that somebody else has taken meanwhile before it is given up."""

Batches = Sequence[tuple[int, Sequence[bytes]]]
"""A log id, and payloads."""


class Sign(Protocol):
    """`Store.append_many`, or `LogHost.append_many`, which goes through a peer."""

    def __call__(
        self,
        batches: Batches,
        *,
        expected_seqs: Sequence[int | None] | None = None,
        ending: Collection[int] = (),
    ) -> list[list[Appended]]:
        """Appends to several own logs: all is on disk when it returns, or nothing."""


def create_logs(
    sign: Sign, declarations: Sequence[bytes], begins: Iterable[int], *, last: int = U64_MAX
) -> list[Appended]:
    """Signs entry 1 of as many own logs as there are declarations, with ids in a row, up to `last`.

    `begins`: where the run may begin; the first place where all its logs have no entry is taken,
    in one transaction. Blocks. Raises LogClosed if there is none, and what `Store.append` raises.
    """
    for first in islice(begins, ATTEMPTS):
        ids = range(first, first + len(declarations))
        if ids[-1] > last:
            break
        batches = [(id_, [each]) for id_, each in zip(ids, declarations, strict=True)]
        try:
            return [entries[0] for entries in sign(batches, expected_seqs=[1] * len(batches))]
        except (LogMoved, LogClosed):
            continue
    raise LogClosed("no run of log ids is free", f"up to {last}", "choose where it begins")


def free_ids(store: Store, first: int = 0) -> Iterator[int]:
    """The ids from `first` on of which nothing of this author's is held, as far as is known now."""
    for id_ in range(first, U64_MAX + 1):
        if store.log(LogKey(store.author, id_)) is None:
            yield id_
