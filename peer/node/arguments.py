"""What a program hands to a peer, looked at before anything is done with it."""

from typing import Final

import trio

from logstore import ALL, Follow
from peer.node.links.addresses import Address, PeerAddress
from wire import U64_MAX, LogKey

AUTHOR_BYTES: Final = 32


def address_in(address: str | Address) -> Address:
    """Raises ValueError, also for what was put together by hand and is no address; TypeError."""
    if not isinstance(address, str | Address):
        raise TypeError(f"an address is text or an Address, not {address!r:.60}")
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


def check_target(target: Follow) -> None:
    """Raises ValueError for what names no log and no author, TypeError; `ALL` is right."""
    if target is ALL:
        return
    if isinstance(target, LogKey):
        check_log_id(target.log_id)
    author = target.author if isinstance(target, LogKey) else target
    if not isinstance(author, bytes):
        raise TypeError(f"a log is a LogKey, an author 32 bytes, not {author!r:.60}")
    if len(author) != AUTHOR_BYTES:
        raise ValueError(f"an author has {AUTHOR_BYTES} bytes, not {len(author)}")


def check_log(log: LogKey) -> None:
    """Raises TypeError for what is no log, such as an author's bytes; ValueError as above."""
    if not isinstance(log, LogKey):
        raise TypeError(f"a log is a LogKey, not {log!r:.60}")
    check_target(log)


def check_log_id(log_id: int) -> None:
    """Raises ValueError."""
    if not 0 <= log_id <= U64_MAX:
        raise ValueError(f"log_id={log_id}: a log id is a number from 0 to 2^64 - 1")


def is_of(log: LogKey, target: LogKey | bytes | None) -> bool:
    """Whether a log is the one named, or this author's; None names all."""
    if isinstance(target, LogKey):
        return log == target
    return target is None or log.author == target


def asked_in(called: PeerAddress | trio.abc.Stream) -> list[str]:
    """Of whom `why` is asked; of a stream of the caller's there is nothing to say."""
    return [] if isinstance(called, trio.abc.Stream) else [str(called)]
