"""`compact`: what was deleted goes back to the disk."""

from functools import partial
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


def _no_arguments(_: Parser) -> None:
    """It takes none."""


def _say(progress: CompactProgress, terminal: "Terminal") -> None:
    total = size(progress.bytes_total)
    if progress.is_anew:
        text = f"{total} are written anew, for which everybody else waits"
    else:
        text = f"{size(progress.bytes_done)} of {total} given back"
    terminal.progress(text, at_once=progress.is_anew)


def _compact(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args) as store:
        done = store.compact(partial(_say, terminal=terminal))
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
