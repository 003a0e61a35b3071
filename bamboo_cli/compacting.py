"""`compact`: what was deleted goes back to the disk."""

import time
from typing import TYPE_CHECKING

from local_api import size
from logstore import CompactProgress
from peer import json_number

from .errors import DONE
from .opening import opened_store
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

_PROGRESS_EVERY_S = 1.0


def _no_arguments(_: Parser) -> None:
    """It takes none."""


class _ProgressLines:
    """Says now and then how far it is, if somebody looks or asked for it."""

    def __init__(self, terminal: "Terminal") -> None:
        self._terminal = terminal
        self._said = time.monotonic()

    def __call__(self, progress: CompactProgress) -> None:
        now = time.monotonic()
        if not self._terminal.shows_progress or (
            now - self._said < _PROGRESS_EVERY_S and not progress.is_anew
        ):
            return
        self._said = now
        total = size(progress.bytes_total)
        self._terminal.note(
            f"{total} are written anew, for which everybody else waits"
            if progress.is_anew
            else f"{size(progress.bytes_done)} of {total} given back"
        )


def _compact(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args) as store:
        done = store.compact(_ProgressLines(terminal))
    freed = done.bytes_before - done.bytes_after
    terminal.result(
        {
            "bytes_before": json_number(done.bytes_before),
            "bytes_after": json_number(done.bytes_after),
            "bytes_freed": json_number(freed),
        },
        f"{size(done.bytes_before)} before, {size(done.bytes_after)} now",
    )
    if done.bytes_left:
        terminal.note(
            f"{size(done.bytes_left)} more are spread over pages that are half empty: run it again"
            " while no node serves the store, with room for a copy of it"
        )
    return DONE


COMMANDS = {"compact": Definition(arguments=_no_arguments, run=_compact)}
