"""What goes on for ever: in a world at rest, nothing is asked for again and again."""

from collections import Counter
from typing import TYPE_CHECKING

from peer import RequestCancelled, RequestConfirmed
from wire import LogKey

from .truth import Broken, short

if TYPE_CHECKING:
    from .world import World

REST_S = 240.0
"""After so long, what is tried again is tried once a minute (peer/planner/lacking.py)."""
WATCHED_S = 150.0
TIMES_MAX = 8
"""Once a minute by who is asked for what nobody else brings, and as often by the source of a log,
which may have changed hands.
"""


def check_lasting(world: "World") -> None:
    """Watches a world for some minutes. Raises Broken."""
    world.run_for(REST_S)
    before = {end: len(end.notices) for link in world.links for end in link.ends}
    world.run_for(WATCHED_S)
    for link in world.links:
        for end in link.ends:
            if end not in before:
                raise Broken(f"{end} is new in a world at rest")
            asked = Counter[tuple[LogKey, int, int | None]]()
            cancelled = Counter[LogKey]()
            for notice in end.notices[before[end] :]:
                if isinstance(notice, RequestConfirmed) and notice.ours:
                    asked[notice.log, notice.start, notice.end] += 1
                elif isinstance(notice, RequestCancelled):
                    cancelled[notice.log] += 1
            for (log, start, last), times in asked.items():
                if times > TIMES_MAX:
                    raise Broken(f"{end} asks {times} times for {start} to {last} of {short(log)}")
            for log, times in cancelled.items():
                entries = len(world.truth.entries[log])
                if times > TIMES_MAX * (entries + 5):
                    raise Broken(f"{end}: {times} requests of {short(log)} in {WATCHED_S:.0f} s")
