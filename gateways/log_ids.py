"""New logs for gateways: which id, decided in the transaction that signs the first entry.

The lock under which ids are given out is the store's own, that of its one writer: `expected_seq=1`
is compared where entry 1 is signed, so that two gateways, in whatever processes, never take one id.
"""

from logstore import Appended, LogClosed, LogMoved, Store
from wire import U64_MAX, LogKey


def create_log(
    store: Store, declaration: bytes, *, log_id: int | None = None, first: int = 0
) -> Appended:
    """Signs entry 1 of a log of one's own that has no entries, durable when it returns.

    `log_id`: this one, LogMoved if it has entries. None: the lowest from `first` on of which
    nothing is held. Blocks. Raises what `Store.append` raises.
    """
    if log_id is not None:
        return store.append([declaration], log_id=log_id, expected_seq=1)[0]
    for candidate in range(first, U64_MAX + 1):
        # A hint; whoever is quicker is met by the append.
        if store.log(LogKey(store.author, candidate)) is not None:
            continue
        try:
            return store.append([declaration], log_id=candidate, expected_seq=1)[0]
        except (LogMoved, LogClosed):
            continue
    raise LogClosed("no log id is free", f"from {first} on", "choose one with --log-id")
