"""What somebody has to look at: `status`, `status --check`, `check` and the page all ask here.

An alarm is something that does not mend itself and that nobody may have noticed: a full disk, a
fork, damage. To be behind is none: that is what a node is for, and `check` has thresholds for it.
"""

import shutil
from collections.abc import Iterator, Mapping
from typing import Any, Final

from logstore import ForkProof, Store, subscription_of
from peer import json_number, log_fields

from .values import rfc3339, size

FREE_BYTES_MIN: Final = 1 << 20
"""With less than this free nothing is stored any more that deserves the name."""
_FULL: Final = "the disk is full"

Alarm = dict[str, object]


def alarms_of(store: Store, node: Mapping[str, Any] | None) -> list[Alarm]:
    """What is wrong, `kind` by kind: `disk_full`, `fork`, `damage`.

    `node`: what the node that serves the store says of itself, if one does.
    """
    return [*_disk(store, node), *_forks(store), *_damage(store)]


def _disk(store: Store, node: Mapping[str, Any] | None) -> Iterator[Alarm]:
    if store.path is not None:
        free = shutil.disk_usage(store.path).free
        if free < FREE_BYTES_MIN:
            yield _alarm("disk_full", f"{_FULL}: {size(free)} free at {store.path}; free space")
            return
    for each in (node or {}).get("connections", ()):
        # Where a quota of the system, and not the disk, is what is full.
        if str(each.get("not_kept") or "").startswith(_FULL):
            yield _alarm("disk_full", str(each["not_kept"]))
            return


def forks_that_matter(store: Store) -> Iterator[ForkProof]:
    """Of logs that are held or followed: others are nobody's trouble here."""
    subscriptions = store.subscriptions()
    for proof in store.forks():
        info = store.log(proof.key)
        held = info is not None and info.entries > 0
        if held or subscription_of(subscriptions, proof.key) is not None:
            yield proof


def _forks(store: Store) -> Iterator[Alarm]:
    dismissed = store.alarms.dismissed()
    for proof in forks_that_matter(store):
        if proof.key not in dismissed:
            text = f"{proof.key} was signed twice at entry {proof.seq} (`forks show`)"
            yield _alarm("fork", text) | log_fields(proof.key) | {"seq": json_number(proof.seq)}


def _damage(store: Store) -> Iterator[Alarm]:
    for fault in store.alarms.faults():
        alarm = _alarm("damage", fault.text) | {"since": rfc3339(fault.since)}
        if fault.log is not None:
            alarm |= log_fields(fault.log)
        if fault.seq is not None:
            alarm["seq"] = json_number(fault.seq)
        yield alarm


def _alarm(kind: str, text: str) -> Alarm:
    return {
        "kind": kind,
        "author": None,
        "log_id": None,
        "seq": None,
        "text": text,
        "since": None,
    }
