"""A peer that speaks the protocol until it breaks a rule at random (point2point.md 9).

Whatever it sends, the other engine raises RemoteViolation or SessionTimeout and nothing else; what
its host stores is verified; and its memory stays within what the credit allows.
"""

from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from peer.protocol.errors import RemoteViolation, SessionTimeout
from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    ControlMessage,
    Eagerness,
    Grant,
    LogKey,
    Propose,
    decode_entry,
    encode_apology,
    encode_control,
    encode_notify,
    encode_payload_header,
    encode_request_cancelled,
    encode_skip_above,
    encode_skip_below,
    encode_skip_bytes,
    encode_skip_unavailable,
    encode_switch,
    signature_is_valid,
    yamf_hash,
)

from .impolite import GREEDY, LOG, REFERENCE, SAFE, Impolite, entry_packets, metadata_packet


@dataclass(frozen=True)
class OnControl:
    """Bytes for the control channel that are no message; bare bytes are data."""

    raw: bytes


Step = ControlMessage | OnControl | bytes | float

SEQS = st.one_of(st.integers(1, 45), st.sampled_from([0, U64_MAX, U64_MAX - 1, 2**63]))
NUMBERS = st.integers(0, 6)
SIZES = st.one_of(st.integers(0, 4), st.sampled_from([U64_MAX]))
OTHER = LogKey(LOG.author, 7)


@st.composite
def proposals(draw: st.DrawFn) -> Propose:
    lower_info = draw(st.none() | SEQS)
    end = draw(st.none() | SEQS)
    eagerness = draw(st.sampled_from(Eagerness))
    start = draw(SEQS)
    return Propose(
        request=draw(NUMBERS),
        log=draw(st.sampled_from([LOG, LOG, OTHER])),
        start=start,
        lower_info=lower_info,
        min_bytes=draw(SIZES),
        max_bytes=draw(SIZES),
        starting_hash=None
        if lower_info is not None and lower_info <= 1
        else REFERENCE[draw(st.integers(1, 40))].hash,
        eagerness=eagerness,
        eager_bytes=draw(SIZES) if eagerness is Eagerness.LIMITED else None,
        end=end,
        upper_info=None if end is None else draw(st.just(end) | SEQS),
        offset=draw(SIZES) if lower_info is None else None,
        payloads_only=draw(st.booleans()),
        sparse=draw(st.booleans()),
        mandatory=draw(st.booleans()),
    )


@st.composite
def polite_proposals(draw: st.DrawFn) -> Propose:
    """One that is within the rules, so that something comes after it."""
    start = draw(st.integers(1, 9))
    end = draw(st.none() | st.integers(start, 40))
    inside = draw(st.booleans())
    return Propose(
        request=draw(NUMBERS),
        log=LOG,
        start=start,
        lower_info=None if inside else 1,
        min_bytes=0,
        max_bytes=U64_MAX,
        starting_hash=REFERENCE[start].hash if inside else None,
        eagerness=draw(st.sampled_from([Eagerness.NOTIFY, Eagerness.ALL])),
        end=end,
        upper_info=end,
        offset=draw(st.integers(0, 2)) if inside else None,
        payloads_only=draw(st.booleans()),
        sparse=draw(st.booleans()),
    )


@st.composite
def adjusts(draw: st.DrawFn) -> Adjust:
    eagerness = draw(st.none() | st.sampled_from(Eagerness))
    return Adjust(
        request=draw(NUMBERS),
        eagerness=eagerness,
        eager_bytes=draw(SIZES) if eagerness is Eagerness.LIMITED else None,
        allow_skip=draw(st.booleans()) or eagerness is None,
        end=draw(st.none() | SEQS),
        upper_info=draw(st.none() | SEQS),
        min_bytes=draw(st.none() | SIZES),
        max_bytes=draw(st.none() | SIZES),
    )


@st.composite
def cancels(draw: st.DrawFn) -> Cancel:
    reason = draw(st.sampled_from(CancelReason))
    count = {CancelReason.HASH_MISMATCH: 1, CancelReason.FORKED: 2}.get(reason, 0)
    entries = tuple(REFERENCE[draw(st.integers(1, 40))].encoded for _ in range(count))
    seq = draw(SEQS) if reason is CancelReason.LOG_ENDED else None
    return Cancel(draw(NUMBERS), reason, entries, seq)


CONTROL = st.one_of(
    polite_proposals(),
    polite_proposals(),
    proposals(),
    adjusts(),
    NUMBERS.map(lambda number: Adjust(number, Eagerness.ALL)),
    cancels(),
    st.builds(Grant, st.sampled_from([0, 1, 8, U64_MAX])),
)
RAW = st.integers(1, 40).map(lambda seq: metadata_packet(REFERENCE, seq))
DATA = st.one_of(
    NUMBERS.map(encode_switch),
    NUMBERS.map(encode_switch),
    NUMBERS.map(encode_request_cancelled),
    st.integers(1, 9).flatmap(
        lambda first: st.integers(1, 6).map(
            lambda count: entry_packets(REFERENCE, range(first, first + count))
        )
    ),
    RAW,
    st.integers(1, 4).map(encode_notify),
    st.just(encode_notify(U64_MAX)),
    st.just(b"\x03\x00"),
    st.sampled_from([encode_skip_above(), encode_skip_below(), encode_skip_unavailable()]),
    SIZES.map(encode_skip_bytes),
    st.binary(max_size=6).map(lambda data: encode_payload_header(len(data)) + data),
    st.just(encode_apology()),
)


def mutated(raw: bytes) -> st.SearchStrategy[bytes]:
    """One byte of it changed, or cut short."""
    at = st.integers(0, len(raw) - 1)
    changed = st.tuples(at, st.integers(0, 255)).map(
        lambda change: raw[: change[0]] + bytes((change[1],)) + raw[change[0] + 1 :]
    )
    return st.one_of(changed, at.map(lambda end: raw[:end]))


STEP = st.one_of(
    CONTROL,
    CONTROL.map(encode_control).flatmap(lambda raw: mutated(raw).map(OnControl)),
    DATA,
    DATA.flatmap(mutated),
    st.floats(0, 40),
)


def say(peer: Impolite, step: Step) -> None:
    if isinstance(step, float):
        peer.wait(step)
    elif isinstance(step, OnControl):
        peer.control(step.raw)
    elif isinstance(step, bytes):
        peer.data(step)
    else:
        peer.control(step)
    peer.messages()
    peer.sent(1 << 12)


@given(
    steps=st.lists(STEP, max_size=30),
    held=st.sampled_from([0, 3, 40]),
    proactive=st.booleans(),
    greedy=st.booleans(),
    follows=st.booleans(),
)
@example(
    steps=[
        Propose(0, LOG, 1, 1, 0, U64_MAX, None, Eagerness.ALL),
        encode_switch(0) + entry_packets(REFERENCE, range(1, 9)),
    ],
    held=0,
    proactive=False,
    greedy=True,
    follows=True,
)
def test_a_liar_is_told_so_and_changes_nothing(
    steps: list[Step],
    held: int,
    proactive: bool,
    greedy: bool,
    follows: bool,
) -> None:
    before = {seq: REFERENCE[seq] for seq in range(1, held + 1)}
    peer = Impolite(before, proactive=proactive, setup=GREEDY if greedy else SAFE, follows=follows)
    try:
        for step in steps:
            say(peer, step)
    except (RemoteViolation, SessionTimeout):
        peer.engine.ended()
    peer.host.engine = None
    peer.host.todo.extend(peer.engine.commands())
    peer.run()
    after = peer.store.logs[LOG]
    assert {seq: after[seq] for seq in before} == before
    for log, entries in peer.store.logs.items():
        for seq, entry in entries.items():
            decoded = decode_entry(entry.encoded)
            assert (decoded.key, decoded.seq) == (log, seq)
            assert signature_is_valid(entry.encoded)
            assert entry.payload is None or yamf_hash(entry.payload) == decoded.payload_hash
    assert not peer.store.forks
    assert peer.engine._inbound.buffered >= 0
