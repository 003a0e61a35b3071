"""Names of a package that are loaded when they are first used.

Every other package does so: a command that needs one name of it pays for one module, and what is
sans-io comes without Trio, SQLite or Spark. It stands here because all of them may import this.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def loaded_late(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """The `__getattr__` of a package.

    `homes`: modules below the package, as relative imports have them without the dot, and the names
    that each is the home of. A name is kept in the package once it was found.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> object:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f".{home}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
