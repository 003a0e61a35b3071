"""`paths`, `about` and `--version`: what runs here, and where its files are."""

from typing import TYPE_CHECKING

from .errors import DONE
from .registry import Definition
from .settings import Parser, config_path, store_path

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal


def print_version(terminal: "Terminal") -> None:
    """Names the versions that decide how this program behaves."""
    import platform
    from importlib.metadata import version

    import apsw
    import nacl

    from wire import NATIVE_STATE

    versions = {
        "bamboo-peer": version("bamboo-peer"),
        "PyNaCl": nacl.__version__,
        "libsodium": _libsodium_version(),
        "native-core": str(NATIVE_STATE),
        "SQLite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "Python": platform.python_version(),
    }
    if terminal.as_json:
        terminal.record({name.lower().replace("-", "_"): text for name, text in versions.items()})
    else:
        for name, text in versions.items():
            terminal.line(f"{name} {text}")


def _libsodium_version() -> str:
    """PyNaCl does not tell: ask the library it was linked to, else its own list of changes."""
    import ctypes
    import re
    from importlib.metadata import distribution
    from importlib.util import find_spec

    spec = find_spec("nacl._sodium")
    assert spec is not None
    try:
        tell = ctypes.CDLL(spec.origin).sodium_version_string
    except (AttributeError, OSError):
        # The copy inside PyNaCl's wheels has no such function. Its changes, newest first, say
        # which libsodium came in with which release.
        changes = distribution("pynacl").read_text("METADATA") or ""
        found = re.search(r"libsodium`* to (\d[\w.-]*(?: \([^)]*\))?)", changes)
        return found[1] if found else "unknown"
    tell.restype = ctypes.c_char_p
    answer: bytes = tell()
    return answer.decode("ascii", "replace")


def _no_arguments(_: Parser) -> None:
    """Nothing but the flags of every command."""


def _about(_: "Namespace", terminal: "Terminal") -> int:
    print_version(terminal)
    return DONE


def _paths(args: "Namespace", terminal: "Terminal") -> int:
    from analytics import cache_folder
    from logstore import System

    store = store_path(args)
    paths = {
        "config": config_path(args.config),
        "store": store,
        "database": store / "store.sqlite3",
        "payloads": store / "payloads",
        "key": store / "author.key",
        "token": store / "api.token",
        "state": System().state_folder(),
        "cache": cache_folder(),
    }
    found = {name: None if path is None else str(path.absolute()) for name, path in paths.items()}
    if terminal.as_json:
        terminal.record(found)
    else:
        terminal.listing(found.items())
    return DONE


COMMANDS = {
    "about": Definition(arguments=_no_arguments, run=_about),
    "paths": Definition(arguments=_no_arguments, run=_paths),
}
