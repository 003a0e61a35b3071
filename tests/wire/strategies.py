"""What several of wire's tests draw from, and how they cut bytes into pieces."""

from itertools import pairwise

from hypothesis import strategies as st

from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    ControlMessage,
    Eagerness,
    Entry,
    Grant,
    LogKey,
    Propose,
    encode_entry,
    has_distinct_lipmaalink,
    yamf_hash,
)

U64 = st.one_of(st.integers(0, 300), st.integers(0, U64_MAX), st.just(U64_MAX))
SOME = st.one_of(st.none(), U64)
HASHES = st.binary(max_size=2).map(yamf_hash)


def entry_bytes(seq: int, log_id: int = 0, payload_bytes: int = 3, tag: int = 0) -> bytes:
    """An encoding with the links that its seqnum needs; its signature is not valid."""
    entry = Entry(
        bytes(range(32)),
        log_id,
        seq,
        bool(tag),
        yamf_hash(b"lipmaa") if has_distinct_lipmaalink(seq) else None,
        yamf_hash(b"back") if seq > 1 else None,
        payload_bytes,
        yamf_hash(b"payload"),
        bytes(range(64)),
    )
    return encode_entry(entry)


ENTRIES = st.builds(entry_bytes, U64.filter(bool), U64, U64, st.integers(0, 1))


@st.composite
def adjusts(draw: st.DrawFn) -> Adjust:
    eagerness = draw(st.none() | st.sampled_from(Eagerness))
    message = Adjust(
        draw(U64),
        eagerness,
        draw(U64) if eagerness is Eagerness.LIMITED else None,
        draw(st.booleans()),
        *(draw(SOME) for _ in range(4)),
    )
    if message == Adjust(message.request):
        return Adjust(message.request, allow_skip=True)
    return message


@st.composite
def cancels(draw: st.DrawFn) -> Cancel:
    reason = draw(st.sampled_from(CancelReason))
    count = {CancelReason.HASH_MISMATCH: 1, CancelReason.FORKED: 2}.get(reason, 0)
    entries = tuple(draw(ENTRIES) for _ in range(count))
    seq = draw(U64) if reason is CancelReason.LOG_ENDED else None
    return Cancel(draw(U64), reason, entries, seq)


@st.composite
def proposals(draw: st.DrawFn) -> Propose:
    offset, end = draw(SOME), draw(SOME)
    lower_info = draw(U64) if offset is None else None
    hashed = lower_info is None or lower_info > 1
    eagerness = draw(st.sampled_from(Eagerness))
    return Propose(
        draw(U64),
        LogKey(draw(st.binary(min_size=32, max_size=32)), draw(U64)),
        draw(U64),
        lower_info,
        draw(U64),
        draw(U64),
        draw(HASHES) if hashed else None,
        eagerness,
        draw(U64) if eagerness is Eagerness.LIMITED else None,
        end,
        None if end is None else draw(U64),
        offset,
        *(draw(st.booleans()) for _ in range(3)),
    )


CONTROL_MESSAGES: st.SearchStrategy[ControlMessage] = st.one_of(
    st.builds(Grant, U64), adjusts(), cancels(), proposals()
)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data`, cut at these places (each taken modulo its length); some pieces may be empty."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(places)]


CUTS = st.lists(st.integers(0, 2**16), max_size=8)
