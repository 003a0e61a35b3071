"""Opening the store that a command works on."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from local_api import Names
from logstore import (
    ExplainedError,
    LogClosed,
    NotAStore,
    OwnLogsReadOnly,
    Store,
    StoreDamaged,
    StoreError,
)

from .errors import FAILED, FORKED, NO_ANSWER, REFUSED, Problem
from .naming import resolve_arguments
from .settings import store_path

if TYPE_CHECKING:
    from argparse import Namespace

    from logstore import Fault, LogInfo, StoredEntry
    from wire import LogKey

KEY_FILE = "author.key"
"""The author's secret key inside a store."""
_BEGUN = {"payloads", "lost+found"}
"""What may lie where a store is made: one that was begun, or a file system of its own."""
READ_ENTRIES = 256
READ_BYTES = 1 << 20


def check_is_free(path: Path) -> None:
    """Refuses to make a store among other files, as a slip in --store would. Raises Problem."""
    if path.exists() and not path.is_dir():
        raise Problem(f"{path}: is no directory; name another with --store")
    try:
        names = {each.name for each in path.iterdir()} if path.exists() else set()
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}; name another with --store") from None
    others = sorted(name for name in names - _BEGUN if not name.startswith("."))
    if others and not names & {KEY_FILE, "store.sqlite3"}:
        raise Problem(
            f"{path}: is no store, and holds other files ({others[0]}); choose a new directory"
        )


@contextmanager
def opened_store(args: "Namespace", *, readonly: bool = False) -> Iterator[Store]:
    """The store of this command, by which what its arguments name is looked up (naming.py).

    Raises Problem for everything that goes wrong with it.
    """
    path = store_path(args)
    terminal = getattr(args, "terminal", None)
    try:
        with Store.open(path, readonly=readonly) as store:
            if terminal is not None:
                terminal.names = Names(store)
            resolve_arguments(store, args, None if terminal is None else terminal.note)
            yield store
    except NotAStore as error:
        raise Problem(f"{error.what}: {error.where}; `init` makes one, --store names one") from None
    except StoreError as error:
        if isinstance(error, StoreDamaged) and error.fault is not None:
            _note_damage(path, error.fault)
        raise Problem(str(error), status_of(error)) from error


def _note_damage(path: Path, fault: "Fault") -> None:
    """Has `status` know of it; where nothing can be written, it knows no more than before."""
    with suppress(StoreError), Store.open(path) as store:
        store.alarms.note(fault)


def status_of(error: Exception) -> int:
    """The exit status of what the store refuses."""
    if isinstance(error, OwnLogsReadOnly):
        return REFUSED
    if isinstance(error, ExplainedError) and error.is_no_answer:
        return NO_ANSWER
    # What asks for entries behind the end of a log takes care of it by itself: the rest appends.
    return FORKED if isinstance(error, LogClosed) else FAILED


def known_log(store: Store, key: "LogKey") -> "LogInfo":
    """What is held of a log, be it only a proof. Raises Problem if that is nothing."""
    info = store.log(key)
    if info is None:
        raise Problem(f"{key}: nothing is held of this log (`logs` lists what is)")
    return info


def held_log(store: Store, key: "LogKey") -> "LogInfo":
    """What is held of a log. Raises Problem if that is no entry."""
    info = known_log(store, key)
    if not info.entries:
        raise Problem(
            f"{key}: no entry of this log is held, only the proof that it is {info.state}"
        )
    return info


def read_page(store: Store, key: "LogKey", start: int, last: int | None) -> list["StoredEntry"]:
    """The next entries held."""
    return store.read(
        key, start, entries_max=READ_ENTRIES, bytes_max=READ_BYTES, end=last, with_payload=False
    )
