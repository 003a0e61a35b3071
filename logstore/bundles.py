"""Carrying logs in files and pipes (everyday.md 5): what a program calls.

The bytes are in bundle_records.py, writing them in bundle_export.py and bundle_files.py, and taking
them in in bundle_import.py. None of these is loaded before it is needed.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from .records import BundleExported, BundleImported, Follow

if TYPE_CHECKING:
    from .bundle_export import Readable, Writable
    from .store import Store
    from .view import StoreView


def write_have(store: "StoreView", out: "Writable") -> int:
    """Writes what a store holds, for `export_bundle` of another one; how many logs (everyday.md 5).

    Of each log up to which entry nothing is missing of all that is wanted. `out`: a binary file,
    whose errors are let out. Raises StoreError.
    """
    from .bundle_export import write_have as write

    return write(store, out)


def export_bundle(
    store: "Store",
    to: "Path | Writable",
    targets: Iterable[Follow] | None = None,
    *,
    have: "Readable | None" = None,
    payloads: bool = True,
    report: Callable[[str], None] = lambda _: None,
) -> BundleExported:
    """Writes a bundle of some logs (of authors: all of theirs), or of all (everyday.md 5).

    `to`: a file, on disk when this returns, which is begun or, if it has a part of the same export,
    gone on with; or a binary file object, whose errors are let out. `have`: what `write_have` of
    the receiver has written; it has `read1`, as binary files have. `report` is told of what is
    damaged and left out. Own entries count as shared with others from then on (`shared`).

    Raises BundleRefused for a file of anything else, a complete one of which there is more by now,
    and a `have` that is none; StoreLocked while another export writes to the file; other subclasses
    of StoreError for what the disks do.
    """
    from . import bundle_export, bundle_files

    held = {} if have is None else bundle_export.read_have(store, have)
    plan = bundle_export.plan_export(store, targets, held, payloads=payloads)
    if isinstance(to, Path):
        return bundle_files.export_to_file(store, plan, to, report)
    return bundle_files.export_to_stream(store, plan, to, report)


def import_bundle(
    store: "Store", stream: "Readable", report: Callable[[int, str], None] = lambda *_: None
) -> BundleImported:
    """Takes in a bundle, by the checks that go for what a peer brings (everyday.md 5).

    `stream` has `read1`, as binary files have; its errors are let out. `report` is told of what was
    passed over: the offset of its record in bytes, and why. What is wrong with a bundle is no
    error, but in the result. In small memory; whoever ends it, what was whole is kept, also of a
    payload. Raises StoreError for what the disk does.
    """
    from .bundle_import import import_bundle as take

    return take(store, stream, report)
