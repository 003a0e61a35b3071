"""Whether what is wanted of a log is held up to an entry."""

from logstore import FULL, LogClosed, LogInfo, PolicyKind, Store, subscription_of
from wire import LogKey


def held_up_to(store: Store, log: LogKey, seq: int) -> LogInfo | None:
    """What is held of a log, once that is all that is wanted of it up to `seq`; None before.

    Payloads do not count. Of a log that is not followed everything counts as wanted. Raises
    LogClosed if there never will be an entry `seq`.
    """
    info = store.log(log)
    if info is None:
        return None
    own = log.author == store.author
    wanted = None if own else subscription_of(store.subscriptions(), log)
    wanted = wanted or FULL
    goal = seq if wanted.last is None else min(seq, wanted.last)
    if goal > info.servable:
        raise LogClosed.behind(info.servable, info.state, log, "wait for what is before that")
    if info.newest < goal:
        return None
    if wanted.kind is PolicyKind.SPARSE:
        return info if store.shortfall(log, wanted).entries == 0 else None
    first = wanted.bounds(info.newest)[0]
    count = max(0, goal - first + 1)
    return info if not count or store.holding(log, first, goal).entries == count else None
