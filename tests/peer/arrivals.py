"""What the rig's store tells of payloads that came late, as the product's does."""

from typing import TYPE_CHECKING

from logstore import Arrived
from peer.protocol.commands import LookUp

if TYPE_CHECKING:
    from .rig import Store


def arrived_in(store: "Store", item: LookUp) -> Arrived:
    """`LogView.arrived`."""
    if item.arrived_after is None:
        return Arrived((), store.place)
    held, found = store.logs[item.log], list[tuple[int, int]]()
    for (log, seq), place in sorted(store.arrived.items()):
        asked = any(first <= seq <= last for first, last in item.arrived_among)
        if log != item.log or place <= item.arrived_after or not asked:
            continue
        if held[seq].payload is None:
            continue
        between = range(found[-1][1] + 1, seq) if found else range(0)
        if found and all(n not in held or held[n].payload is not None for n in between):
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return Arrived(tuple(found), store.place)
