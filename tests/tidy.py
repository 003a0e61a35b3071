"""The rules of style that a machine can check, as functions over a file's text.

Each check yields `Fault`s that name file, line and rule. `tests/test_tidy.py` runs all of them over
the repository, and each of them over small bad inputs.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
FIELDS_MAX = 20
PLANNER_FIELDS_MAX = 18
PLANNER_BRANCHES_MAX = 15

# What has more than it may, and how many: what is above a limit is above it by exactly so much, so
# that this list can only shrink.
TOO_MANY_FIELDS = {
    "peer/data/inbound.py Inbound": 22,
    "peer/engine.py Engine": 21,
    "peer/node/node.py Node": 22,
    "peer/protocol/request.py Incoming": 23,
    "peer/protocol/request.py Outgoing": 29,
    "peer/protocol/request.py Request": 21,
    "peer/session.py Session": 28,
}
TOO_MANY_BRANCHES: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken rule: where, which, and what to do."""

    path: str
    line: int
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file: its path from the top of the repository, and its text."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return _parsed(self.text, self.path)


@lru_cache(maxsize=1)
def _parsed(text: str, path: str) -> ast.Module:
    """Of the last file: one check after the other looks at it, and all trees are too many."""
    return ast.parse(text, filename=path)


@dataclass(frozen=True, slots=True)
class Layer:
    """What a layer may import: layers of ours, and libraries."""

    layers: frozenset[str]
    libraries: frozenset[str]
    sans_io: bool = False


def _layer(layers: str = "", libraries: str = "", *, sans_io: bool = False) -> Layer:
    return Layer(frozenset(layers.split()), frozenset(libraries.split()), sans_io)


# The arrows of the architecture, and the libraries that each layer needs. The nearest enclosing
# name counts: peer/node/node.py is of peer.node, peer/session.py of peer. `bymux.trio_streams`,
# `wire.environment`, `peer.api` and what builds on that are single files that stand in the folder
# of another layer.
LAYERS = {
    "wire": _layer("wire.environment", "lz4 nacl", sans_io=True),
    "wire.environment": _layer("", ""),
    "bymux": _layer("", "msgspec", sans_io=True),
    "bymux.trio_streams": _layer("bymux", "trio"),
    "logstore": _layer("wire", "apsw nacl"),
    "peer.protocol": _layer("logstore wire", "msgspec", sans_io=True),
    "peer.data": _layer("peer.protocol wire", "msgspec", sans_io=True),
    "peer.planner": _layer("logstore peer.data peer.protocol wire", "msgspec", sans_io=True),
    "peer": _layer(
        "bymux logstore peer.data peer.planner peer.protocol wire", "msgspec", sans_io=True
    ),
    "peer.node.fairness": _layer("peer", "trio"),
    "peer.node.interests": _layer("logstore peer wire", "msgspec"),
    "peer.node.host": _layer(
        "logstore peer peer.node.fairness peer.node.interests wire",
        "inotify_simple msgspec nacl outcome trio",
    ),
    "peer.node.doors": _layer("logstore", "OpenSSL cryptography nacl trio"),
    "peer.node.links": _layer(
        "bymux bymux.trio_streams logstore peer peer.node.doors peer.node.fairness peer.node.host"
        " wire",
        "msgspec nacl outcome trio",
    ),
    # Its root is what others import from, and so loads `status`, whose files build on the node's.
    "peer.node": _layer(
        "bymux bymux.trio_streams logstore peer peer.node.doors peer.node.fairness peer.node.host"
        " peer.node.interests peer.node.links peer.node.status wire",
        "msgspec nacl outcome trio",
    ),
    "peer.node.status": _layer(
        "logstore peer peer.node peer.node.links wire", "msgspec prometheus_client trio"
    ),
    "peer.__main__": _layer("bamboo_cli"),
    "peer.api": _layer("bymux logstore peer peer.node wire", "nacl trio"),
    "peer.bridge": _layer("logstore peer.api", "trio"),
    **dict.fromkeys(("peer.aio", "peer.blocking"), _layer("logstore peer.api peer.bridge wire")),
    "local_api": _layer("logstore peer peer.api peer.node wire", "h11 msgspec trio"),
    "bamboo_cli": _layer(
        "analytics bymux gateways gateways.datastream gateways.datastream.codec"
        " gateways.cardinal gateways.cardinal.content gateways.cardinal.declared"
        " gateways.cardinal.headers gateways.cardinal.producing gateways.cardinal.progress"
        " gateways.cardinal.tracking gateways.datastream.sessions gateways.ockam"
        " gateways.ockam.client gateways.ockam.codec"
        " gateways.ockam.declared gateways.ockam.ledger gateways.ockam.server gateways.declaration"
        " gateways.swarm gateways.swarm.bmt gateways.swarm.declared gateways.swarm.files"
        " local_api logstore peer peer.api peer.node wire",
        "apsw coincurve msgspec nacl sha3 shtab trio",
    ),
    "gateways": _layer("gateways.declaration logstore peer peer.api peer.node wire", "apsw trio"),
    "gateways.declaration": _layer("wire", sans_io=True),
    "gateways.reading": _layer("wire", sans_io=True),
    "gateways.datastream": _layer(
        "gateways gateways.declaration gateways.datastream.codec gateways.datastream.sessions"
        " gateways.reading logstore peer peer.api peer.node wire",
        "apsw plyvel trio",
    ),
    "gateways.datastream.codec": _layer("gateways.declaration gateways.reading", sans_io=True),
    "gateways.datastream.sessions": _layer(
        "gateways.datastream.codec gateways.reading", sans_io=True
    ),
    "gateways.ockam": _layer(
        "gateways gateways.declaration gateways.ockam.bare gateways.ockam.client"
        " gateways.ockam.codec gateways.ockam.commands gateways.ockam.declared"
        " gateways.ockam.ledger gateways.ockam.outcomes gateways.ockam.server gateways.reading"
        " logstore peer peer.api peer.node wire",
        "apsw trio",
    ),
    "gateways.ockam.bare": _layer("gateways.reading wire", sans_io=True),
    "gateways.ockam.codec": _layer("gateways.ockam.bare gateways.reading", sans_io=True),
    "gateways.ockam.declared": _layer("gateways.declaration gateways.ockam.codec", sans_io=True),
    "gateways.ockam.ledger": _layer(
        "gateways.ockam.bare gateways.ockam.codec gateways.ockam.declared gateways.reading",
        sans_io=True,
    ),
    "gateways.ockam.commands": _layer("", sans_io=True),
    "gateways.ockam.outcomes": _layer("gateways.ockam.bare", sans_io=True),
    "gateways.ockam.server": _layer(
        "gateways.ockam.bare gateways.ockam.codec gateways.ockam.commands"
        " gateways.ockam.declared gateways.ockam.outcomes gateways.reading",
        sans_io=True,
    ),
    "gateways.ockam.client": _layer("gateways.ockam.codec gateways.reading wire", sans_io=True),
    "gateways.cardinal": _layer(
        "gateways gateways.cardinal.assembly gateways.cardinal.codec gateways.cardinal.content"
        " gateways.cardinal.counted gateways.cardinal.counting gateways.cardinal.declared"
        " gateways.cardinal.frames gateways.cardinal.headers gateways.cardinal.ordering"
        " gateways.cardinal.producing gateways.cardinal.progress gateways.cardinal.tracking"
        " gateways.declaration gateways.reading logstore peer peer.api peer.node wire",
        "apsw trio",
    ),
    "gateways.cardinal.codec": _layer("gateways.reading", sans_io=True),
    "gateways.cardinal.frames": _layer("gateways.declaration gateways.reading wire", sans_io=True),
    "gateways.cardinal.declared": _layer(
        "gateways.cardinal.codec gateways.declaration", sans_io=True
    ),
    "gateways.cardinal.producing": _layer(
        "gateways.cardinal.codec gateways.cardinal.declared", sans_io=True
    ),
    "gateways.cardinal.headers": _layer("", sans_io=True),
    "gateways.cardinal.gone": _layer("gateways.cardinal.headers", sans_io=True),
    "gateways.cardinal.ordering": _layer(
        "gateways.cardinal.gone gateways.cardinal.headers", sans_io=True
    ),
    "gateways.cardinal.tracking": _layer("gateways.cardinal.declared", sans_io=True),
    "gateways.cardinal.counting": _layer(
        "gateways.cardinal.codec gateways.cardinal.headers gateways.cardinal.producing",
        sans_io=True,
    ),
    "gateways.cardinal.counted": _layer("gateways.cardinal.counting", sans_io=True),
    "gateways.cardinal.assembly": _layer(
        "gateways.cardinal.codec gateways.cardinal.counted gateways.cardinal.counting"
        " gateways.cardinal.headers"
        " gateways.cardinal.producing gateways.reading",
        sans_io=True,
    ),
    "gateways.cardinal.content": _layer(
        "gateways.cardinal.assembly gateways.cardinal.codec gateways.cardinal.counting"
        " gateways.cardinal.producing gateways.reading",
        sans_io=True,
    ),
    "gateways.cardinal.progress": _layer(
        "gateways.cardinal.codec gateways.cardinal.headers wire", sans_io=True
    ),
    "gateways.swarm": _layer(
        "gateways gateways.declaration gateways.swarm.bmt gateways.swarm.declared"
        " gateways.reading gateways.swarm.client gateways.swarm.codec gateways.swarm.commands"
        " gateways.swarm.devp2p"
        " gateways.swarm.files gateways.swarm.intervals gateways.swarm.keys gateways.swarm.link"
        " gateways.swarm.neighbour gateways.swarm.peers gateways.swarm.proximity"
        " gateways.swarm.rlpx gateways.swarm.sources gateways.swarm.states logstore peer.api"
        " peer.node wire",
        "apsw trio",
    ),
    "gateways.swarm.link": _layer(
        "gateways.reading gateways.swarm.codec gateways.swarm.devp2p gateways.swarm.keys"
        " gateways.swarm.rlpx",
        sans_io=True,
    ),
    "gateways.swarm.retrieval": _layer("gateways.swarm.book", sans_io=True),
    "gateways.swarm.wanting": _layer(
        "gateways.reading gateways.swarm.client gateways.swarm.codec gateways.swarm.intervals",
        sans_io=True,
    ),
    "gateways.swarm.neighbour": _layer(
        "gateways.swarm.book gateways.swarm.client gateways.swarm.codec gateways.swarm.commands"
        " gateways.swarm.intervals gateways.swarm.proximity gateways.swarm.sending"
        " gateways.swarm.server gateways.swarm.sources gateways.swarm.wanting",
        sans_io=True,
    ),
    "gateways.swarm.peers": _layer(
        "gateways.swarm.book gateways.swarm.codec gateways.swarm.commands gateways.swarm.devp2p"
        " gateways.swarm.intervals gateways.swarm.neighbour gateways.swarm.proximity"
        " gateways.swarm.retrieval gateways.swarm.sources gateways.swarm.wanting",
        sans_io=True,
    ),
    "gateways.swarm.declared": _layer("gateways.declaration", sans_io=True),
    "gateways.swarm.codec": _layer(
        "gateways.reading gateways.swarm.keys gateways.swarm.rlp wire", sans_io=True
    ),
    "gateways.swarm.book": _layer("gateways.swarm.codec", sans_io=True),
    "gateways.swarm.client": _layer(
        "gateways.swarm.bmt gateways.swarm.book gateways.swarm.codec gateways.swarm.commands"
        " gateways.swarm.devp2p gateways.swarm.ended gateways.swarm.files gateways.swarm.intervals"
        " gateways.swarm.sources",
        sans_io=True,
    ),
    "gateways.swarm.commands": _layer("gateways.swarm.codec", sans_io=True),
    "gateways.swarm.devp2p": _layer(
        "gateways.reading gateways.swarm.keys gateways.swarm.rlp", sans_io=True
    ),
    "gateways.swarm.keccak": _layer("", "sha3", sans_io=True),
    "gateways.swarm.keys": _layer(
        "gateways.reading gateways.swarm.keccak", "coincurve cryptography", sans_io=True
    ),
    "gateways.swarm.rlp": _layer("gateways.reading wire", sans_io=True),
    "gateways.swarm.rlpx": _layer(
        "gateways.reading gateways.swarm.keccak gateways.swarm.keys gateways.swarm.rlp",
        "cryptography",
        sans_io=True,
    ),
    "gateways.swarm.bmt": _layer(
        "gateways.reading gateways.swarm.feeds wire", "sha3", sans_io=True
    ),
    "gateways.swarm.feeds": _layer(
        "gateways.reading gateways.swarm.keccak", "coincurve", sans_io=True
    ),
    "gateways.swarm.ended": _layer("gateways.swarm.codec", sans_io=True),
    "gateways.swarm.files": _layer("gateways.swarm.bmt", sans_io=True),
    "gateways.swarm.intervals": _layer("gateways.reading wire", sans_io=True),
    "gateways.swarm.proximity": _layer("", sans_io=True),
    "gateways.swarm.sending": _layer("gateways.swarm.codec gateways.swarm.devp2p", sans_io=True),
    "gateways.swarm.server": _layer(
        "gateways.reading gateways.swarm.codec gateways.swarm.commands gateways.swarm.devp2p"
        " gateways.swarm.ended gateways.swarm.sources",
        sans_io=True,
    ),
    "gateways.swarm.sources": _layer("gateways.swarm.codec", sans_io=True),
    "gateways.swarm.states": _layer("gateways.swarm.bmt gateways.swarm.files", sans_io=True),
    "analytics": _layer(
        "gateways.cardinal.assembly gateways.cardinal.codec gateways.cardinal.content"
        " gateways.cardinal.counted gateways.cardinal.counting gateways.cardinal.declared"
        " gateways.cardinal.frames gateways.cardinal.headers gateways.cardinal.ordering"
        " gateways.declaration"
        " gateways.datastream.codec gateways.ockam.codec gateways.ockam.declared"
        " gateways.ockam.ledger gateways.reading gateways.swarm.bmt gateways.swarm.declared"
        " logstore wire",
        "duckdb numpy pandas py4j pyarrow pyspark",
    ),
    "pyspark_bamboo": _layer("analytics logstore wire", "pandas pyarrow pyspark"),
}
# Rooms of a house, which are nobody else's: they name each other's modules, since a root that loads
# all of them would cost every command its start.
HOUSES = (
    frozenset({"peer", "peer.protocol", "peer.data", "peer.planner"}),
    frozenset(
        {
            "peer.node",
            "peer.node.doors",
            "peer.node.host",
            "peer.node.interests",
            "peer.node.links",
            "peer.node.status",
        }
    ),
)
PACKAGES = sorted({name.partition(".")[0] for name in LAYERS})
LIBRARIES = frozenset().union(*(layer.libraries for layer in LAYERS.values()))

# Loading one of these is how a sans-io layer would begin to wait, to look at the clock, to open
# something or to draw a random number.
IO_MODULES = frozenset(
    {
        "asyncio",
        "concurrent",
        "datetime",
        "glob",
        "http",
        "mmap",
        "multiprocessing",
        "os",
        "pathlib",
        "queue",
        "random",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "socketserver",
        "sqlite3",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "trio",
    }
)

_MARKER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")


def module_name(path: str) -> str:
    """`peer/node/node.py` -> `peer.node.node`; a package's `__init__.py` is the package."""
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str | None:
    """The nearest enclosing layer of a module, or None for what is not of ours."""
    while module:
        if module in LAYERS:
            return module
        module = module.rpartition(".")[0]
    return None


def check_file_length(source: Source) -> Iterator[Fault]:
    lines = len(source.text.splitlines())
    if lines > FILE_LINES_MAX:
        detail = f"{lines} lines, {FILE_LINES_MAX} are the limit: split it"
        yield Fault(source.path, FILE_LINES_MAX + 1, "file length", detail)


def check_function_lengths(source: Source) -> Iterator[Fault]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                detail = f"{node.name} has {lines} lines, {FUNCTION_LINES_MAX} are the limit"
                yield Fault(source.path, node.lineno, "function length", detail)


def fields_of(cls: ast.ClassDef) -> frozenset[str]:
    """What an object of a class holds: what is declared in it, and what its methods set."""
    found = {
        node.target.id
        for node in cls.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for method in cls.body:
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(method):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            ):
                found.add(node.attr)
    return frozenset(found)


def branches_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The ways through a function, as McCabe counts them."""
    count = 1
    for node in ast.walk(function):
        match node:
            case ast.BoolOp():
                count += len(node.values) - 1
            case ast.If() | ast.IfExp() | ast.For() | ast.While() | ast.ExceptHandler():
                count += 1
            case ast.comprehension() | ast.match_case():
                count += 1
            case _:
                pass
    return count


def _too_many(
    source: Source,
    node: ast.ClassDef | ast.FunctionDef,
    count: int,
    most: int,
    known: dict[str, int],
) -> Iterator[Fault]:
    written = known.get(f"{source.path} {node.name}", most)
    if count > most and count > written:
        yield Fault(
            source.path, node.lineno, "size", f"{node.name} has {count}, {most} are the limit"
        )
    elif count != written and written > most:
        detail = f"{node.name} has {count} now: the list of what has too many says {written}"
        yield Fault(source.path, node.lineno, "size", detail)


def check_fields(source: Source) -> Iterator[Fault]:
    """So much state can be held in mind. Of configuration each field stands alone."""
    if source.path.startswith("tests/") or source.path.endswith("/config.py"):
        return
    most = PLANNER_FIELDS_MAX if source.path.startswith("peer/planner/") else FIELDS_MAX
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef):
            yield from _too_many(source, node, len(fields_of(node)), most, TOO_MANY_FIELDS)


def check_branches(source: Source) -> Iterator[Fault]:
    """Of the planner only: a ladder of cases elsewhere is a decoder's."""
    if not source.path.startswith("peer/planner/"):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef):
            count = branches_of(node)
            yield from _too_many(source, node, count, PLANNER_BRANCHES_MAX, TOO_MANY_BRANCHES)


# What may be called there only, where the rule is kept. A backup's files are used by nobody else.
ONLY_THERE = {
    "remove_file": "logstore/files.py _remove_free, logstore/backup_copy.py remove_garbage",
    "_remove_free": "logstore/files.py remove",
    "Connection": "logstore/schema.py connect",
}


def check_only_there(source: Source) -> Iterator[Fault]:
    """A payload file is removed by who has asked for its state, a database opened by who waits."""
    if not source.path.startswith("logstore/"):
        return
    for function in ast.walk(source.tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            name = node.func.attr
            places = ONLY_THERE.get(name)
            if places and f"{source.path} {function.name}" not in places.split(", "):
                detail = f"{name} is called in {places} and nowhere else"
                yield Fault(source.path, node.lineno, "only there", detail)


def check_markers(source: Source) -> Iterator[Fault]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if found := _MARKER.search(line):
            detail = f"{found[1]} is left over: do it, or write an issue"
            yield Fault(source.path, number, "leftover marker", detail)


def check_package_docstring(source: Source) -> Iterator[Fault]:
    if not source.path.endswith("/__init__.py") or source.path.startswith("tests/"):
        return
    if not ast.get_docstring(source.tree):
        detail = "the first lines of a package say what the layer is"
        yield Fault(source.path, 1, "package docstring", detail)


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module: `from a import b` is `a.b` where that is a layer or a file of ours."""

    module: str
    line: int
    relative: bool


def imports(source: Source, files: frozenset[str]) -> Iterator[Import]:
    """Every import of a file, those inside functions and for types only too."""
    here = module_name(source.path)
    package = here if source.path.endswith("/__init__.py") else here.rpartition(".")[0]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, relative=False)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                kept = parents[: len(parents) - node.level + 1]
                base = ".".join([*kept, base] if base else kept)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                whole = inner in LAYERS or is_module(inner, files)
                yield Import(inner if whole else base, node.lineno, relative=node.level > 0)


def is_module(name: str, files: frozenset[str]) -> bool:
    path = name.replace(".", "/")
    return f"{path}.py" in files or f"{path}/__init__.py" in files


def check_imports(source: Source, files: frozenset[str]) -> Iterator[Fault]:
    """The arrows, the roots, relative inside and absolute outside, and no input or output below."""
    here = module_name(source.path)
    own_name = layer_of(here)
    if own_name is None:
        return
    for found in imports(source, files):
        target = layer_of(found.module)
        if target is None:
            yield from _check_library(source, own_name, found)
        elif target == own_name:
            if not found.relative:
                detail = f"{found.module} is of the same package: import it relatively"
                yield Fault(source.path, found.line, "relative inside", detail)
        else:
            yield from _check_crossing(source, own_name, target, found)


def _check_crossing(source: Source, own_name: str, target: str, found: Import) -> Iterator[Fault]:
    if target not in LAYERS[own_name].layers:
        detail = f"{own_name} must not import {target}"
        yield Fault(source.path, found.line, "layer arrows", detail)
    # A single file that is a layer of its own lives inside the package that it builds on.
    in_folder_of_target = module_name(source.path).rpartition(".")[0] == target
    if found.relative and not in_folder_of_target:
        detail = f"{found.module} is of another layer: import it absolutely"
        yield Fault(source.path, found.line, "absolute across", detail)
    inside = any(target in house and own_name in house for house in HOUSES)
    if not found.relative and found.module != target and not inside:
        detail = f"{found.module}: import from {target}, the package root"
        yield Fault(source.path, found.line, "package root", detail)


def _check_library(source: Source, own_name: str, found: Import) -> Iterator[Fault]:
    layer = LAYERS[own_name]
    library = found.module.partition(".")[0]
    if library in layer.libraries:
        return
    if layer.sans_io and library in IO_MODULES:
        detail = f"{own_name} must not import {found.module}"
        yield Fault(source.path, found.line, "sans-io", detail)
    elif library in LIBRARIES:
        detail = f"{own_name} must not import {library}"
        yield Fault(source.path, found.line, "libraries", detail)


Check = Callable[[Source], Iterator[Fault]]
CHECKS: tuple[Check, ...] = (
    check_branches,
    check_fields,
    check_file_length,
    check_function_lengths,
    check_markers,
    check_only_there,
    check_package_docstring,
)


def sources(root: Path = ROOT) -> list[Source]:
    """Every Python file of the repository's own folders."""
    folders = [*PACKAGES, "bench", "fuzz", "scripts", "siege", "tests"]
    paths = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    return [Source(path.relative_to(root).as_posix(), path.read_text("utf-8")) for path in paths]


def check_all(found: list[Source]) -> Iterator[Fault]:
    """Every fault of these files."""
    files = frozenset(source.path for source in found)
    for source in found:
        for check in CHECKS:
            yield from check(source)
        yield from check_imports(source, files)
