"""From an argument list to an exit status; the one place where errors become lines."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NoReturn

from .errors import DONE, FAILED, INTERRUPTED, WRONG_USAGE, Problem, WrongUsage
from .interrupting import idle_signals, let_signals_in
from .registry import COMMANDS, Command, Definition
from .settings import (
    PROGRAM,
    VALUE_FLAGS,
    HelpWanted,
    Parser,
    check_config_names,
    common_arguments,
    config_flag,
    config_path,
    first_word,
    read_config,
    similar,
)
from .terminal import OutputClosed, Terminal


def dispatch(argv: Sequence[str] | None) -> int:
    """Runs one command and returns the exit status, having printed the reason if it is not 0."""
    _occupy_standard_descriptors()
    terminal = Terminal()
    try:
        try:
            _check_clock()
            status = _run(list(sys.argv[1:] if argv is None else argv), terminal)
        except WrongUsage as error:
            terminal.note(f"{PROGRAM}: {error}")
            status = WRONG_USAGE
        except Problem as error:
            terminal.note(f"{PROGRAM}: {error}")
            status = error.status
        except OSError as error:
            terminal.note(f"{PROGRAM}: {_os_error_line(error)}")
            status = FAILED
        terminal.flush()
    except OutputClosed:
        _discard_standard_output()
        return FAILED
    except KeyboardInterrupt:
        with suppress(OutputClosed, Problem):
            terminal.flush()
        return INTERRUPTED
    except Problem as error:
        terminal.note(f"{PROGRAM}: {error}")
        _discard_standard_output()
        return FAILED
    return status


def _check_clock() -> None:
    """Raises Problem for a clock of which Python's own libraries cannot even be loaded."""
    try:
        time.time()
    except OverflowError:
        raise Problem(
            "the machine's clock is beyond the year 2262, which is as far as Python counts;"
            " set the clock, nothing was done"
        ) from None


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends a command like Ctrl-C does; while Trio runs, `run_trio` sees to that."""
    try:
        before = signal.signal(signal.SIGTERM, _interrupt)
    except ValueError:  # not in the main thread, which alone hears of signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _run(argv: list[str], terminal: Terminal) -> int:
    position = first_word(argv)
    if position is None:
        return _without_command(argv, terminal)
    name = argv.pop(position)
    command = COMMANDS.get(name)
    if command is None:
        hint = similar(name, [*COMMANDS, "--help", "--version"])
        raise WrongUsage(f"there is no command {name!r}{hint} (see `{PROGRAM} --help`)")
    if command.is_asked:
        with idle_signals():
            return _run_to_its_end(command, argv, terminal)
    let_signals_in()
    return _run_to_its_end(command, argv, terminal)


def _run_to_its_end(command: Command, argv: list[str], terminal: Terminal) -> int:
    if command.ended is None:
        return _run_command(command, argv, terminal)
    try:
        with _terminable():
            return _run_command(command, argv, terminal)
    except KeyboardInterrupt:
        return command.ended


def _run_command(command: Command, argv: list[str], terminal: Terminal) -> int:
    loaded = command.load()
    try:
        if isinstance(loaded, Definition):
            definition = loaded
        else:
            # `--help` may be asked of the command or of one of its verbs.
            definition, argv = loaded.pick(argv)
        args = _read_arguments(command, definition, argv)
    except HelpWanted as wanted:
        terminal.data(str(wanted).encode())
        return DONE
    args.terminal = terminal
    terminal.as_json = args.json
    terminal.json_is_asked = "--json" in argv
    terminal.verbose = args.verbose
    return definition.run(args, terminal)


def _read_arguments(
    command: Command, definition: Definition, argv: Sequence[str]
) -> argparse.Namespace:
    """What command line, environment and configuration say now. Raises WrongUsage, HelpWanted.

    `read_again` of the result reads all of them once more, for a command that goes on running.
    """
    summary = definition.summary or command.summary
    parser = Parser(command.name, summary, verb=definition.verb, takes=definition.takes)
    common_arguments(parser)
    definition.arguments(parser)
    _preset(parser, command, definition, argv)
    parser.check_spelling(argv)
    args, left = parser.parse_known_intermixed_args(argv)
    parser.check_all_taken(left)
    args.read_again = partial(_read_arguments, command, definition, argv)
    return args


def _without_command(argv: Sequence[str], terminal: Terminal) -> int:
    if "--version" in argv:
        from .about import print_version

        terminal.as_json = "--json" in argv
        print_version(terminal)
        return DONE
    if "-h" in argv or "--help" in argv:
        terminal.data(_overview().encode())
        return DONE
    known = {"--json", "-v", "--verbose", *VALUE_FLAGS}
    unknown = [text for text in argv if text.startswith("-") and text not in known]
    about = "a command is needed"
    if unknown:
        hint = similar(unknown[0], {*known, "--help", "--version"})
        about = f"what is {unknown[0]!r}{hint or '?'}"
    raise WrongUsage(f"{about} (see `{PROGRAM} --help`)")


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {command.name:<{width}}  {command.summary}" for command in COMMANDS.values()]
    return "\n".join(
        [
            f"usage: {PROGRAM} COMMAND [ARGUMENT...] [--store DIR] [--json] [-v]",
            f"       {PROGRAM} COMMAND --help | --version",
            "",
            "Keeps signed append-only logs and replicates them between machines.",
            "",
            "commands:",
            *lines,
            "",
            "Exit status: 0 done, 1 the answer is no or the work failed, 2 wrong usage,",
            "3 nobody answers, 4 --timeout is over, 5 forked, 6 incomplete, 7 refused,",
            "130 interrupted.",
            "",
        ]
    )


def _preset(parser: Parser, command: Command, definition: Definition, argv: Sequence[str]) -> None:
    """Gives the parser's flags what environment and configuration say."""
    flag = config_flag(argv)
    path = config_path(flag)
    config = read_config(path, command.name, list(COMMANDS), must_exist=bool(flag))
    check_config_names(parser, config, path, definition.settings)
    parser.preset(os.environ, config, str(path))


def _os_error_line(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror or error}"


def _occupy_standard_descriptors() -> None:
    """Keeps a store's files from getting the number of a closed standard stream."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _discard_standard_output() -> None:
    """Lets the interpreter's last flush find nothing to complain about."""
    with suppress(OSError, ValueError, AttributeError):
        number = sys.stdout.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)
