"""The command line: it reads arguments, calls the layers below, and prints.

Nothing is decided here that a program which embeds the library would miss. A command's module is
loaded when that command is run and not before, so that each starts fast; `registry` is the table
of commands, `settings` knows where a flag's value comes from, `terminal` is what is printed how.
"""

import sys
from collections.abc import Sequence

from .interrupting import held_signals
from .origins import foreign_package

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; `argv` is `sys.argv[1:]` unless given. Returns the exit status."""
    try:
        # Most of the time until a command runs goes into imports: Ctrl-C is to be quiet there too,
        # and what asks a node to read its configuration again is not to end it.
        with held_signals():
            if (foreign := foreign_package()) is not None:
                print(f"bamboo-peer: {foreign}", file=sys.stderr)
                return 1
            from .dispatch import dispatch

            return dispatch(argv)
    except KeyboardInterrupt:
        return 130
