"""Bamboo's bytes: encodings, entries, certificate pools and the messages of replication.

This layer turns bytes into values and back, and knows nothing else: it does no input or output,
reads no clock, keeps no log, and imports none of the other packages. (How those load their names
late is here too: nothing else is below all of them.) Functions that take bytes of a peer raise only
the errors of this package, and allocate in proportion to the bytes given, never to a length that
these claim.

Specifications: encodings.md, bamboo.md, and the byte layouts of point2point.md 1, 2 and 4. What a
message means for the requests of a session is judged by the layer above.
"""

from .bulk import Run, RunEntry, encode_run
from .control import Adjust, Cancel, CancelReason, ControlMessage, Eagerness, Grant, Propose
from .control_codec import ControlDecoder, encode_control
from .data import (
    PIECE_BYTES_MAX,
    Apology,
    DataPacket,
    Metadata,
    Notify,
    PayloadBytes,
    PayloadStart,
    RequestCancelled,
    SkipAbove,
    SkipBelow,
    SkipBytes,
    SkipUnavailable,
    Switch,
    encode_apology,
    encode_compressed,
    encode_metadata_packet,
    encode_notify,
    encode_payload_header,
    encode_request_cancelled,
    encode_skip_above,
    encode_skip_below,
    encode_skip_bytes,
    encode_skip_unavailable,
    encode_switch,
)
from .data_decoder import DataDecoder
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
from .errors import EntryError, LZFooError, NeedMore, SignatureLibraryError, Violation
from .late import loaded_late
from .lzfoo_decoder import LZFooDecoder
from .lzfoo_encoder import LZFooEncoder
from .native import NATIVE, NATIVE_STATE, NativeCore, NativeState, VerifyPool
from .pools import (
    has_distinct_lipmaalink,
    in_lower_pool,
    in_upper_pool,
    lipmaa,
    lower_pool,
    shortest_path,
    upper_pool,
)
from .setup import Negotiated, Setup, decode_setup, encode_setup, negotiate
from .signature import (
    python_signature_is_valid,
    sign_entry,
    signature_is_valid,
    signature_self_test,
    signatures_are_valid,
)
from .varu64 import U64_MAX, VARU64_BYTES_MAX, decode_varu64, decode_varu64_canonical, encode_varu64
from .yamf import HASH_BYTES, PayloadHasher, decode_yamf, yamf_from_digest, yamf_hash

__all__ = [
    "AUTHOR_BYTES",
    "ENTRY_BYTES_MAX",
    "HASH_BYTES",
    "NATIVE",
    "NATIVE_STATE",
    "PIECE_BYTES_MAX",
    "SIGNATURE_BYTES",
    "U64_MAX",
    "VARU64_BYTES_MAX",
    "Adjust",
    "Apology",
    "Cancel",
    "CancelReason",
    "ControlDecoder",
    "ControlMessage",
    "DataDecoder",
    "DataPacket",
    "Eagerness",
    "Entry",
    "EntryError",
    "Grant",
    "LZFooDecoder",
    "LZFooEncoder",
    "LZFooError",
    "LogKey",
    "Metadata",
    "NativeCore",
    "NativeState",
    "NeedMore",
    "Negotiated",
    "Notify",
    "PayloadBytes",
    "PayloadHasher",
    "PayloadStart",
    "Propose",
    "RequestCancelled",
    "Run",
    "RunEntry",
    "Setup",
    "SignatureLibraryError",
    "SkipAbove",
    "SkipBelow",
    "SkipBytes",
    "SkipUnavailable",
    "Switch",
    "VerifyPool",
    "Violation",
    "decode_entry",
    "decode_entry_prefix",
    "decode_setup",
    "decode_varu64",
    "decode_varu64_canonical",
    "decode_yamf",
    "encode_apology",
    "encode_compressed",
    "encode_control",
    "encode_entry",
    "encode_metadata_packet",
    "encode_notify",
    "encode_payload_header",
    "encode_request_cancelled",
    "encode_run",
    "encode_setup",
    "encode_skip_above",
    "encode_skip_below",
    "encode_skip_bytes",
    "encode_skip_unavailable",
    "encode_switch",
    "encode_varu64",
    "has_distinct_lipmaalink",
    "in_lower_pool",
    "in_upper_pool",
    "lipmaa",
    "loaded_late",
    "lower_pool",
    "negotiate",
    "python_signature_is_valid",
    "rebuild_entry",
    "shortest_path",
    "sign_entry",
    "signature_is_valid",
    "signature_self_test",
    "signatures_are_valid",
    "tail_fields",
    "tail_offset",
    "upper_pool",
    "verify_links",
    "yamf_from_digest",
    "yamf_hash",
]
