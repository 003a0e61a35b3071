"""Own entries, signed (bamboo.md): one, or a run of them in one log.

Theory. Two thirds of what an append costs are signatures, and none of them can begin before the
entry before it has its hash. So a run is signed in one loop. The native core has one that takes
half as long as libsodium, and lets go of the interpreter's lock once: PyNaCl does for each
signature, and where an event loop is busy beside it has to wait for that to be done.

Whichever signs, the bytes are the same: Ed25519 leaves nothing to chance. So a log may go on with
the core, without it and with it again, and `fault_of` (native.py) asks a core for a signature that
RFC 8032 prints before it is trusted with any: one wrong would be the end of its author's log.
"""

from collections.abc import Callable, Sequence

from nacl.signing import SigningKey

from .entry import encode_unsigned
from .native import NATIVE, NativeCore
from .pools import has_distinct_lipmaalink, lipmaa
from .yamf import yamf_hash

Signed = tuple[bytes, bytes]
"""An entry: its encoding and that one's hash."""
Payload = tuple[int, bytes, *tuple[object, ...]]
"""Its size in bytes, and its hash. More may follow, at which nobody looks."""


def sign_entry(
    signing_key: SigningKey,
    *,
    log_id: int,
    seq: int,
    is_end: bool,
    lipmaalink: bytes | None,
    backlink: bytes | None,
    payload_bytes: int,
    payload_hash: bytes,
) -> bytes:
    """The encoding of a new entry by the owner of `signing_key`; EntryError as `encode_entry`."""
    unsigned = encode_unsigned(
        bytes(signing_key.verify_key),
        log_id=log_id,
        seq=seq,
        is_end=is_end,
        lipmaalink=lipmaalink,
        backlink=backlink,
        payload_bytes=payload_bytes,
        payload_hash=payload_hash,
    )
    return unsigned + signing_key.sign(unsigned).signature


class Signer:
    """Signs runs of entries with one key: for a while, as the native core has a copy of it."""

    def __init__(self, signing_key: SigningKey, native: NativeCore | None = NATIVE) -> None:
        """`native`: a test takes None, and Python and libsodium do the work."""
        self._key = signing_key
        self._native = None if native is None else native.Signer(bytes(signing_key))

    def sign_run(
        self,
        log_id: int,
        seq: int,
        backlink: bytes | None,
        payloads: Sequence[Payload],
        link_of: Callable[[int], bytes],
        *,
        is_end: bool = False,
    ) -> list[Signed]:
        """An entry for each payload, from `seq` on.

        `backlink`: the hash of entry `seq` - 1, None if the log begins here. `link_of` tells the
        hash of an entry before that one, to which one of these links; what it raises is raised.
        `is_end`: the last one ends the log. Raises EntryError as `encode_entry`.
        """
        if self._native is not None:
            made = self._native.sign_run(log_id, seq, is_end, backlink, link_of, [*payloads])
            if made is not None:
                return made
        hashes = {} if backlink is None else {seq - 1: backlink}
        signed = []
        for number, (payload_bytes, payload_hash, *_) in enumerate(payloads, seq):
            link = None
            if has_distinct_lipmaalink(number):
                target = lipmaa(number)
                link = hashes.get(target) or link_of(target)
            encoded = sign_entry(
                self._key,
                log_id=log_id,
                seq=number,
                is_end=is_end and number == seq + len(payloads) - 1,
                lipmaalink=link,
                backlink=hashes.get(number - 1),
                payload_bytes=payload_bytes,
                payload_hash=payload_hash,
            )
            hashes[number] = yamf_hash(encoded)
            signed.append((encoded, hashes[number]))
        return signed
