"""The repository keeps its rules of style, and each of the checks finds what it is there for."""

import pytest

from tests import tidy
from tests.tidy import Fault, Source

FILES = frozenset(
    {
        "bymux/__init__.py",
        "bymux/connection.py",
        "bymux/trio_streams.py",
        "logstore/__init__.py",
        "peer/__init__.py",
        "peer/api.py",
        "peer/cli/__init__.py",
        "peer/net/__init__.py",
        "peer/net/node.py",
        "peer/protocol/__init__.py",
        "peer/protocol/events.py",
        "peer/session.py",
        "wire/__init__.py",
        "wire/entry.py",
    }
)


def rules_broken(path: str, text: str) -> list[str]:
    return [fault.rule for fault in tidy.check_imports(Source(path, text), FILES)]


def test_every_file_keeps_the_rules() -> None:
    found = tidy.sources()
    assert any(source.path == "tests/tidy.py" for source in found)
    assert [str(fault) for fault in tidy.check_all(found)] == []


def test_a_fault_names_file_line_and_rule() -> None:
    fault = Fault("wire/entry.py", 7, "sans-io", "wire must not import time")
    assert str(fault) == "wire/entry.py:7: sans-io: wire must not import time"


def test_a_file_may_have_600_lines_and_no_more() -> None:
    assert list(tidy.check_file_length(Source("wire/a.py", "x = 1\n" * 600))) == []
    [fault] = tidy.check_file_length(Source("wire/a.py", "x = 1\n" * 601))
    assert (fault.rule, fault.line) == ("file length", 601)


@pytest.mark.parametrize("head", ["def f():", "async def f():"])
def test_a_function_may_have_70_lines_and_no_more(head: str) -> None:
    good = f"{head}\n" + "    x = 1\n" * 69
    bad = "y = 1\n\n" + good + "    x = 1\n"
    assert list(tidy.check_function_lengths(Source("wire/a.py", good))) == []
    [fault] = tidy.check_function_lengths(Source("wire/a.py", bad))
    assert (fault.rule, fault.line) == ("function length", 3)


def test_a_method_counts_as_a_function() -> None:
    text = "class C:\n    def f(self):\n" + "        x = 1\n" * 70
    [fault] = tidy.check_function_lengths(Source("wire/a.py", text))
    assert fault.line == 2


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "X" * 3])
def test_no_marker_is_left_over(word: str) -> None:
    [fault] = tidy.check_markers(Source("wire/a.py", f"x = 1\ny = 2  # {word}: later\n"))
    assert (fault.rule, fault.line) == ("leftover marker", 2)
    assert list(tidy.check_markers(Source("wire/a.py", f"x = '{word}ES'\n"))) == []


@pytest.mark.parametrize(
    ("path", "text", "broken"),
    [
        ("logstore/verify.py", "def f(x):\n    x.remove_file(p)", ["only there"]),
        ("logstore/files.py", "def tidy(x):\n    x._remove_free(p)", ["only there"]),
        ("logstore/backup.py", "def f():\n    apsw.Connection(p)", ["only there"]),
        ("logstore/files.py", "def _remove_free(x):\n    x.remove_file(p)", []),
        ("logstore/schema.py", "def connect():\n    apsw.Connection(p)", []),
        ("peer/cli/spool.py", "def f():\n    apsw.Connection(p)", []),
    ],
)
def test_some_calls_are_made_in_one_place_only(path: str, text: str, broken: list[str]) -> None:
    assert [fault.rule for fault in tidy.check_only_there(Source(path, text))] == broken


def test_a_package_says_what_the_layer_is() -> None:
    [fault] = tidy.check_package_docstring(Source("wire/__init__.py", "x = 1\n"))
    assert fault.rule == "package docstring"
    good = Source("wire/__init__.py", '"""Bytes and values."""\n')
    assert list(tidy.check_package_docstring(good)) == []
    assert list(tidy.check_package_docstring(Source("wire/entry.py", "x = 1\n"))) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("bymux/connection.py", "from wire import Entry"),
        ("wire/entry.py", "import bymux"),
        ("logstore/store.py", "from peer import Session"),
        ("peer/session.py", "from peer.net import Node"),
        ("peer/session.py", "from peer import net"),
        ("peer/__init__.py", "def f():\n    from peer.cli import main"),
        ("analytics/export.py", "from peer import Session"),
        ("peer/net/node.py", "from peer.cli import main"),
        ("peer/protocol/request.py", "from peer.data.packing import Packer"),
        ("peer/protocol/table.py", "from peer import Session"),
        ("peer/data/sending.py", "from peer.planner.withholding import Withholding"),
        ("peer/planner/acting.py", "from peer import Session"),
    ],
)
def test_nothing_imports_upward(path: str, text: str) -> None:
    assert rules_broken(path, text) == ["layer arrows"]


def test_importing_upward_is_found_in_a_relative_import_too() -> None:
    assert rules_broken("peer/__init__.py", "from .net import Node") == [
        "layer arrows",
        "absolute across",
    ]
    assert rules_broken("bymux/__init__.py", "from . import trio_streams") == [
        "layer arrows",
        "absolute across",
    ]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("wire/data.py", "from wire import Entry"),
        ("wire/data.py", "import wire.entry"),
        ("wire/data.py", "from wire.entry import Entry"),
        ("peer/net/pump.py", "from peer.net.node import Node"),
    ],
)
def test_imports_inside_a_package_are_relative(path: str, text: str) -> None:
    assert rules_broken(path, text) == ["relative inside"]


def test_imports_across_packages_are_absolute() -> None:
    assert rules_broken("peer/net/node.py", "from ..session import Session") == ["absolute across"]
    assert rules_broken("peer/cli/status.py", "from ..net import Node") == ["absolute across"]
    outside = rules_broken("peer/data/sending.py", "from ..protocol.events import Event")
    assert outside == ["absolute across"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("peer/session.py", "from wire.entry import Entry"),
        ("peer/session.py", "from wire import entry"),
        ("peer/session.py", "import wire.entry"),
        ("peer/net/node.py", "from peer.session import Session"),
    ],
)
def test_imports_across_packages_go_through_the_root(path: str, text: str) -> None:
    assert rules_broken(path, text) == ["package root"]


def test_the_folders_inside_the_session_are_its_own() -> None:
    text = "from peer.protocol.events import Event"
    for path in ("peer/engine.py", "peer/data/sending.py", "peer/planner/acting.py"):
        assert rules_broken(path, text) == []
    for path in ("peer/net/node.py", "peer/api.py", "peer/cli/status.py"):
        assert rules_broken(path, text) == ["layer arrows", "package root"]
    assert rules_broken("peer/protocol/table.py", text) == ["relative inside"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("wire/entry.py", "import time"),
        ("wire/entry.py", "from os.path import join"),
        ("bymux/connection.py", "import trio.testing"),
        ("peer/session.py", "def f():\n    import random"),
        ("peer/session.py", "if TYPE_CHECKING:\n    import socket"),
    ],
)
def test_sans_io_layers_import_no_input_or_output(path: str, text: str) -> None:
    assert rules_broken(path, text) == ["sans-io"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("logstore/store.py", "import trio"),
        ("peer/net/node.py", "import pyarrow as pa"),
        ("wire/entry.py", "from apsw import Connection"),
    ],
)
def test_a_layer_imports_its_own_libraries_only(path: str, text: str) -> None:
    assert rules_broken(path, text) == ["libraries"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("wire/data.py", "from .entry import Entry\nfrom . import entry\nimport nacl.signing"),
        ("bymux/trio_streams.py", "import trio\nfrom .connection import Connection"),
        ("logstore/store.py", "import apsw\nimport threading\nfrom wire import Entry, LogKey"),
        ("peer/session.py", "import wire\nfrom logstore import LogInfo\nimport json"),
        ("peer/net/node.py", "import trio\nfrom peer import Session\nfrom .pump import pump"),
        ("peer/net/node.py", "from bymux.trio_streams import Multiplexer"),
        ("peer/api.py", "from .session import Session\nfrom peer.net import Node"),
        ("peer/cli/main.py", "import sys\nfrom peer import net\nfrom logstore import Store"),
        ("tests/wire/test_entry.py", "from wire.entry import Entry\nimport time"),
    ],
)
def test_what_the_layers_allow_is_no_fault(path: str, text: str) -> None:
    assert rules_broken(path, text) == []
