"""Bamboo's bytes: encodings, entries, certificate pools and the messages of replication.

This layer turns bytes into values and back, and knows nothing else: it does no input or output,
reads no clock, keeps no log, and imports none of the other packages. Functions that take bytes of
a peer raise only the errors of this package, and allocate in proportion to the bytes given, never
to a length that these claim.

Specifications: encodings.md, bamboo.md, and the byte layouts of point2point.md 1, 2 and 4. What a
message means for the requests of a session is judged by the layer above.
"""

from .entry import (
    AUTHOR_BYTES,
    ENTRY_BYTES_MAX,
    SIGNATURE_BYTES,
    Entry,
    LogKey,
    decode_entry,
    decode_entry_prefix,
    encode_entry,
    rebuild_entry,
    tail_fields,
    tail_offset,
    verify_links,
)
from .errors import EntryError, NeedMore, SignatureLibraryError, Violation
from .lipmaa import (
    has_distinct_lipmaalink,
    in_lower_pool,
    in_upper_pool,
    lipmaa,
    lower_pool,
    shortest_path,
    upper_pool,
)
from .signature import sign_entry, signature_is_valid, signature_self_test
from .varu64 import U64_MAX, VARU64_BYTES_MAX, decode_varu64, decode_varu64_canonical, encode_varu64
from .yamf import HASH_BYTES, PayloadHasher, decode_yamf, yamf_from_digest, yamf_hash

__all__ = [
    "AUTHOR_BYTES",
    "ENTRY_BYTES_MAX",
    "HASH_BYTES",
    "SIGNATURE_BYTES",
    "U64_MAX",
    "VARU64_BYTES_MAX",
    "Entry",
    "EntryError",
    "LogKey",
    "NeedMore",
    "PayloadHasher",
    "SignatureLibraryError",
    "Violation",
    "decode_entry",
    "decode_entry_prefix",
    "decode_varu64",
    "decode_varu64_canonical",
    "decode_yamf",
    "encode_entry",
    "encode_varu64",
    "has_distinct_lipmaalink",
    "in_lower_pool",
    "in_upper_pool",
    "lipmaa",
    "lower_pool",
    "rebuild_entry",
    "shortest_path",
    "sign_entry",
    "signature_is_valid",
    "signature_self_test",
    "tail_fields",
    "tail_offset",
    "upper_pool",
    "verify_links",
    "yamf_from_digest",
    "yamf_hash",
]
