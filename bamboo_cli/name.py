"""`name`: what logs and authors are called here. Nobody else is told."""

from typing import TYPE_CHECKING

from local_api import full
from peer import log_fields
from wire import LogKey

from .errors import DONE, WrongUsage
from .naming import resolved
from .opening import opened_store
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from logstore import Named

    from .terminal import Terminal


def _arguments(parser: Parser) -> None:
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        help="a log, or an author; what is called so already is called NAME from now on",
    )
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="1 to 64 of A-Z a-z 0-9 . _ -, unique in the store"
    )
    parser.add_argument(
        "--remove", metavar="NAME", own_variable=True, help="nothing is called so any more"
    )


def _name(args: "Namespace", terminal: "Terminal") -> int:
    given = sum(each is not None for each in (args.target, args.name))
    if args.remove is not None and not given:
        return _remove(args, terminal)
    if args.remove is not None or given == 1:
        raise WrongUsage("name: it takes TARGET and NAME, or --remove NAME, or nothing to list")
    if not given:
        return _list(args, terminal)
    with opened_store(args) as store:
        target = resolved(store, args.target)
        if args.target != full(target):
            terminal.note(f"{args.target} is {full(target)}")
        try:
            store.set_name(args.name, target)
        except ValueError as error:
            raise WrongUsage(str(error)) from None
    return DONE


def _remove(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args) as store:
        target = store.remove_name(args.remove)
    terminal.note(f"{args.remove} was {full(target)}")
    return DONE


def _list(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args, readonly=True) as store:
        names = store.names()
    if terminal.as_json:
        for name, target in names.items():
            terminal.record(_fields(target) | {"name": name})
    else:
        terminal.table(("NAME", "WHAT"), [(name, full(target)) for name, target in names.items()])
    return DONE


def _fields(target: "Named") -> dict[str, object]:
    if isinstance(target, LogKey):
        return log_fields(target)
    return {"author": target.hex(), "log_id": None}


COMMANDS = {"name": Definition(arguments=_arguments, run=_name)}
