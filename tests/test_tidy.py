"""The repository keeps its rules of style, and each of the checks finds what it is there for."""

import ast

import pytest

from tests import tidy
from tests.circles import Files
from tests.tidy import Fault, Source

FILES = frozenset(
    {
        "bymux/__init__.py",
        "bymux/connection.py",
        "bymux/trio_streams.py",
        "logstore/__init__.py",
        "peer/__init__.py",
        "peer/api.py",
        "bamboo_cli/__init__.py",
        "peer/node/__init__.py",
        "peer/node/node.py",
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


def test_no_file_needs_itself_by_way_of_others() -> None:
    found = [each for each in tidy.sources() if each.path.partition("/")[0] in tidy.PACKAGES]
    assert Files(found).circles() == []


def test_a_circle_is_found_wherever_its_imports_stand() -> None:
    texts = {
        "wire/__init__.py": "from .a import A\nfrom .b import B",
        "wire/a.py": "if TYPE_CHECKING:\n    from .b import B",
        "wire/b.py": "def f():\n    from wire import A",
        "wire/c.py": "from .a import A\nimport wire.d",
        "wire/d.py": "import os",
    }
    files = Files(Source(path, text) for path, text in texts.items())
    assert files.circles() == [["wire.a", "wire.b"]]
    assert files.needs["wire.c"] == {"wire.a", "wire.d"}


def test_the_lists_of_what_has_too_many_name_what_is_there() -> None:
    listed = [*tidy.TOO_MANY_FIELDS, *tidy.TOO_MANY_BRANCHES]
    files = {place.partition(" ")[0] for place in listed}
    places = {
        f"{source.path} {node.name}"
        for source in tidy.sources()
        if source.path in files
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    assert {*listed} <= places


@pytest.mark.parametrize("path", ["peer/planner/a.py", "peer/data/a.py"])
def test_a_class_has_no_more_fields_than_one_can_hold_in_mind(path: str) -> None:
    most = 18 if "planner" in path else 20
    declared = "class C:\n" + "".join(f"    x{n}: int\n" for n in range(most - 1))
    text = declared + "    def f(self):\n        self.y = self.z\n"
    assert list(tidy.check_fields(Source(path, text))) == []
    [fault] = tidy.check_fields(Source(path, text + "        self.z = 1\n"))
    assert (fault.rule, fault.line) == ("size", 1)


def test_a_function_of_the_planner_has_fifteen_branches() -> None:
    text = "def f(x):\n" + "    if x or x:\n        x = 1\n" * 7
    assert list(tidy.check_branches(Source("peer/planner/a.py", text))) == []
    text += "    for y in x:\n        pass\n"
    [fault] = tidy.check_branches(Source("peer/planner/a.py", text))
    assert fault.detail == "f has 16, 15 are the limit"
    assert list(tidy.check_branches(Source("peer/data/a.py", text))) == []


def test_what_has_too_many_may_not_get_more_and_less_is_written_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tidy, "TOO_MANY_BRANCHES", {"peer/planner/a.py f": 17})
    for count, is_fault in ((16, True), (17, False), (18, True)):
        text = "def f(x):\n" + "    if x:\n        x = 1\n" * (count - 1)
        assert bool(list(tidy.check_branches(Source("peer/planner/a.py", text)))) is is_fault


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
        ("bamboo_cli/spool.py", "def f():\n    apsw.Connection(p)", []),
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
        ("peer/session.py", "from peer.node import Node"),
        ("peer/session.py", "from peer import node"),
        ("peer/__init__.py", "def f():\n    from bamboo_cli import main"),
        ("analytics/export.py", "from peer import Session"),
        ("peer/node/node.py", "from bamboo_cli import main"),
        ("peer/protocol/request.py", "from peer.data.packing import Packer"),
        ("peer/protocol/table.py", "from peer import Session"),
        ("peer/data/sending.py", "from peer.planner.withholding import Withholding"),
        ("peer/planner/acting.py", "from peer import Session"),
    ],
)
def test_nothing_imports_upward(path: str, text: str) -> None:
    assert rules_broken(path, text) == ["layer arrows"]


def test_importing_upward_is_found_in_a_relative_import_too() -> None:
    assert rules_broken("peer/__init__.py", "from .node import Node") == [
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
        ("peer/node/pump.py", "from peer.node.node import Node"),
    ],
)
def test_imports_inside_a_package_are_relative(path: str, text: str) -> None:
    assert rules_broken(path, text) == ["relative inside"]


def test_imports_across_packages_are_absolute() -> None:
    assert rules_broken("peer/node/node.py", "from ..session import Session") == ["absolute across"]
    assert rules_broken("peer/node/status/a.py", "from ..node import Node") == ["absolute across"]
    outside = rules_broken("peer/data/sending.py", "from ..protocol.events import Event")
    assert outside == ["absolute across"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("peer/session.py", "from wire.entry import Entry"),
        ("peer/session.py", "from wire import entry"),
        ("peer/session.py", "import wire.entry"),
        ("peer/node/node.py", "from peer.session import Session"),
    ],
)
def test_imports_across_packages_go_through_the_root(path: str, text: str) -> None:
    assert rules_broken(path, text) == ["package root"]


def test_the_folders_inside_the_session_are_its_own() -> None:
    text = "from peer.protocol.events import Event"
    for path in ("peer/engine.py", "peer/data/sending.py", "peer/planner/acting.py"):
        assert rules_broken(path, text) == []
    for path in ("peer/node/node.py", "peer/api.py", "bamboo_cli/status.py"):
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
        ("peer/node/node.py", "import pyarrow as pa"),
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
        ("peer/node/node.py", "import trio\nfrom peer import Session\nfrom .pump import pump"),
        ("peer/node/node.py", "from bymux.trio_streams import Multiplexer"),
        ("peer/api.py", "from .session import Session\nfrom peer.node import Node"),
        ("bamboo_cli/main.py", "import sys\nfrom peer import node\nfrom logstore import Store"),
        ("tests/wire/test_entry.py", "from wire.entry import Entry\nimport time"),
    ],
)
def test_what_the_layers_allow_is_no_fault(path: str, text: str) -> None:
    assert rules_broken(path, text) == []
