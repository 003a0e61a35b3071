"""Keccak-256 with its original padding, which is not SHA3-256: `K` of the specification."""

from typing import Final, Protocol

import sha3

HASH_BYTES: Final = 32


class Running(Protocol):
    """A state that goes on."""

    def update(self, data: bytes) -> None:
        """Takes more bytes."""

    def copy(self) -> "Running":
        """Another one that has taken the same."""

    def digest(self) -> bytes:
        """The hash of what was taken: 32 bytes."""


def keccak(*parts: bytes) -> bytes:
    """The hash of some bytes, one behind the other: 32 bytes."""
    state = sha3.keccak_256()
    for part in parts:
        state.update(part)
    digest: bytes = state.digest()
    return digest


def running(data: bytes = b"") -> Running:
    """A state that has taken some bytes."""
    state: Running = sha3.keccak_256(data)
    return state
