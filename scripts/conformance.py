"""Writes docs/conformance.md: the rules of the protocol, and the tests that prove them.

`make conformance` runs it. `--check` writes nothing, and fails if the page is out of date or if a
rule lacks a test.
"""

import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.conformance.page import PAGE, collect, gaps, render  # noqa: E402 - behind the path


def main() -> int:
    """Writes the page, or compares it; prints what is wrong."""
    with redirect_stdout(StringIO()):
        found = collect()
    faults = gaps(found)
    text = render(found)
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text("utf-8") != text:
            faults.append(f"docs/{PAGE.name} is out of date: make conformance")
    else:
        PAGE.write_text(text, "utf-8")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
