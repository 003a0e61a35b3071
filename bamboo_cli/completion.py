"""`completion`: what a shell completes, from the same parsers that read the commands.

The script is complete by itself: nothing is asked of the program while somebody types, which would
take a third of a second at each TAB. What only a store knows, names and logs, is not completed.
"""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .errors import DONE, WrongUsage
from .registry import COMMANDS as TABLE
from .registry import Command, Definition
from .settings import PROGRAM, Parser, common_arguments

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

SHELLS = ("bash", "zsh")
_FILES = frozenset(("FILE", "PATH"))
_FOLDERS = frozenset(("DIR", "OUT", "LAKE"))


def _arguments(parser: Parser) -> None:
    parser.add_argument("shell", metavar="bash|zsh", help="for which shell")


def _completion(args: "Namespace", terminal: "Terminal") -> int:
    import shtab

    terminal.refuse_json("completion")
    if args.shell not in SHELLS:
        raise WrongUsage(f"completion: {args.shell!r} is none of {' and '.join(SHELLS)}")
    terminal.data(shtab.complete(whole_parser(), shell=args.shell).encode())
    return DONE


def whole_parser() -> ArgumentParser:
    """One parser of all commands and their verbs, for what describes them all."""
    whole = ArgumentParser(prog=PROGRAM, description="Keeps and replicates signed logs.")
    whole.add_argument("--version", action="store_true", help="print the versions, and end")
    commands = {name: (command.summary, _of(command)) for name, command in TABLE.items()}
    _with_subparsers(whole, commands, title="commands", metavar="COMMAND")
    return whole


def _of(command: Command) -> ArgumentParser:
    loaded = command.load()
    if isinstance(loaded, Definition):
        return _parser(command, loaded)
    several = Parser(command.name, command.summary)
    definitions = {verb: loaded.definition(verb) for verb in loaded}
    verbs = {verb: (each.summary, _parser(command, each)) for verb, each in definitions.items()}
    _with_subparsers(several, verbs, title="verbs", metavar="VERB")
    return several


def _with_subparsers(
    parser: ArgumentParser,
    ready: Mapping[str, tuple[str, ArgumentParser]],
    *,
    title: str,
    metavar: str,
) -> None:
    """Adds parsers that are made already: those that read the commands, and no copies of them."""
    waiting = [made for _, made in ready.values()]
    subparsers = parser.add_subparsers(  # type: ignore[call-overload]
        title=title, metavar=metavar, parser_class=lambda **_: waiting.pop(0)
    )
    for name, (summary, _) in ready.items():
        subparsers.add_parser(name, help=summary)


def _parser(command: Command, definition: Definition) -> Parser:
    import shtab

    summary = definition.summary or command.summary
    parser = Parser(command.name, summary, verb=definition.verb, takes=definition.takes)
    common_arguments(parser)
    definition.arguments(parser)
    for action in parser._actions:  # noqa: SLF001 - as shtab itself, which has no other way
        metavar = str(action.metavar)
        if metavar in _FILES:
            setattr(action, "complete", shtab.FILE)  # noqa: B010 - shtab's mark
        elif metavar in _FOLDERS:
            setattr(action, "complete", shtab.DIRECTORY)  # noqa: B010 - likewise
    return parser


COMMANDS: dict[str, Definition] = {"completion": Definition(arguments=_arguments, run=_completion)}
