"""The native core, if there is one: what costs most, compiled, and without the interpreter's lock.

It is a package of its own (`native/`, `bamboo_native` where it is installed), and optional. Each of
its functions equals one in Python, named beside it here; that one is the oracle of its tests, and
does the work where the core is missing or switched off. A core that does not judge the twelve test
signatures as every peer has to is not used.
"""

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol, cast

from wire.environment import Wanted, native_wanted

from .speccheck import SPECCHECK, VALID_VECTOR

log = logging.getLogger(__name__)

INTERFACE: Final = 6
"""Which core this is written for; raised with every change of a function's arguments or result."""

# RFC 8032 7.1, test 2.
_SEED: Final = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
_MESSAGE: Final = b"\x72"
_SIGNATURE: Final = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


class NativePayloadHasher(Protocol):
    """`PythonPayloadHasher`."""

    def update(self, data: bytes) -> None: ...
    def digest_yamf(self) -> bytes: ...


class NativeLZFooDecoder(Protocol):
    """`PythonLZFooDecoder`."""

    @property
    def wanted(self) -> int: ...
    @property
    def finished(self) -> bool: ...
    def start(self, uncompressed_bytes: int, compressed_bytes: int) -> None: ...
    def feed(self, data: bytes) -> None: ...
    def read(self) -> bytes: ...


class NativeSigner(Protocol):
    """What signs with one key."""

    def sign(self, message: bytes) -> bytes:
        """`SigningKey.sign`: 64 bytes."""

    def sign_run(
        self,
        log_id: int,
        seq: int,
        is_end: bool,
        backlink: bytes | None,
        link_of: Callable[[int], bytes],
        payloads: list[Any],
        /,
    ) -> list[tuple[bytes, bytes]] | None:
        """`Signer.sign_run`; None where anything is wrong, for Python to say what."""


class VerifyPool(Protocol):
    """Threads that check signatures and never take the interpreter's lock."""

    def fileno(self) -> int:
        """A file descriptor that is readable while there is something to take."""

    def submit(self, number: int, entries: list[bytes]) -> None:
        """Queues a batch. Raises OSError, and takes nothing, where no thread can be had."""

    def take(self) -> list[tuple[int, bytes | str]]:
        """What was answered since the last call, in any order.

        Numbers of batches, and verdicts as of `signatures_are_valid`, or the text of a fault.
        """

    def close(self) -> None:
        """Forgets what waits, and returns once the threads have ended."""


class NativeCore(Protocol):
    """The functions of the core. RuntimeError from any of them is a bug in it."""

    __version__: str
    INTERFACE: int

    PayloadHasher: Callable[[], NativePayloadHasher]
    LZFooDecoder: Callable[[int, type[Exception]], NativeLZFooDecoder]
    Signer: Callable[[bytes], NativeSigner]
    """With a key's seed, 32 bytes."""
    Pool: Callable[[int], VerifyPool]
    """With so many threads at most; OSError where there are no file descriptors left."""

    def yamf_hash(self, data: bytes) -> bytes:
        """`yamf_hash`."""

    def signature_is_valid(self, encoded: bytes) -> bool:
        """`python_signature_is_valid`."""

    def signatures_are_valid(self, entries: list[bytes]) -> bytes:
        """`python_signature_is_valid` of each."""

    def verify(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        """`python_verify`, the way of an author who is seen seldom."""

    def verify_with_tables(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        """`python_verify`, the way of an author who is seen often."""

    def parse_run(
        self,
        data: bytes,
        offset: int,
        author: bytes,
        log_id: int,
        seq: int,
        hashes: dict[int, bytes],
        entries_max: int,
        payload_bytes_max: int,
        with_backlink: bool,
        /,
    ) -> tuple[list[tuple[int, bytes, bytes, bytes]], int | None, int]:
        """`python_parse_run`."""

    def parse_payloads(
        self,
        data: bytes,
        offset: int,
        log_id: int,
        seq: int,
        encodings: list[bytes],
        payload_bytes_max: int,
        /,
    ) -> tuple[list[bytes], int]:
        """`python_parse_payloads`."""

    def rows_to_write(
        self,
        entries: list[Any],
        start: int,
        place: object,
        hashes: dict[int, bytes],
        encodings: dict[int, bytes],
        hash_of: Callable[[int], bytes | None],
        /,
    ) -> tuple[list[Any], int, int]:
        """`logstore.usual.python_rows_to_write`; `place`: a `Place` of that module."""

    def rows_to_fill(
        self, entries: list[Any], start: int, place: object, lacking: list[Any], at: int, /
    ) -> tuple[list[Any], int]:
        """`logstore.usual.python_rows_to_fill`."""

    def rows_read(
        self,
        rows: list[Any],
        key: tuple[bytes, int],
        start: int,
        states: dict[int, Any],
        whole: int,
        /,
    ) -> list[tuple[Any, ...]]:
        """`logstore.usual.python_rows_read`: the fields of its entries. `whole`: which of the
        states says that the payload is in the row."""

    def lz4_to_lzfoo(self, block: bytes, data: bytes, window: int) -> bytes:
        """`python_lz4_to_lzfoo`."""

    def content_address(self, chunk: bytes) -> bytes:
        """`gateways.swarm.bmt.python_content_address`."""

    def panics(self) -> None:
        """Raises RuntimeError, as any bug would."""


class NativeState(NamedTuple):
    """Which core is in use, or why none is."""

    version: str | None
    """None if Python does the work."""
    reason: str
    """Why it does."""

    def __str__(self) -> str:
        return self.version or f"no ({self.reason})"

    def fields(self) -> dict[str, str | None]:
        """As JSON has it."""
        return {"version": self.version, "reason": self.reason or None}


def _found() -> tuple[NativeCore | None, str]:
    """The core that is to be used, or why there is none."""
    if native_wanted() is Wanted.NO:
        return None, "BAMBOO_NATIVE=0"
    core = None
    try:
        core = cast("NativeCore", import_module("bamboo_native"))
        fault = fault_of(core)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "bamboo_native":
            return None, "not installed"
        fault = f"cannot be loaded: {error}"
    except (AttributeError, RuntimeError) as error:
        fault = f"faulty: {error}"
    if fault is None:
        return core, ""
    log.warning("the native core is not used: %s", fault)
    return None, fault


def fault_of(core: NativeCore) -> str | None:
    """Why a core cannot be used: it is another one, or judges or makes other signatures."""
    if core.INTERFACE != INTERFACE:
        return f"its interface is {core.INTERFACE}, not {INTERFACE}: install it anew"
    for verify in (core.verify, core.verify_with_tables):
        accepted = [i for i, vector in enumerate(SPECCHECK) if verify(*vector)]
        if accepted != [VALID_VECTOR]:
            return f"of the 12 test signatures it accepts {accepted}, not [{VALID_VECTOR}]"
    if core.Signer(_SEED).sign(_MESSAGE) != _SIGNATURE:
        return "it does not sign as RFC 8032 says"
    return None


def _state(core: NativeCore | None, reason: str) -> NativeState:
    if core is None and native_wanted() is Wanted.DEMANDED:
        raise ImportError(f"BAMBOO_NATIVE=1 demands the native core: {reason}")
    return NativeState(None if core is None else core.__version__, reason)


_CORE, _REASON = _found()
NATIVE: Final = _CORE
"""The native core, or None where Python does the work."""
NATIVE_STATE: Final = _state(_CORE, _REASON)
