"""Signals that end a command while it waits, without an exception in the middle of anything.

Python raises KeyboardInterrupt wherever it happens to be. In a destructor, or in a callback of a
library, it is printed or dropped there: a `fetch` that was interrupted while it wrote to the store
waited on as if nothing had been said. So a command that waits in a loop of its own has signals
noted, and asks.

A program takes a tenth of a second to be loaded, and a store may take longer to be opened. Whoever
sends SIGHUP in that time to a node that is being started would end it, or would not be heard. So
`IDLE_SIGNALS` are held from the first line of the program on (`held_signals`) and come in once it
is known what they do (`let_signals_in`). What is before that first line is the interpreter's.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

IDLE_SIGNALS: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""What would kill a program that has not said otherwise, and is no wish that it should end."""


@contextmanager
def held_signals() -> Iterator[None]:
    """Inside the block `IDLE_SIGNALS` have to wait, until `let_signals_in`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, IDLE_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_signals_in() -> None:
    """Lets `IDLE_SIGNALS` do what they do by now, those that have waited at once.

    Before any thread or process is started, which would inherit that they wait.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IDLE_SIGNALS)


@contextmanager
def idle_signals() -> Iterator[None]:
    """Inside the block `IDLE_SIGNALS` do nothing, unless somebody waits for them.

    A handler and not SIG_IGN, which programs that are started from here would inherit.
    """
    try:
        before = {number: signal.signal(number, _do_nothing) for number in IDLE_SIGNALS}
    except ValueError:  # not in the main thread, which alone hears of signals
        yield
        return
    try:
        yield
    finally:
        # What came to a start that failed is not to change how it ends.
        let_signals_in()
        for number, handler in before.items():
            signal.signal(number, handler)


def _do_nothing(*_: object) -> None:
    """What a signal does that nobody waits for."""


@contextmanager
def noted_signals() -> Iterator[Callable[[], None]]:
    """Yields what raises KeyboardInterrupt once SIGINT or SIGTERM has come; a second one does so
    at once. Behind the block it is raised too, if it has not been."""
    told: list[int] = []

    def note(number: int, _: object) -> None:
        if told:
            raise KeyboardInterrupt
        told.append(number)

    def check() -> None:
        if told:
            raise KeyboardInterrupt

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, which alone hears of signals
        yield check
        return
    try:
        yield check
        check()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
