"""The command line: it reads arguments, calls the layers below, and prints.

Nothing is decided here that a program which embeds the library would miss. A command's module is
loaded when that command is run and not before, so that each starts fast; `registry` is the table
of commands, `settings` knows where a flag's value comes from, `terminal` is what is printed how.
"""

from .main import main

__all__ = ["main"]
