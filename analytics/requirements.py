"""What a worker of Spark needs, and the lines that bring it there."""

import sys
from typing import Final

PACKAGES: Final = {"nacl": "pynacl>=1.6", "pyarrow": "pyarrow>=18"}
"""Modules that a worker imports, and what to install for each."""


def python_version() -> str:
    """The minor version of the Python that runs this, like `3.11`; workers have to have it too."""
    return "{}.{}".format(*sys.version_info[:2])


def install_line(python: str, *modules: str) -> str:
    """What to type on a machine whose `python` lacks these modules."""
    wanted = " ".join(f"'{PACKAGES[module]}'" for module in modules)
    return f"{python} -m pip install {wanted}"


def python_line(version: str | None = None) -> str:
    """What to type so that workers run the right Python."""
    version = version or python_version()
    return (
        f"name one that is there: PYSPARK_PYTHON=/usr/bin/python{version} bamboo-peer analyze ..."
    )
