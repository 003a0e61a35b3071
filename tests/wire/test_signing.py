"""Own entries, signed in runs, with the native core and without it."""

from collections.abc import Callable, Sequence
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from wire import (
    NATIVE,
    NATIVE_STATE,
    U64_MAX,
    EntryError,
    Signer,
    decode_entry,
    has_distinct_lipmaalink,
    lipmaa,
    signature_is_valid,
    verify_links,
    yamf_hash,
)
from wire.signing import Payload, Signed

KEY = SigningKey(b"k" * 32)
EMPTY = (0, yamf_hash(b""))

SignRun = Callable[..., list[Signed]]
WAYS = [pytest.param(Signer(KEY, None).sign_run, id="python")]
if NATIVE is not None:
    WAYS.append(pytest.param(Signer(KEY).sign_run, id="native"))


def hash_of(seq: int) -> bytes:
    """What entry `seq` has for a hash, if it was signed somewhere else."""
    return yamf_hash(b"%d" % seq)


def backlink(seq: int) -> bytes | None:
    return hash_of(seq - 1) if seq > 1 else None


@pytest.mark.parametrize("sign_run", WAYS)
@pytest.mark.parametrize("first", [1, 2, 4, 13, 40, 1092, 2**40, U64_MAX - 49])
def test_a_run_is_linked_and_signed(sign_run: SignRun, first: int) -> None:
    asked: list[int] = []

    def link_of(seq: int) -> bytes:
        asked.append(seq)
        return hash_of(seq)

    payloads = [(size, yamf_hash(bytes(size))) for size in (0, 1, 300, 70_000, 5)] * 10
    signed = sign_run(7, first, backlink(first), payloads, link_of, is_end=True)
    hashes = {first - 1: backlink(first)}
    last = first + 49
    for seq, (encoded, hash_) in enumerate(signed, first):
        entry = decode_entry(encoded)
        hashes[seq] = yamf_hash(encoded)
        assert hash_ == hashes[seq]
        assert signature_is_valid(encoded)
        assert entry.key == (bytes(KEY.verify_key), 7)
        assert (entry.seq, entry.is_end) == (seq, seq == last)
        assert (entry.payload_bytes, entry.payload_hash) == payloads[seq - first]
        far = lipmaa(seq)
        verify_links(entry, hashes.get(far) or hash_of(far), hashes[seq - 1])
    distinct = [lipmaa(n) for n in range(first, last + 1) if has_distinct_lipmaalink(n)]
    # What was signed here is known, as is what comes right before it.
    assert asked == [target for target in distinct if target < first - 1]


@pytest.mark.parametrize("sign_run", WAYS)
def test_runs_that_follow_each_other_are_one(sign_run: SignRun) -> None:
    payloads = [(size, yamf_hash(bytes(size))) for size in range(100)]
    whole = sign_run(0, 1, None, payloads, hash_of)
    parts: list[Signed] = []

    def link_of(seq: int) -> bytes:
        return parts[seq - 1][1]

    for start, end in pairwise([0, 1, 2, 3, 4, 13, 14, 39, 40, 99, 100]):
        back = parts[-1][1] if parts else None
        parts += sign_run(0, start + 1, back, payloads[start:end], link_of)
    assert parts == whole


@pytest.mark.skipif(NATIVE is None, reason=f"native core: {NATIVE_STATE}")
@given(
    st.binary(min_size=32, max_size=32),
    st.integers(0, U64_MAX),
    st.one_of(st.integers(1, 200), st.integers(1, U64_MAX - 30)),
    st.lists(st.tuples(st.integers(0, U64_MAX), st.binary(max_size=9)), min_size=1, max_size=30),
    st.booleans(),
)
def test_the_native_core_signs_as_libsodium_does(
    seed: bytes, log_id: int, seq: int, payloads: list[tuple[int, bytes]], is_end: bool
) -> None:
    key = SigningKey(seed)
    # What follows the two is nobody's business.
    hashed: list[Payload] = [(size, yamf_hash(data), data, None) for size, data in payloads]
    ours, python = (
        signer.sign_run(log_id, seq, backlink(seq), hashed, hash_of, is_end=is_end)
        for signer in (Signer(key), Signer(key, None))
    )
    assert ours == python


@pytest.mark.parametrize("sign_run", WAYS)
@pytest.mark.parametrize(
    ("seq", "back", "payloads", "link", "field"),
    [
        (-1, None, [EMPTY], b"", "seqnum"),
        (U64_MAX + 1, EMPTY[1], [EMPTY], EMPTY[1], "seqnum"),
        (0, None, [EMPTY], b"", "seqnum"),
        (1, hash_of(0), [EMPTY], b"", "backlink"),
        (2, None, [EMPTY], b"", "backlink"),
        (2, hash_of(1)[1:], [EMPTY], b"", "backlink"),
        (2, b"\x01" + hash_of(1)[1:], [EMPTY], b"", "backlink"),
        (8, hash_of(7), [EMPTY], b"", "lipmaalink"),
        (8, hash_of(7), [EMPTY], b"\x00\x41" + bytes(64), "lipmaalink"),
        (1, None, [EMPTY, (-1, EMPTY[1])], b"", "size"),
        (1, None, [EMPTY, (U64_MAX + 1, EMPTY[1])], b"", "size"),
        (1, None, [EMPTY, (0, EMPTY[1][:65])], b"", "payload hash"),
        (1, None, [EMPTY, (0, bytes(66))], b"", "payload hash"),
        (U64_MAX, hash_of(U64_MAX - 1), [EMPTY, EMPTY], hash_of(1), "seqnum"),
    ],
)
def test_what_has_no_encoding_is_refused(
    sign_run: SignRun,
    seq: int,
    back: bytes | None,
    payloads: Sequence[Payload],
    link: bytes,
    field: str,
) -> None:
    with pytest.raises(EntryError, match=field):
        sign_run(0, seq, back, payloads, lambda _: link)


@pytest.mark.parametrize("sign_run", WAYS)
@pytest.mark.parametrize("log_id", [-1, U64_MAX + 1])
def test_a_log_that_cannot_be_is_refused(sign_run: SignRun, log_id: int) -> None:
    with pytest.raises(EntryError, match="log id"):
        sign_run(log_id, 1, None, [EMPTY], hash_of)


@pytest.mark.parametrize("sign_run", WAYS)
def test_what_the_caller_cannot_tell_is_the_callers_error(sign_run: SignRun) -> None:
    def lost(seq: int) -> bytes:
        raise LookupError(f"entry {seq} is damaged")

    with pytest.raises(LookupError, match="entry 4 is damaged"):
        sign_run(0, 8, hash_of(7), [EMPTY], lost)


@pytest.mark.parametrize("sign_run", WAYS)
def test_a_run_of_none_is_none(sign_run: SignRun) -> None:
    assert sign_run(0, 5, hash_of(4), [], hash_of) == []


def test_all_entries_have_different_signatures() -> None:
    signed = Signer(KEY).sign_run(0, 1, None, [EMPTY] * 200, hash_of)
    assert len(set(chain.from_iterable(signed))) == 400
