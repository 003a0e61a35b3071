"""The pages are found and read as the other tests need it, and their links lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, page, table

SAMPLE = """# A page

```console
$ true
```

| a | b |
|---|---|
| 1 | `x` |
| 2 | y |

```python
| not | a table |
|---|---|
```
"""

PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
)


def test_blocks_have_their_info_string_and_text() -> None:
    assert blocks(SAMPLE) == [
        Block("console", "$ true\n"),
        Block("python", "| not | a table |\n|---|---|\n"),
    ]


def test_tables_are_found_outside_blocks_by_their_first_heading() -> None:
    assert table(SAMPLE, "a").rows == (("1", "`x`"), ("2", "y"))


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("name", PAGES)
def test_every_link_inside_the_repository_leads_somewhere(name: str) -> None:
    text = page(name)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = ROOT / Path(name).parent / path if path else ROOT / name
        assert file.exists(), f"{name}: {target}"
        if anchor:
            assert anchor in anchors(file.read_text("utf-8")), f"{name}: {target}"
