"""Ed25519 signatures of entries, with the one verdict that every peer reaches (bamboo.md).

The rule is the equation of libsodium's releases, one signature at a time: S < L, a canonical key
that is not of small order, R not of small order, no cofactor. It is checked by the native core or
through PyNaCl. Other libraries, and libsodium after 1.0.22, disagree on crafted signatures, so a
start-up self-test pins the verdicts.
"""

from collections.abc import Callable, Sequence

from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from .entry import AUTHOR_BYTES, SIGNATURE_BYTES
from .errors import SignatureLibraryError
from .native import NATIVE
from .speccheck import SPECCHECK, VALID_VECTOR

_SIGNED_BYTES_MIN = 1 + AUTHOR_BYTES + SIGNATURE_BYTES


def signature_is_valid(encoded: bytes) -> bool:
    """Whether the signature at the end of an entry's encoding is its author's.

    `encoded` is one that `decode_entry` takes or `rebuild_entry` returned; bytes too short to
    hold a signature have none that is valid.
    """
    if NATIVE is not None:
        return NATIVE.signature_is_valid(encoded)
    return python_signature_is_valid(encoded)


def signatures_are_valid(entries: Sequence[bytes]) -> bytes:
    """`signature_is_valid` of each: one byte for each encoding, 1 or 0."""
    if NATIVE is not None:
        return NATIVE.signatures_are_valid(list(entries))
    return bytes(map(python_signature_is_valid, entries))


def python_signature_is_valid(encoded: bytes) -> bool:
    """`signature_is_valid` without the native core."""
    if len(encoded) < _SIGNED_BYTES_MIN:
        return False
    return python_verify(encoded[1 : 1 + AUTHOR_BYTES], encoded[:-SIGNATURE_BYTES], encoded[-64:])


def python_verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature of `message` is valid, by libsodium; the lengths have to be right."""
    try:
        crypto_sign_open(signature + message, public_key)
    except BadSignatureError:
        return False
    return True


def signature_self_test(verify: Callable[[bytes, bytes, bytes], bool] = python_verify) -> None:
    """Checks that the library accepts exactly vector 3 of the twelve "speccheck" signatures.

    `verify` takes public key, message and signature; a test gives another one. Raises
    SignatureLibraryError otherwise: a node that goes on would split the network. The native core
    has had the same test when it was loaded.
    """
    accepted = [i for i, vector in enumerate(SPECCHECK) if verify(*vector)]
    if accepted != [VALID_VECTOR]:
        raise SignatureLibraryError(
            "the installed libsodium (PyNaCl) judges Ed25519 signatures by another rule than other "
            f"peers: of the 12 test signatures it accepts {accepted}, not [{VALID_VECTOR}]"
        )
