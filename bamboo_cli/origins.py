"""Whether the packages that are about to be loaded are those that came with this one.

Their names are short, and other distributions have a `peer` or a `wire` too. Python takes whichever
is first on its path, and what comes of a stranger's is an error far away that names neither. They
are looked for and not loaded, in the folders that the imports behind this look through anyway.

What was installed over ours, in the same folder, is not told from it here.
"""

import sys
from importlib.machinery import PathFinder
from pathlib import PurePath
from typing import Final

PACKAGES: Final = (
    "analytics",
    "bymux",
    "gateways",
    "local_api",
    "logstore",
    "peer",
    "pyspark_bamboo",
    "wire",
)
"""All but this one."""


def foreign_package() -> str | None:
    """One line about the first package that comes from elsewhere; None if there is none."""
    home = str(PurePath(__file__).parent.parent)
    for name in PACKAGES:
        loaded = sys.modules.get(name)
        spec = PathFinder.find_spec(name) if loaded is None else loaded.__spec__
        # Without an origin it is a folder that happens to be there: no package hides behind it.
        if spec is None or spec.origin is None or spec.origin.startswith(f"{home}/{name}/"):
            continue
        return (
            f"the package `{name}` comes from elsewhere: {spec.origin}, and not from {home};"
            " install bamboo-peer into an environment of its own, or take that from PYTHONPATH"
        )
    return None
