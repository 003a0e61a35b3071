"""The certificate of a node key, and whose key a certificate holds (doors.md 2).

A certificate only carries a key here. Whoever shows it has to prove that he has that key, which TLS
asks for; chain, names, dates, serial number and version say nothing, and are not looked at. Nor is
the certificate given to a parser that looks at them all and raises what it pleases: one of version
2, from anybody, ended nodes that caught only what such a parser was known to raise.
"""

from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, rsa, x448, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from nacl.signing import SigningKey
from OpenSSL import crypto

# Nothing depends on clocks: as early and as late as the format has it.
_FROM: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNTIL: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)

_KINDS: Final = (
    (rsa.RSAPublicKey, "RSA"),
    (ec.EllipticCurvePublicKey, "an elliptic curve's"),
    (dsa.DSAPublicKey, "DSA"),
    (ed448.Ed448PublicKey, "Ed448"),
    (x25519.X25519PublicKey, "X25519"),
    (x448.X448PublicKey, "X448"),
)


class CertificateError(Exception):
    """A certificate holds no key of a node; the text says what it holds."""


def private_key(key: SigningKey) -> Ed25519PrivateKey:
    """The same key for TLS."""
    return Ed25519PrivateKey.from_private_bytes(bytes(key))


def make_certificate(key: Ed25519PrivateKey) -> x509.Certificate:
    """A certificate of a node key, signed with that key. It is never written to disk."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bamboo-peer")])
    builder = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=_FROM,
        not_valid_after=_UNTIL,
    )
    return builder.sign(key, None)


def peer_id_of(certificate: crypto.X509) -> bytes:
    """The peer id (32 bytes) whose key a certificate holds. Raises CertificateError.

    What cannot be read is not named: strangers would choose what is written into our log.
    """
    try:
        key = certificate.get_pubkey().to_cryptography_key()
    except Exception:  # noqa: BLE001 - whatever a stranger has put there
        raise CertificateError("the certificate's key cannot be read") from None
    if isinstance(key, Ed25519PublicKey):
        return key.public_bytes_raw()
    kind = next((name for cls, name in _KINDS if isinstance(key, cls)), "of another kind")
    raise CertificateError(f"the certificate's key is {kind}, not Ed25519")
