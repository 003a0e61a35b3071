"""Keys of nodes: secp256k1, as Ethereum uses it (spec section 2.2).

A node *is* its key. Its public key names it to who calls it, the hash of that is its place among
the addresses of chunks, and by its signature somebody is held to what was said. A signature carries
one bit more than it must, by which the key is found from it: nobody says who signed.

Two libraries take part. libsecp256k1 signs (deterministically, so that the same statement is the
same bytes) and recovers. The product of a stranger's point and our key is OpenSSL's: what
libsecp256k1 has for this takes a time that depends on the key, and strangers measure it.
"""

import re
from typing import Final, NamedTuple

import coincurve
from cryptography.hazmat.primitives.asymmetric import ec

from gateways.reading import CodecError
from gateways.swarm.keccak import keccak

SECRET_BYTES: Final = 32
PUBLIC_BYTES: Final = 64
DIGEST_BYTES: Final = 32
SIGNATURE_BYTES: Final = 65
PORT_MAX: Final = (1 << 16) - 1
_ORDER: Final = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
_UNCOMPRESSED: Final = b"\x04"
_RECOVERY_MAX: Final = 1
_ENODE: Final = re.compile(
    r"enode://([0-9a-fA-F]{128})@(\[[0-9a-fA-F:.]+\]|[^\s\[\]:@/?#]+):([0-9]{1,5})"
    r"(?:\?discport=[0-9]{1,5})?"
)


def is_secret(secret: bytes) -> bool:
    """Whether these bytes are a secret key: 32 of them, and from 1 to below the curve's order."""
    return len(secret) == SECRET_BYTES and 0 < int.from_bytes(secret, "big") < _ORDER


class Key:
    """A secret key, and what is done with it. Raises ValueError if the bytes are none."""

    __slots__ = ("_agreeing", "_signing", "public")

    public: bytes
    """64 bytes, x and y."""

    def __init__(self, secret: bytes) -> None:
        if not is_secret(secret):
            raise ValueError("no secret key of secp256k1")
        self._signing = coincurve.PrivateKey(secret)
        self._agreeing = ec.derive_private_key(int.from_bytes(secret, "big"), ec.SECP256K1())
        self.public = self._signing.public_key.format(compressed=False)[1:]

    def dh(self, public: bytes) -> bytes:
        """The x coordinate of this key times a public key: 32 bytes.

        Raises CodecError if the public key is no point of the curve: the product with a point of
        another, smaller curve would tell of the secret.
        """
        try:
            point = ec.EllipticCurvePublicKey.from_encoded_point(
                ec.SECP256K1(), _UNCOMPRESSED + public
            )
        except ValueError:
            raise CodecError("a public key that is no point of secp256k1") from None
        return self._agreeing.exchange(ec.ECDH(), point)

    def sign(self, digest: bytes) -> bytes:
        """r, s and v of these 32 bytes, which are not hashed again: 65 bytes."""
        return self._signing.sign_recoverable(digest, hasher=None)


def recover(digest: bytes, signature: bytes) -> bytes:
    """The public key, 64 bytes, whose signature of these 32 bytes it is. Raises CodecError."""
    if len(signature) != SIGNATURE_BYTES or signature[-1] > _RECOVERY_MAX:
        raise CodecError("a signature that is not 65 bytes with 0 or 1 at the end")
    try:
        found = coincurve.PublicKey.from_signature_and_message(signature, digest, hasher=None)
    except ValueError:
        raise CodecError("a signature that nobody can have made") from None
    return found.format(compressed=False)[1:]


def overlay_of(public: bytes) -> bytes:
    """The overlay address of a public key: 32 bytes."""
    return keccak(_UNCOMPRESSED, public)


class Enode(NamedTuple):
    """Where a node is, and who is to be there."""

    public: bytes
    host: str
    """A name or an address, one of IPv6 without its brackets."""
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"enode://{self.public.hex()}@{host}:{self.port}"


def read_enode(text: str) -> Enode:
    """The text form; where a node is looked for by discovery is ignored. Raises CodecError."""
    found = _ENODE.fullmatch(text)
    if found is None or not 0 < int(found[3]) <= PORT_MAX:
        raise CodecError(f"{text[:200]!r} is no enode://PUBLIC_KEY@HOST:PORT")
    public = bytes.fromhex(found[1])
    try:
        coincurve.PublicKey(_UNCOMPRESSED + public)
    except ValueError:
        raise CodecError(f"{text[:24]}... names a key that is no point of secp256k1") from None
    return Enode(public, found[2].strip("[]"), int(found[3]))
