"""Attacks a node in every way of the table, and says what each costs honest peers.

    python -m siege                          # the whole table, about ten minutes
    python -m siege --only floods --seconds 20
    python -m siege --figures                # TLS, memory of connections, metrics

Exit status 1 if a promise was broken, or an attack was none. docs/siege.md says how to read it.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from .attacks import ATTACKS
from .campaign import besiege
from .figures import figures
from .report import HEAD, Row, cells, details, table


def main() -> int:
    """Runs what was asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="siege", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(ATTACKS), help="repeatable")
    parser.add_argument("--seconds", type=float, default=6.0, help="that an attack lasts (6)")
    parser.add_argument("--entries", type=int, default=8000, help="of an honest sync (8000)")
    parser.add_argument("--tries", type=int, default=1, help="before a promise counts as broken")
    parser.add_argument("--json", type=Path, help="a file for everything that was measured")
    parser.add_argument("--list", action="store_true", help="the attacks, and nothing else")
    parser.add_argument("--figures", action="store_true", help="figures instead of attacks")
    options = parser.parse_args()
    if options.list:
        lines = ((each.name, each.what) for each in ATTACKS.values())
        print(table(("attack", "what"), lines, left=2))
        return 0
    began = time.monotonic()
    record: dict[str, Any] = {}
    if options.figures:
        good = figures(record)
    else:
        good = _besiege_all(options.only or list(ATTACKS), options, record)
    print(f"{time.monotonic() - began:.0f} s in all")
    if options.json is not None:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if good else 1


def _besiege_all(names: list[str], options: argparse.Namespace, record: dict[str, Any]) -> bool:
    rows: list[Row] = []
    tries: list[dict[str, Any]] = record.setdefault("attacks", [])
    for name in names:
        row = _besiege(name, options, tries)
        rows.append(row)
        print(details(row), flush=True)
    print()
    print(table(HEAD, map(cells, rows)))
    bad = [row.name for row in rows if not row.is_good]
    print()
    print(f"{len(rows) - len(bad)} of {len(rows)} attacks broke no promise", end="")
    print(f"; not {', '.join(bad)}" if bad else "")
    return not bad


def _besiege(name: str, options: argparse.Namespace, tries: list[dict[str, Any]]) -> Row:
    """One attack; again if a promise was broken and there are tries left."""
    while True:
        row = besiege(ATTACKS[name], seconds=options.seconds, entries=options.entries)
        tries.append(row.as_json())
        if row.is_good or sum(each["name"] == name for each in tries) >= options.tries:
            return row


if __name__ == "__main__":
    sys.exit(main())
