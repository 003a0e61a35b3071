"""`key`: the author key moves to another file or comes from one; a restored store is confirmed.

A key that two machines sign with forks its logs, for ever. So nothing here goes without a warning.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from logstore import KeyFileMissing, NotAStore, Store, StoreError, read_key_file, write_key_file
from peer import counted

from .errors import DONE, Problem, WrongUsage
from .opening import KEY_FILE, check_is_free, opened_store
from .registry import Definition
from .settings import Parser, store_path

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from .terminal import Terminal

WARNING = "warning: a key that is used on two machines forks its logs for ever; keep one of them"


IMPORTED = (
    "own logs are read-only for now: if anything was ever signed with this key, `sync` with the"
    " peers that follow its logs; then `key confirm`"
)


def _key_arguments(parser: Parser) -> None:
    parser.add_argument(
        "action",
        metavar="export|import|confirm",
        help="export: write the key to FILE; import: make a store with the key in FILE, or give a "
        "store its lost key back; confirm: append again in a store that was copied or restored",
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", type=Path, help="to export to (a new one) or import from"
    )
    parser.add_argument(
        "--anyway", action="store_true", help="confirm, although own entries are known to be lost"
    )


def _key(args: "Namespace", terminal: "Terminal") -> int:
    match args.action, args.file:
        case "export" | "import", None:
            raise WrongUsage(f"key {args.action}: name a FILE")
        case "export", Path() as file:
            return _export(args, file, terminal)
        case "import", Path() as file:
            return _import(args, file, terminal)
        case "confirm", None:
            return _confirm(args, terminal)
        case "confirm", _:
            raise WrongUsage("key confirm takes no FILE")
        case _:
            raise WrongUsage(f"key: {args.action!r} is none of export, import and confirm")


def _export(args: "Namespace", file: Path, terminal: "Terminal") -> int:
    with opened_store(args, readonly=True) as store:
        key = store.signing_key()
        write_key_file(file, key)
        author = store.author.hex()
    terminal.note(WARNING)
    terminal.result({"author": author, "file": str(file.absolute())}, author)
    return DONE


def _import(args: "Namespace", file: Path, terminal: "Terminal") -> int:
    path = store_path(args)
    try:
        try:
            key = read_key_file(file)
        except KeyFileMissing:
            raise Problem(f"{file}: there is no such file; name what `key export` wrote") from None
        author = bytes(key.verify_key)
        try:
            with Store.open(path, readonly=True) as store:
                if store.author != author:
                    raise Problem(
                        f"{path}: is the store of {store.author.hex()}; name another with --store"
                    )
            write_key_file(path / KEY_FILE, key)
        except NotAStore:
            check_is_free(path)
            Store.create(path, signing_key=key, imported=True).close()
            terminal.note(IMPORTED)
    except StoreError as error:
        raise Problem(str(error)) from error
    terminal.note(WARNING)
    terminal.result({"author": author.hex(), "store": str(path.absolute())}, author.hex())
    return DONE


def _check_lost(store: Store) -> None:
    """Raises Problem if entries that were signed are known to be elsewhere, or gone."""
    from peer.node import serving_state

    remedy = (
        "`sync` with the peers that follow your logs; if what is lost is gone for good, --anyway"
        " confirms, and then append to logs with other ids only, or they fork"
    )
    state = serving_state(store) or {}
    logs: list[Mapping[str, Any]] = state.get("logs", [])  # type: ignore[assignment]
    for each in logs:
        if each.get("author") == store.author.hex() and int(each.get("behind") or 0):
            raise Problem(
                f"log {each.get('log_id')}: peers hold {counted(int(each['behind']), 'entry')} more"
                f" than this store; {remedy}"
            )
    for contested in store.contested():
        raise Problem(
            f"{contested.what}; leave the key to the other machine, and give this one a key of its"
            " own (`init` makes another store); if the key has to stay here too, --anyway lets the"
            " logs with other ids be appended to, and no two machines may append to the same one"
        )
    if lost := store.own_entries_lost:
        raise Problem(
            f"{counted(lost, 'entry')} that this store signed, by its own count, not held; {remedy}"
        )


def _confirm(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args) as store:
        reason = store.own_logs_read_only
        if reason is not None and not args.anyway:
            _check_lost(store)
        store.confirm_identity()
        author = store.author.hex()
    if reason is not None:
        terminal.note(f"confirmed, although {reason.what}; append only here from now on")
    terminal.result({"author": author, "was_read_only": reason is not None}, author)
    return DONE


COMMANDS = {"key": Definition(arguments=_key_arguments, run=_key)}
