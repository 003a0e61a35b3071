"""What commands that serve a gateway have in common: they end by a signal, and print events."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from .errors import Problem
from .online import run_trio
from .terminal import OutputClosed

if TYPE_CHECKING:
    from .terminal import Terminal


def run_serving(main: Callable[[], Awaitable[None]]) -> None:
    """`run_trio` of what listens. Raises Problem where that cannot be."""
    from peer.node import CannotListenError

    try:
        run_trio(main)
    except CannotListenError as error:
        text = f"{error}; --listen names another address, port 0 a free port"
        raise Problem(text) from None


@asynccontextmanager
async def until_signal() -> AsyncIterator[Any]:
    """The block is cancelled by SIGINT and SIGTERM, and by the scope that it is given."""
    import signal

    import trio

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(wait)
            yield nursery.cancel_scope
            nursery.cancel_scope.cancel()


class Events:
    """Prints events: all of them for scripts, what `describe` makes of them for people."""

    def __init__(
        self,
        terminal: "Terminal",
        scope: Any,  # noqa: ANN401 - of Trio
        describe: Callable[[Mapping[str, object]], str | None],
    ) -> None:
        self._terminal = terminal
        self._scope = scope
        self._describe = describe
        self.failure: OutputClosed | Problem | None = None

    def take(self, event: Mapping[str, object]) -> None:
        if self.failure is not None:
            return
        try:
            if self._terminal.as_json:
                self._terminal.record(event)
            elif (text := self._describe(event)) is not None:
                self._terminal.line(text)
            self._terminal.flush()
        except (OutputClosed, Problem) as failure:
            self.failure = failure
            self._scope.cancel()
