"""A package's names are loaded with the module that they are in, once, and no others are there."""

import sys
from pathlib import Path

import pytest


def test_a_name_loads_its_module_alone_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "shelf"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from wire import loaded_late\n"
        "__getattr__ = loaded_late(__name__, {'one': ('A',), 'inner.two': ('B', 'C')})\n"
    )
    (package / "one.py").write_text("A = object()\n")
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "two.py").write_text("B, C = object(), None\n")
    monkeypatch.syspath_prepend(tmp_path)
    shelf = __import__("shelf")
    try:
        first = shelf.B
        assert "shelf.one" not in sys.modules
        assert vars(shelf)["B"] is first
        assert shelf.C is None
        with pytest.raises(AttributeError, match="module 'shelf' has no attribute 'D'"):
            _ = shelf.D
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] == "shelf"]:
            del sys.modules[name]
