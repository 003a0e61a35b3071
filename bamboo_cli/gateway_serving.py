"""What commands that serve a gateway have in common: they end by a signal, and print events."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from .errors import Problem
from .online import allow_open_files, collect_seldom, run_trio
from .terminal import OutputClosed

if TYPE_CHECKING:
    from .terminal import Terminal


def run_serving(main: Callable[[], Awaitable[None]]) -> None:
    """`run_trio` of what listens. Raises Problem where that cannot be."""
    from peer.node import CannotListenError

    collect_seldom()
    # As many clients as a gateway takes are above what processes are usually allowed to open.
    allow_open_files()
    try:
        run_trio(main)
    except CannotListenError as error:
        text = f"{error}; --listen names another address, port 0 a free port"
        raise Problem(text) from None


class Events:
    """Prints events: all of them for scripts, what `describe` makes of them for people.

    Output that nobody takes cancels `scope`, and is raised at the end (`until_signal`).
    """

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


@asynccontextmanager
async def until_signal(
    terminal: "Terminal", describe: Callable[[Mapping[str, object]], str | None]
) -> AsyncIterator[Events]:
    """The block is cancelled by SIGINT and SIGTERM, or when its events cannot be printed.

    Raises then what was in the way of that: OutputClosed, Problem.
    """
    import signal

    import trio

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(wait)
            events = Events(terminal, nursery.cancel_scope, describe)
            yield events
            nursery.cancel_scope.cancel()
    if events.failure is not None:
        raise events.failure


def warn_beyond_loopback(listening: Any, terminal: "Terminal", who: str) -> None:  # noqa: ANN401
    """Of an address that others can reach; `who` can do what there."""
    if not listening.is_loopback:
        terminal.note(
            f"warning: listening on {listening}: nothing is encrypted, and nobody has to prove who"
            f" they are: everybody who can reach this address can {who}"
        )
