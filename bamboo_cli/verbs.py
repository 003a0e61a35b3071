"""Commands that are several: `ockam push`, `datastream serve`.

Each verb has a parser of its own, and so a help that shows what it takes and nothing else.
Variables and the configuration are the command's: what is set there goes for the verbs that have
such a flag.
"""

from argparse import SUPPRESS
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from logstore import ExplainedError

from .errors import Problem, WrongUsage
from .opening import status_of
from .registry import Definition
from .settings import PROGRAM, VALUE_FLAGS, HelpWanted, Parser, first_word, flag_name

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal


def _none(_: Parser) -> None:
    """Flags of its own."""


@dataclass(frozen=True, slots=True)
class Verb:
    """What a verb takes, and what it does."""

    takes: str
    """Its arguments, as people write them: `HUB NAME [FILE...]`. They are in `words`."""
    summary: str
    run: Callable[["Namespace", "Terminal"], int]
    arguments: Callable[[Parser], None] = _none
    needs: tuple[str, ...] = ()
    """Flags that may not be left out."""


class Verbs:
    """The verbs of a command."""

    def __init__(self, command: str, summary: str, verbs: Mapping[str, Verb]) -> None:
        self._command: Final = command
        self._summary: Final = summary
        self._verbs: Final = verbs

    def pick(self, argv: Sequence[str]) -> tuple[Definition, list[str]]:
        """The verb that is named, and the other arguments. Raises WrongUsage, HelpWanted."""
        place = self._place(argv)
        if place is None:
            if "-h" in argv or "--help" in argv:
                raise HelpWanted(self._overview())
            word = first_word(argv)
            said = "it needs one of" if word is None else f"{argv[word]!r} is none of"
            raise WrongUsage(
                f"{self._command}: {said} {', '.join(self._verbs)}"
                f" (see `{PROGRAM} {self._command} --help`)"
            )
        return self.definition(argv[place]), [*argv[:place], *argv[place + 1 :]]

    def definition(self, name: str) -> Definition:
        """That of a verb."""
        verb = self._verbs[name]
        return Definition(
            arguments=partial(_arguments, name, verb),
            run=partial(_run, f"{self._command} {name}", verb),
            verb=name,
            takes=verb.takes,
            summary=verb.summary,
            settings=self._settings,
        )

    def __iter__(self) -> Iterator[str]:
        """The verbs' names."""
        return iter(self._verbs)

    def _place(self, argv: Sequence[str]) -> int | None:
        """Where the verb stands: before it there may be flags and their values."""
        is_value = False
        for place, text in enumerate(argv):
            if text in self._verbs and not is_value:
                return place
            is_value = text in VALUE_FLAGS
        return None

    def _settings(self) -> frozenset[str]:
        """What the configuration may set, for whichever verb."""
        names = set()
        for verb in self._verbs.values():
            parser = Parser(self._command, self._summary)
            verb.arguments(parser)
            names |= set(map(flag_name, parser.flags))
        return frozenset(names)

    def _overview(self) -> str:
        rows = {f"{name} {verb.takes}".strip(): verb.summary for name, verb in self._verbs.items()}
        width = max(map(len, rows))
        about = self._summary[:1].upper() + self._summary[1:]
        return "\n".join(
            [
                f"usage: {PROGRAM} {self._command} VERB [ARGUMENT...] [--store DIR] [--json] [-v]",
                f"       {PROGRAM} {self._command} VERB --help",
                "",
                f"{about}.",
                "",
                "verbs:",
                *(f"  {what:<{width}}  {summary}" for what, summary in rows.items()),
                "",
            ]
        )


def _arguments(name: str, verb: Verb, parser: Parser) -> None:
    # The usage names them, as it cannot be made from one list of all.
    parser.add_argument("words", nargs="*", help=SUPPRESS)
    parser.set_defaults(verb=name)
    verb.arguments(parser)


def _run(title: str, verb: Verb, args: "Namespace", terminal: "Terminal") -> int:
    for flag in verb.needs:
        if getattr(args, flag) is None:
            raise WrongUsage(f"{title}: it needs --{flag}")
    names = verb.takes.split()
    least = sum(1 for each in names if not each.startswith("["))
    is_open = any(each.endswith(("...", "...]")) for each in names)
    most = None if is_open else len(names)
    if len(args.words) < least or (most is not None and len(args.words) > most):
        raise WrongUsage(f"{title}: it takes {verb.takes or 'no arguments'}")
    try:
        return verb.run(args, terminal)
    except ExplainedError as error:
        raise Problem(str(error), status_of(error)) from None
