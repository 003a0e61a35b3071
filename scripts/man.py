"""Writes the manual page, from the parsers that read the commands: deploy/bamboo-peer.1.

    python scripts/man.py            writes it
    python scripts/man.py --check    says whether it is as it would be written

It is kept in the repository, and not made when a wheel is built: that would need all that the
command line needs, where only files are copied.
"""

import os
import sys
from importlib.metadata import version
from pathlib import Path

from argparse_manpage.manpage import Manpage

from bamboo_cli.completion import whole_parser

PAGE = Path(__file__).resolve().parents[1] / "deploy" / "bamboo-peer.1"


def rendered() -> str:
    """The page; of the same parsers always the same, whatever day it is."""
    about = {
        "project_name": "bamboo-peer",
        "version": version("bamboo-peer"),
        "date": version("bamboo-peer"),
        "manual_title": "User Commands",
    }
    return str(Manpage(whole_parser(), about)).rstrip() + "\n"


def main() -> int:
    """The exit status: 1 if the page is out of date."""
    # Lines are broken for it.
    os.environ["COLUMNS"] = "80"
    text = rendered()
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text() != text)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
