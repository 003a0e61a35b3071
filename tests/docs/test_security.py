"""SECURITY.md names tests: each of them is there."""

import re

from tests.tidy import ROOT

NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_test_that_the_page_names_exists() -> None:
    found = NAMED.findall((ROOT / "SECURITY.md").read_text())
    assert len(found) > 20
    for path, name in found:
        text = (ROOT / path).read_text()
        assert not name or f"def {name}(" in text, (path, name)


def test_every_promise_names_a_test() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    promised = page.partition("## What is not promised")[0]
    rows = [line for line in promised.splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith(("| promise", "|---"))]
    assert len(promises) > 15
    assert [row for row in promises if not NAMED.search(row)] == []
