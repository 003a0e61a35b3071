"""Who uses the machine meanwhile: the siege's own processes, and all others."""

import os
import time
from pathlib import Path

from bench.support.processes import used_cpu_s


def _busy_s() -> float:
    """Seconds of cores that were used by anybody since the machine was started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    # user, nice, system, irq, softirq, steal: all but idle and iowait; guests count as user.
    used = [int(fields[at]) for at in (0, 1, 2, 5, 6, 7)]
    return sum(used) / os.sysconf("SC_CLK_TCK")


class Machine:
    """Measures from when it is made. What this process has started counts as its own."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._busy = _busy_s()
        self._used = used_cpu_s(os.getpid())

    def others(self) -> float:
        """Share of all cores that went to others, 0 to 1."""
        wall = (time.monotonic() - self._at) * (os.cpu_count() or 1)
        busy = _busy_s() - self._busy
        own = used_cpu_s(os.getpid()) - self._used
        return max(0.0, min(1.0, (busy - own) / wall))
