"""Signals that others than an operator may cause to come often."""

from typing import Final

from siege.attack import Attack

ATTACKS: Final = (
    Attack(
        "signals",
        "SIGHUP, SIGUSR1 and SIGUSR2, thirty a second in all",
        None,
        connections=0,
        signals=True,
        node_reads=0,
    ),
)
