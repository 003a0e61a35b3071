"""The table of commands: a new one is one line here, and a module that defines it.

A module has `COMMANDS`, a dictionary from a command's name to its `Definition`, or its `Verbs`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from .errors import DONE, INTERRUPTED

if TYPE_CHECKING:
    from argparse import Namespace

    from .settings import Parser
    from .terminal import Terminal


@dataclass(frozen=True, slots=True)
class Definition:
    """What a command takes, and what it does."""

    arguments: Callable[["Parser"], None]
    run: Callable[["Namespace", "Terminal"], int]
    """Returns the exit status. Raises `Problem` or `StoreError` for what ends with one line."""
    verb: str = ""
    """Of a command that has several (verbs.py), which one this is..."""
    takes: str | None = None
    """... and its arguments, as people write them."""
    summary: str = ""
    settings: Callable[[], frozenset[str]] = frozenset
    """Names of flags that the configuration may set for the command, and that this may not have."""


class Several(Protocol):
    """A command of several verbs, each with a definition of its own (verbs.py)."""

    def pick(self, argv: Sequence[str]) -> tuple[Definition, list[str]]:
        """The verb that is named, and the other arguments. Raises WrongUsage, HelpWanted."""

    def definition(self, name: str) -> Definition:
        """That of a verb."""

    def __iter__(self) -> Iterator[str]:
        """The verbs' names."""


@dataclass(frozen=True, slots=True)
class Command:
    """A line of the table."""

    name: str
    module: str
    summary: str
    ended: int | None = None
    """The exit status after SIGTERM or Ctrl-C, which both end it in good order.

    None: SIGTERM kills it at once, since it has nothing to put in order and may be in the middle of
    a read that a signal does not end.
    """

    is_asked: bool = False
    """Whether SIGHUP asks something of it, and ends it at no time: it lets such signals in itself
    (interrupting.py). The others end by them as any program does."""

    def load(self) -> "Definition | Several":
        """The definition, from the module that nobody has needed until now."""
        commands: dict[str, Definition | Several]
        commands = import_module(f".{self.module}", __package__).COMMANDS
        return commands[self.name]


_TABLE = (
    Command("init", "own", "create the store and its author key"),
    Command("append", "own", "sign and append entries to a log of one's own"),
    Command("logs", "reading", "list the logs held"),
    Command("name", "name", "call a log or an author something, or list what is called how"),
    Command("entry", "reading", "show one entry"),
    Command("cat", "tailing", "print payloads by number, none left out", INTERRUPTED),
    Command("tail", "tailing", "print entries as they arrive, of all logs or one", INTERRUPTED),
    Command("cursor", "cursors", "list, reset and remove the places up to which was read"),
    Command("forks", "forks", "list, show and pass on the proofs that a log is forked"),
    Command("dump", "dumping", "print entries and payloads as JSON lines"),
    Command("import", "importing", "verify and store what `dump` printed"),
    Command(
        "bundle", "bundling", "carry in a file or a pipe what another store lacks", INTERRUPTED
    ),
    Command("drop", "upkeep", "delete payloads, keeping their entries"),
    Command("keep", "keeping", "say which payloads are kept, and for how long"),
    Command("tidy", "keeping", "delete now what is not to be kept"),
    Command("forget", "forgetting", "remove logs that are not followed, entries and all"),
    Command("compact", "compacting", "give back to the disk what was deleted"),
    Command("verify", "upkeep", "recheck every signature, link, hash and size"),
    Command("backup", "upkeep", "copy the store, also while a node runs on it"),
    Command("export", "exporting", "bring a Parquet export up to date"),
    Command("sql", "querying", "ask an export a question in SQL, without Spark"),
    Command("analyze", "analyzing", "check and describe an export with Spark"),
    Command("follow", "following", "take in a log, an author's logs, or all"),
    Command("unfollow", "following", "no longer take in new entries"),
    Command("follows", "following", "list what is followed"),
    Command(
        "fetch", "fetching", "bring entries and payloads that were skipped or dropped", INTERRUPTED
    ),
    Command("serve", "serve", "run the node until interrupted", DONE, is_asked=True),
    Command("sync", "sync", "connect once and bring both sides up to date", INTERRUPTED),
    Command("pause", "pausing", "end all connections for a while, or those with one peer"),
    Command("resume", "pausing", "connect again"),
    Command("status", "status", "who is connected, what is held, what is missing"),
    Command("check", "checking", "say in a line whether the node is as it should be"),
    Command("wait", "waiting", "wait until what is followed is complete", INTERRUPTED),
    Command("why", "why", "say why a log is not complete, or a peer brings nothing"),
    Command(
        "datastream",
        "datastream",
        "serve, write, relay and export data streams with bookmarks",
        INTERRUPTED,
    ),
    Command(
        "ockam",
        "ockam",
        "serve Ockam streams, push to and pull from any hub of them",
        INTERRUPTED,
    ),
    Command(
        "cardinal",
        "cardinal",
        "keep blocks of a chain that may fork in logs, and print their messages",
        INTERRUPTED,
    ),
    Command("swarm", "swarm", "keep files as chunks in logs, and get them by their hashes"),
    Command(
        "trace",
        "tracing",
        "show what `--trace` wrote: every message of every connection",
        INTERRUPTED,
    ),
    Command("key", "keys", "export or import the author key, confirm a moved store"),
    Command("identity", "peers", "print the id by which other nodes know this one"),
    Command("whoami", "peers", "the same"),
    Command("peer", "peers", "who is let in, and what each may read and write"),
    Command("completion", "completion", "print what has a shell complete commands and flags"),
    Command("about", "about", "print the versions that decide how this program behaves"),
    Command("paths", "about", "print where configuration, store and key are, there or not"),
)

COMMANDS = {command.name: command for command in _TABLE}
