"""Reading a stream in a program: any replica of its log (5.1)."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

import trio

from gateways import LogHost
from gateways.datastream.codec import Entry, Header, decode_entries
from logstore import PayloadUnavailable, Store
from peer.api import Peer
from wire import LogKey

from .errors import StreamError
from .feed import Feed, WentBack


class DataStream:
    """A stream of a replica. Methods see what the store holds when they are called.

    All raise NotAStream while the log declares no stream, and StoreError.
    """

    def __init__(self, peer_or_store: Peer | Store, log: LogKey) -> None:
        self._feed = Feed(LogHost(peer_or_store), log)
        self.log = log

    def close(self) -> None:
        """Closes the index; a second time does nothing."""
        self._feed.close()

    async def header(self) -> Header:
        """What clients are told of the stream."""
        state = await self._feed.refresh()
        await self._feed.host.call(self._feed.log.declared)
        return state.header

    async def entry(self, number: int) -> Entry | None:
        """One entry, None if it is not there."""
        await self.header()
        return await self._feed.host.call(partial(self._feed.log.entry, number))

    async def bookmark(self, bookmark: bytes) -> Entry | None:
        """The entry of a bookmark, the last one if there are several, None if it is unknown."""
        await self.header()
        number = await self._feed.host.call(partial(self._feed.log.bookmark, bookmark))
        return None if number is None else await self.entry(number)

    async def first_event_after(self, bookmark: bytes) -> Entry | None:
        """The first entry behind a bookmark that is none; None if the bookmark is unknown.

        If none follows, the last entry of the stream, as the server's Bookmark says it.
        """
        found = await self.bookmark(bookmark)
        if found is None:
            return None
        return await self._feed.host.call(partial(self._feed.log.event_at, found.number))

    async def data_between(self, first: bytes, second: bytes) -> bytes:
        """The data of the events from one bookmark up to another, which is not included.

        Raises StreamError if one of them is unknown, or the second stands before the first.
        """
        start, end = await self.bookmark(first), await self.bookmark(second)
        for mark, found in ((first, start), (second, end)):
            if found is None:
                raise StreamError("an unknown bookmark", mark.hex(), "name one that is there")
        assert start is not None
        assert end is not None
        if end.number < start.number:
            raise StreamError(
                "the second bookmark stands before the first", str(self.log), "swap them"
            )
        parts: list[bytes] = []
        async with aclosing(self.entries(start.number)) as entries:
            async for entry in entries:
                if entry.number >= end.number:
                    break
                if not entry.is_bookmark:
                    parts.append(entry.data)
        return b"".join(parts)

    async def entries(self, start: int = 0, *, live: bool = False) -> AsyncGenerator[Entry, None]:
        """Entries from `start` on; with `live` without end.

        Raises StreamError if the stream goes back behind what was given out, or what comes next was
        deleted here.
        """
        state = await self._feed.refresh()
        await self._feed.host.call(self._feed.log.declared)
        cuts, number = state.cuts, start
        while True:
            try:
                cuts = self._feed.check(cuts, number)
                piece = await self._feed.host.call(partial(self._feed.log.piece, number))
            except WentBack as error:
                raise StreamError(str(error), str(self.log), "read it again") from None
            except PayloadUnavailable as error:
                raise StreamError(error.what, error.where, "fetch it") from None
            if piece is not None and piece.cuts == cuts:
                for entry in decode_entries(piece.data):
                    yield entry
                number = piece.end
                continue
            if piece is None and not live:
                return
            before = await self._feed.refresh()
            while piece is None and before.total_entries <= number and before.cuts == cuts:
                await trio.sleep(0.02)
                before = await self._feed.refresh()
