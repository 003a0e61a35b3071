"""Machines of their own, for tests with one key on several: each notes what is signed on it."""

from pathlib import Path

from logstore import System


class Machine(System):
    """This machine, with another state directory."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def state_folder(self) -> Path:
        return self._state
