"""New logs for gateways: which ids, decided in the transaction that signs their first entries.

The lock under which ids are given out is the store's own, that of its one writer: `expected_seqs`
are compared where entry 1 is signed, so that two gateways, in whatever processes, never take one
id. Where a run of ids may begin is a hint, and whoever is quicker is met by the append.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from logstore import Appended, LogClosed, LogMoved, Store
from wire import U64_MAX, LogKey

ATTEMPTS: Final = 100
"""Places that somebody else has taken meanwhile before it is given up."""

Batches = Sequence[tuple[int, Sequence[bytes]]]
"""A log id, and payloads."""
Declarations = Sequence[bytes] | Callable[[int], Sequence[bytes]]
"""Of some logs; where they name each other, made of the id of the first of them."""


class Sign(Protocol):
    """`Store.append_many`, or `LogHost.sign`, which goes through a peer."""

    def __call__(
        self,
        batches: Batches,
        *,
        expected_seqs: Sequence[int | None] | None = None,
        ending: Collection[int] = (),
    ) -> list[list[Appended]]:
        """Appends to several own logs: all is on disk when it returns, or nothing."""


def create_logs(
    sign: Sign, declarations: Declarations, begins: int | Iterable[int], *, last: int = U64_MAX
) -> list[Appended]:
    """Signs entry 1 of as many own logs as there are declarations, with ids in a row, up to `last`.

    All in one transaction. `begins`: where the run begins, or may begin; of several places the
    first one is taken where none of its logs has an entry. Blocks. Raises LogMoved or LogClosed for
    a place that is the only one, LogClosed if none of several is free, and what `Store.append`
    raises.
    """
    if isinstance(begins, int):
        return _create_at(sign, _made(declarations, begins), begins)
    for first in islice(begins, ATTEMPTS):
        made = _made(declarations, first)
        if first + len(made) - 1 > last:
            break
        try:
            return _create_at(sign, made, first)
        except (LogMoved, LogClosed):
            continue
    raise LogClosed("no run of log ids is free", f"up to {last}", "choose where it begins")


def _made(declarations: Declarations, first: int) -> Sequence[bytes]:
    return declarations(first) if callable(declarations) else declarations


def _create_at(sign: Sign, declarations: Sequence[bytes], first: int) -> list[Appended]:
    batches = [(id_, [each]) for id_, each in enumerate(declarations, first)]
    return [entries[0] for entries in sign(batches, expected_seqs=[1] * len(batches))]


def free_runs(store: Store, count: int, first: int = 0) -> Iterator[int]:
    """Where so many ids in a row are free, from `first` on, as far as is known now."""
    begin, length = first, 0
    for id_ in free_ids(store, first):
        if id_ != begin + length:
            begin, length = id_, 0
        length += 1
        if length == count:
            yield begin
            begin, length = begin + 1, length - 1


def free_ids(store: Store, first: int = 0) -> Iterator[int]:
    """The ids from `first` on of which nothing of this author's is held, as far as is known now."""
    for id_ in range(first, U64_MAX + 1):
        if store.log(LogKey(store.author, id_)) is None:
            yield id_
