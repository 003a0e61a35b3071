"""Asks a peer for the newest entry that it holds of some logs, and moves nothing.

A one-time sync begins by asking that (point2point.md 10). Here it wants nothing and serves nothing,
so that the answers are all that comes of it.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import trio

from bymux import Role
from peer import (
    Interests,
    InterestsChanged,
    NewestLearned,
    Notice,
    RequestCancelled,
    Session,
    SessionConfig,
    SyncFinished,
)
from peer.node.doors.admission import ProvedStream
from peer.node.host.store_host import StoreHost
from peer.node.links.connection import Connection, EndKind, close_stream
from peer.node.links.dialling import CannotConnectError
from wire import LogKey

WANTS_NOTHING: Final = Interests(serve_held=False)


async def newest_held_by(
    stream: trio.abc.Stream,
    name: str,
    logs: Iterable[LogKey],
    host: StoreHost,
    config: SessionConfig | None = None,
    *,
    interests: Interests = WANTS_NOTHING,
    heard: Callable[[], object] = lambda: None,
) -> dict[LogKey, int]:
    """The newest entry of each log that the other end of a stream holds and gives out, if any.

    `interests`: with the scope of the other side. To ask of a log is to say that there is one, so
    that nobody is asked of what he may not read. `heard` is called for each answer, of however many
    logs more are to come. Closes the stream. Raises CannotConnectError if the connection ends
    before all is said, and if the other side may read none of the logs.
    """
    wanted = sorted(set(logs))
    offers = tuple(filter(interests.may_give, wanted))
    if wanted and not offers:
        await close_stream(stream)
        raise CannotConnectError(f"{name}: it may not read what it would be asked", EndKind.DENIED)
    open_questions = set(offers)
    found: dict[LogKey, int] = {}

    def take(notices: Iterable[Notice], _: float) -> None:
        for notice in notices:
            if isinstance(notice, NewestLearned):
                found[notice.log] = max(notice.newest, found.get(notice.log, 0))
                open_questions.discard(notice.log)
            elif isinstance(notice, RequestCancelled) and not notice.by_us:
                open_questions.discard(notice.log)
            if isinstance(notice, NewestLearned | RequestCancelled):
                heard()
            if isinstance(notice, SyncFinished) or not open_questions:
                open_questions.clear()
                connection.close()

    session_config = replace(config or SessionConfig(), policy="sync")
    connection = Connection(
        Session(Role.PROACTIVE, session_config, trio.current_time()),
        stream,
        host,
        source=name,
        interests=InterestsChanged(interests, offers),
        noticed=take,
        peer_id=stream.peer_id if isinstance(stream, ProvedStream) else None,
    )
    ending = await connection.run()
    if open_questions or (not offers and ending.kind is not EndKind.CLOSED):
        raise CannotConnectError(f"{name}: {ending.reason}")
    return found
