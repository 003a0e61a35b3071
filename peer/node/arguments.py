"""What a program hands to a peer, looked at before anything is done with it.

How a wrong argument is told, and whatever a store is handed as well, is in `logstore`
(arguments.py); here is what only a peer takes.
"""

import trio

from logstore import (
    ALL,
    AnyLog,
    AnyTarget,
    Follow,
    NothingSoCalled,
    Reference,
    Store,
    check_log,
    check_number,
    check_target,
    log_of,
    wrong_type,
)
from peer.node.links.addresses import Address, PeerAddress
from wire import U64_MAX, LogKey


def address_in(address: str | Address) -> Address:
    """Raises ValueError, also for what was put together by hand and is no address; TypeError."""
    if not isinstance(address, str | Address):
        raise wrong_type("address", address, "an address is text or an Address")
    return Address.parse(str(address), unix=True)


def target_of(target: str | Address | PeerAddress) -> PeerAddress:
    """Raises as `address_in` does."""
    if isinstance(target, PeerAddress):
        return PeerAddress.parse(target.written)
    if isinstance(target, str):
        return PeerAddress.parse(target)
    return PeerAddress.parse(str(address_in(target)))


def called_in(
    target: str | Address | PeerAddress | trio.abc.Stream,
) -> PeerAddress | trio.abc.Stream:
    """Raises as `address_in` does."""
    return target if isinstance(target, trio.abc.Stream) else target_of(target)


async def log_in(store: Store, log: AnyLog, name: str = "log") -> LogKey:
    """The log that is meant; text is looked up in the store. Raises as `Store.resolve`, and
    TypeError for what is neither."""
    if isinstance(log, str):
        return log_of(await trio.to_thread.run_sync(store.resolve, log))
    check_log(log, name)
    return log


async def target_in(store: Store, target: AnyTarget) -> Follow:
    """Likewise what is meant where a log, an author (32 bytes) or `ALL` is."""
    if isinstance(target, str):
        return await trio.to_thread.run_sync(store.resolve, target)
    check_target(target)
    return target


async def subject_in(store: Store, subject: AnyLog | Address) -> LogKey | str:
    """Of what `why` is asked: text is a host unless something in the store is called so."""
    if isinstance(subject, Address):
        return str(subject)
    if isinstance(subject, str):
        try:
            Reference.parse(subject)
        except ValueError:
            return subject
        try:
            return await log_in(store, subject)
        except NothingSoCalled:
            return subject
    return await log_in(store, subject, "subject")


def check_store(store: object) -> None:
    """Raises TypeError, for a path above all."""
    if not isinstance(store, Store):
        raise wrong_type("store", store, "a Peer serves a Store: Store.open(path), say")


def check_timeout(timeout_s: object, name: str = "timeout_s") -> None:
    """Raises TypeError, ValueError for what is no time; None is no limit."""
    if timeout_s is None:
        return
    wanted = "a time limit is a number of seconds from 0 on"
    if not isinstance(timeout_s, int | float) or isinstance(timeout_s, bool):
        raise wrong_type(name, timeout_s, wanted)
    if not timeout_s >= 0:
        raise ValueError(f"{name}={timeout_s}: {wanted}")


def check_seq(seq: object) -> None:
    """Raises TypeError, ValueError for what is no number of an entry."""
    wanted = "they have numbers from 1 to 2^64 - 1"
    check_number("seq", seq, wanted)
    if not (isinstance(seq, int) and 1 <= seq <= U64_MAX):
        raise ValueError(f"seq={seq} is no entry: {wanted}")


def is_of(log: LogKey, target: Follow | None) -> bool:
    """Whether a log is the one named, or this author's; None and `ALL` name all."""
    if isinstance(target, LogKey):
        return log == target
    return target is None or target is ALL or log.author == target


def asked_in(called: PeerAddress | trio.abc.Stream) -> list[str]:
    """Of whom `why` is asked; of a stream of the caller's there is nothing to say."""
    return [] if isinstance(called, trio.abc.Stream) else [str(called)]
