"""Where a flag's value comes from: command line, environment, configuration or default.

The first of these that says something wins. Every flag `--some-flag` of every command has the
variable BAMBOO_PEER_SOME_FLAG; one that means something else elsewhere has
BAMBOO_PEER_COMMAND_SOME_FLAG. The configuration is a TOML file: what goes for all commands
(`store`, `json`, `verbose`) stands at its top, what goes for one stands in that command's table,
and limits stand in one of their own, for all commands that have them.

    store = "~/logs"

    [append]
    log-id = 3
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from .errors import WrongUsage

PROGRAM = "bamboo-peer"
VALUE_FLAGS = frozenset(("--store", "--config"))
"""Those of all commands that have a value."""
_YES = frozenset(("1", "true", "yes", "on"))
_NO = frozenset(("", "0", "false", "no", "off"))


class HelpWanted(Exception):  # noqa: N818 - what was asked for
    """The user asked what a command takes; the argument is the answer."""


class _Help(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        raise HelpWanted(parser.format_help())


class _Repeated(argparse.Action):
    """`append`, but the command line replaces what comes from elsewhere.

    Unless it `merges`: of settings that have names the later ones win, and the others stay.
    """

    merges = False

    def __call__(
        self, _: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, *__: object
    ) -> None:
        so_far = getattr(namespace, self.dest)
        is_replaced = so_far is self.default and not self.merges
        setattr(namespace, self.dest, [*([] if is_replaced else so_far), values])


class Parser(argparse.ArgumentParser):
    """An argument parser whose flags can also be set from outside, and whose errors are a line."""

    def __init__(
        self, command: str, summary: str, *, verb: str = "", takes: str | None = None
    ) -> None:
        """`verb`: of a command that has several; `takes`: its arguments, for the usage."""
        program = f"{PROGRAM} {command} {verb}".rstrip()
        super().__init__(
            prog=program,
            usage=None if takes is None else f"{f'{program} {takes}'.rstrip()} [flags]",
            description=summary[:1].upper() + summary[1:] + ".",
            allow_abbrev=False,
            add_help=False,
        )
        self.flags: list[argparse.Action] = []
        self._command = command
        self._own: dict[argparse.Action, str] = {}
        super().add_argument("-h", "--help", action=_Help, nargs=0, help="print this and end")

    # As untyped as the method that it stands for.
    def add_argument(self, *args: Any, **kwargs: Any) -> argparse.Action:  # noqa: ANN401
        """As always; but a ValueError of `type` says what is wrong with a value.

        `own_variable`: another command has a flag of this name that means something else; a text
        is its name where even another verb of the command has.
        `merges`: what is said on the command line is added to what is said elsewhere.
        """
        own_variable: bool | str = kwargs.pop("own_variable", False)
        merges: bool = kwargs.pop("merges", False)
        convert: Callable[[str], object] | None = kwargs.get("type")
        if convert is not None:
            kwargs["type"] = _explaining(convert)
        if kwargs.get("action") == "append":
            kwargs["action"] = _Repeated
        action = super().add_argument(*args, **kwargs)
        if isinstance(action, _Repeated):
            action.merges = merges
        if action.option_strings:
            self.flags.append(action)
        if own_variable:
            self._own[action] = own_variable if isinstance(own_variable, str) else flag_name(action)
        return action

    def exclude(self, *actions: argparse.Action) -> None:
        """Only one of these may be on the command line; elsewhere any of them may be set, since
        the configuration says what goes as a rule, and the command line what goes this once."""
        # What `add_argument` of such a group takes would not be known to this parser.
        self.add_mutually_exclusive_group()._group_actions += actions  # noqa: SLF001

    def check_spelling(self, argv: Sequence[str]) -> None:
        """Raises WrongUsage for a flag that there is not, and says which one may be meant.

        Before the arguments are read: a value behind such a flag would be taken for an argument,
        and be what is complained of.
        """
        words = argv[: argv.index("--")] if "--" in argv else argv
        known = self._option_string_actions
        if "-h" in words or "--help" in words:
            return
        for word in words:
            flag = word.partition("=")[0]
            # With a space in it argparse takes it for an argument.
            if flag.startswith("--") and " " not in word and flag not in known:
                self.error(f"there is no flag {flag}{similar(flag, known)}")

    def check_all_taken(self, left: Sequence[str]) -> None:
        """Raises WrongUsage for what is left of a command line: it names the first word too many.

        Of a command that takes none that is most often the store, as other programs take theirs.
        """
        if left:
            word = left[0]
            if word.startswith("-") and word != "-":
                self.error(f"there is no flag {word}")
            takes_some = any(not action.option_strings for action in self._actions)
            amount = "no more arguments" if takes_some else "no arguments"
            is_store = not takes_some and _may_be_path(word)
            store = f"; a store is named with --store {word}" if is_store else ""
            self.error(f"{self.prog.removeprefix(f'{PROGRAM} ')} takes {amount}: {word!r}{store}")

    def variable(self, action: argparse.Action) -> str:
        """The variable of a flag."""
        own = self._own.get(action)
        return environment_name(flag_name(action) if own is None else f"{self._command}-{own}")

    def error(self, message: str) -> NoReturn:
        """One line instead of the usage and a line."""
        raise WrongUsage(f"{message} (see `{self.prog} --help`)")

    def preset(
        self, environment: Mapping[str, str], config: Mapping[str, object], config_name: str
    ) -> None:
        """Turns environment and configuration into defaults. Raises WrongUsage."""
        for action in self.flags:
            name = flag_name(action)
            variable = self.variable(action)
            if variable in environment:
                self._set(action, environment[variable], variable)
            elif name in config:
                self._set(action, config[name], f"{config_name}: {name}")

    def _set(self, action: argparse.Action, value: object, origin: str) -> None:
        try:
            self.set_defaults(**{action.dest: self._converted(action, value)})
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise WrongUsage(f"{origin}: {error}") from None

    def _converted(self, action: argparse.Action, value: object) -> object:
        """A value from outside, as the flag itself would have made it."""
        if action.nargs == 0:
            return _truth(value)
        if isinstance(action, _Repeated):
            items = value if isinstance(value, list) else str(value).split()
            return [_one(action, item) for item in items]
        return _one(action, value)


def _may_be_path(word: str) -> bool:
    """Whether somebody may mean a directory, and not an address or a number."""
    return not (":" in word or word.replace(".", "").isdigit())


def _explaining(convert: Callable[[str], object]) -> Callable[[str], object]:
    def converted(text: str) -> object:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return converted


def _one(action: argparse.Action, value: object) -> object:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError(f"{value!r} is no value for it")  # noqa: TRY004 - the user's mistake
    text = str(value)
    return action.type(text) if callable(action.type) else text


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _YES | _NO:
        return value.strip().lower() in _YES
    raise ValueError(f"{value!r} is neither true nor false")


def similar(word: str, known: Iterable[str]) -> str:
    """What of `known` may be meant by a misspelling, as the end of a sentence; "" for nothing."""
    import difflib  # needed for misspellings only

    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def flag_name(action: argparse.Action) -> str:
    """`--log-id` -> `log-id`."""
    return max(action.option_strings, key=len).lstrip("-")


def environment_name(flag: str) -> str:
    """`log-id` -> BAMBOO_PEER_LOG_ID."""
    return "BAMBOO_PEER_" + flag.upper().replace("-", "_")


def first_word(argv: Sequence[str]) -> int | None:
    """Where the first argument stands that is no flag, and no value of one of all commands."""
    position = 0
    while position < len(argv):
        if not argv[position].startswith("-"):
            return position
        position += 2 if argv[position] in VALUE_FLAGS else 1
    return None


def common_arguments(parser: Parser) -> None:
    """The flags of every command."""
    parser.add_argument(
        "--store",
        metavar="DIR",
        default=None,
        help="the store (default: $BAMBOO_PEER_STORE, else the data directory, see `paths`)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument("-v", "--verbose", action="store_true", help="say more on standard error")
    parser.add_argument("--config", metavar="FILE", help="the configuration (see `paths`)")


COMMON_FLAGS = frozenset(("store", "json", "verbose"))
LIMITS = "limits"
"""The table of limits, which goes for all commands that have any."""
WITH_LIMITS = frozenset(("serve", "sync"))


def store_path(args: argparse.Namespace) -> Path:
    """The directory of the store that a command works on. Raises WrongUsage."""
    named: str | None = args.store
    if named:
        return checked_path(Path(named).expanduser())
    return checked_path(_base("XDG_DATA_HOME", "Library/Application Support", ".local/share"))


def checked_path(path: Path) -> Path:
    """`path`, if a database can be there. Raises WrongUsage."""
    from logstore import StoreError, check_path  # loads SQLite, which `--help` can do without

    try:
        check_path(path)
    except StoreError as error:
        raise WrongUsage(str(error)) from None
    return path


def config_flag(argv: Sequence[str]) -> str | None:
    """The value of `--config`, which is needed before the other flags can be read."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    early.add_argument("--config")
    try:
        named: str | None = early.parse_known_args(argv)[0].config
    except argparse.ArgumentError:
        return None
    return named


def config_path(named: str | None) -> Path:
    """The configuration file, there or not. `named`: by the flag."""
    named = named or os.environ.get("BAMBOO_PEER_CONFIG")
    if named:
        return Path(named).expanduser()
    return _base("XDG_CONFIG_HOME", "Library/Preferences", ".config") / "config.toml"


def _base(variable: str, on_macos: str, elsewhere: str) -> Path:
    # The XDG specification: a relative path in these variables is to be ignored.
    named = Path(os.environ.get(variable, ""))
    if named.is_absolute():
        return named / PROGRAM
    folder = on_macos if sys.platform == "darwin" else elsewhere
    return Path("~", folder, PROGRAM).expanduser()


def read_config(
    path: Path, command: str, commands: Sequence[str], *, must_exist: bool = False
) -> dict[str, object]:
    """The settings for one command, its own before those for all. Raises WrongUsage.

    A missing file is an empty one, unless `must_exist`. A name that means nothing is an error: it
    is a misspelling.
    """
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if must_exist:
            raise WrongUsage(f"{path}: there is no such configuration; --config names it") from None
        return {}
    except OSError as error:
        raise WrongUsage(f"{path}: cannot be read: {error.strerror}") from None
    import tomllib  # half of this command's start-up time, and most users have no configuration

    try:
        tables = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongUsage(f"{path}: {error}") from None
    settings: dict[str, object] = {}
    limits: list[str] = []
    for name, value in tables.items():
        if name in COMMON_FLAGS:
            settings[name] = value
        elif name == LIMITS:
            limits = _limits(path, value)
        elif name not in commands or not isinstance(value, dict):
            raise WrongUsage(f"{path}: {name!r} is neither a setting for all commands nor a table")
    own: dict[str, object] = tables.get(command, {})
    if limits and command in WITH_LIMITS:
        settings["limit"] = limits
    return settings | {name.replace("_", "-"): value for name, value in own.items()}


def _limits(path: Path, table: object) -> list[str]:
    """What stands in the table `[limits]`, as `--limit` takes it. Raises WrongUsage."""
    if not isinstance(table, dict):
        raise WrongUsage(f"{path}: {LIMITS!r} is a table: write KEY = VALUE below [{LIMITS}]")
    return [f"{name.replace('_', '-')}={value}" for name, value in table.items()]


def check_config_names(
    parser: Parser,
    config: Mapping[str, object],
    path: Path,
    others: Callable[[], frozenset[str]] = frozenset,
) -> None:
    """Raises WrongUsage for a setting that no flag of this command has.

    `others`: flags of its other verbs.
    """
    known = {flag_name(action) for action in parser.flags}
    unknown = [name for name in config if name not in known]
    for name in unknown and [name for name in unknown if name not in others()]:
        raise WrongUsage(f"{path}: {parser.prog} has no setting {name!r}")
