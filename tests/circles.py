"""Whether files of ours depend on themselves by way of others.

What a file imports of a package's root counts as an import of the file that it is defined in: the
root itself only hands it on. Imports inside functions and for types count as well, since a reader
has to know what they name.
"""

import ast
from collections.abc import Iterable, Mapping
from functools import cached_property

from tests.tidy import Source, module_name


class Files:
    """The imports among files: from each to those it needs, by module names."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._sources = {module_name(source.path): source for source in sources}
        self._names: dict[str, dict[str, tuple[str, str]]] = {}

    @cached_property
    def needs(self) -> Mapping[str, frozenset[str]]:
        """What each file needs. Roots of packages, which hand on, need nothing."""
        found = {}
        for module, source in self._sources.items():
            if _is_root(source):
                found[module] = frozenset[str]()
                continue
            homes = {self._home(base, name) for base, name in _imported(source)}
            found[module] = frozenset(home for home in homes if home and home != module)
        return found

    def circles(self) -> list[list[str]]:
        """The groups of files of which each needs all others of its group, one way or another."""
        reached = {module: self._reached(module) for module in self.needs}
        groups = {
            frozenset(other for other in reached[module] if module in reached[other])
            for module in reached
        }
        return sorted(sorted(group) for group in groups if group)

    def _reached(self, module: str) -> frozenset[str]:
        found: set[str] = set()
        left = set(self.needs[module])
        while left:
            found |= left
            left = {needed for each in left for needed in self.needs[each]} - found
        return frozenset(found)

    def _home(self, base: str, name: str) -> str | None:
        """The file in which `name` of a module is defined; None if that is not ours."""
        if f"{base}.{name}" in self._sources:
            return f"{base}.{name}"
        source = self._sources.get(base)
        if source is None:
            return None
        if _is_root(source):
            handed_on = self._names.get(base)
            if handed_on is None:
                pairs = {each: (of, each) for of, each in _imported(source)}
                handed_on = self._names[base] = pairs
            if name in handed_on:
                return self._home(*handed_on[name])
        return base


def _is_root(source: Source) -> bool:
    return source.path.endswith("/__init__.py")


def _imported(source: Source) -> Iterable[tuple[str, str]]:
    """Modules, and what is imported of them; of `import a.b` it is `b` of `a`."""
    here = module_name(source.path)
    package = here if _is_root(source) else here.rpartition(".")[0]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                base, _, name = alias.name.rpartition(".")
                yield base or name, name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join(
                    [*parents[: len(parents) - node.level + 1], *([base] if base else [])]
                )
            for alias in node.names:
                yield base, alias.name
