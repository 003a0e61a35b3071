"""Takes as much of a core as an attack took, and touches nothing.

    python -m siege.burning SHARE

What honest peers have beside it is what the machine leaves them: on one with two cores they and the
node take both, and an attacker that computes is missing in their rate whatever the node does.
"""

import sys
import time
from contextlib import suppress
from typing import Final

SLICE_S: Final = 0.001
"""Shorter than what the scheduler gives at a time, as an attacker's own work is."""


def burn(share: float) -> None:
    """Until it is killed. `share`: of one core, 0 to 1."""
    began = time.monotonic()
    while True:
        ahead_s = time.process_time() - share * (time.monotonic() - began)
        if ahead_s > 0:
            time.sleep(SLICE_S)
        else:
            until = time.perf_counter() + SLICE_S
            while time.perf_counter() < until:
                pass


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        burn(float(sys.argv[1]))
