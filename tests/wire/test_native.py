"""The native core equals Python, function for function, on right and on hostile input."""

import os
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import harness, native_lzfoo, native_run, native_signature
from tests.wire.ed25519 import STRANGE, crafted
from tests.wire.strategies import CUTS, pieces
from tests.wire.test_bulk import LOG, OTHERS, make_log
from wire import (
    NATIVE,
    NATIVE_STATE,
    U64_MAX,
    LZFooEncoder,
    PayloadHasher,
    encode_run,
    has_distinct_lipmaalink,
    lipmaa,
    yamf_hash,
)
from wire.environment import Wanted, native_wanted
from wire.lzfoo_encoder import python_lz4_to_lzfoo
from wire.native import INTERFACE, NativeCore, NativeSigner, fault_of
from wire.yamf import PythonPayloadHasher

TOP = Path(__file__).resolve().parents[2]

needs_core = pytest.mark.skipif(NATIVE is None, reason=f"native core: {NATIVE_STATE}")

# Bytes that repeat themselves, in parts.
TEXTS = st.lists(
    st.sampled_from([b"a", b"bamboo ", b"bend", bytes(300)]) | st.binary(max_size=9)
).map(b"".join)
HELD = {n: LOG.hashes[n] for n in range(1, 61)}


def core() -> NativeCore:
    assert NATIVE is not None
    return NATIVE


@needs_core
@pytest.mark.parametrize("target", [native_lzfoo, native_run, native_signature])
def test_the_invariant_of_a_target_holds(target: ModuleType) -> None:
    checked: list[bytes] = []

    def check(data: bytes) -> None:
        target.check(data)
        checked.append(data)

    harness.run_seeded(check, target.CORPUS, runs=400, seed=1)
    assert len(set(checked)) > 250


# Signatures.


def judged(count: int, seed: int) -> None:
    """Libsodium and the native core agree on so many crafted signatures."""
    by_author: dict[bytes, list[tuple[bytes, int]]] = {}
    for encoded, craft in crafted(count, seed):
        by_author.setdefault(encoded[1:33], []).append((encoded, craft))
    verdicts: dict[int, set[int]] = {}
    for author, found in by_author.items():
        entries = [encoded for encoded, _ in found]
        expected = native_signature.check_signatures(entries)
        for (encoded, craft), verdict in zip(found, expected, strict=True):
            verdicts.setdefault(craft, set()).add(verdict)
            assert core().verify(author, encoded[:-64], encoded[-64:]) == verdict
    # What has torsion is right or wrong by chance; the rest is wrong but for its plain signatures.
    accepted = {craft for craft, seen in verdicts.items() if 1 in seen}
    assert accepted == {0, 7, 8, 9}
    assert all(verdicts[craft] == {0, 1} for craft in (7, 8, 9))


@needs_core
def test_crafted_signatures_are_judged_as_by_libsodium() -> None:
    judged(3000, seed=1)


@needs_core
@pytest.mark.long
def test_100_000_crafted_signatures_are_judged_as_by_libsodium() -> None:
    judged(100_000, seed=2)


@needs_core
@pytest.mark.parametrize("key", STRANGE, ids=bytes.hex)
def test_no_strange_key_has_a_signature_that_libsodium_would_not_take(key: bytes) -> None:
    for r in (*STRANGE, key):
        for s in (bytes(32), b"\x01" + bytes(31), b"\xff" * 32):
            native_signature.check_signatures([b"\x00" + key + r + s] * 2)


@needs_core
def test_batches_of_mixed_authors_are_judged_in_order() -> None:
    entries = [encoded for encoded, _ in crafted(600, seed=3)]
    entries[10], entries[20] = b"", bytes(96)
    assert set(native_signature.check_signatures(entries)) == {0, 1}


# Hashes.


@needs_core
@given(st.binary(max_size=500), CUTS)
def test_pieces_hash_as_the_whole(data: bytes, cuts: list[int]) -> None:
    ours, python = core().PayloadHasher(), PythonPayloadHasher()
    for piece in pieces(data, cuts):
        ours.update(piece)
        python.update(piece)
        assert ours.digest_yamf() == python.digest_yamf()
    assert core().yamf_hash(data) == ours.digest_yamf() == yamf_hash(bytearray(data))


@needs_core
@pytest.mark.parametrize("size", [0, 127, 128, 129, 32767, 32768, 1 << 20])
def test_long_bytes_hash_as_with_hashlib(size: int) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    expected = b"\x00\x40" + blake2b(data[:size]).digest()
    assert core().yamf_hash(data[:size]) == expected
    hasher = PayloadHasher()
    hasher.update(memoryview(data)[:size])
    hasher.update(bytearray())
    assert hasher.digest_yamf() == expected


# Compression.


@needs_core
@given(TEXTS, st.integers(1, 70_000), st.integers(1, 40))
def test_compression_is_the_same_both_ways(data: bytes, window: int, at_once: int) -> None:
    native_lzfoo.check_rewriting(data, window)
    packets = [LZFooEncoder(window).encode(data), b"", data]
    native_lzfoo.check_decoder(window, len(data), packets, at_once)


@needs_core
@given(TEXTS, st.binary(max_size=60), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_hostile_packets_are_refused_alike(
    text: bytes, data: bytes, window: int, declared: int
) -> None:
    packet = LZFooEncoder(1000).encode(text) + data
    native_lzfoo.check_decoder(window, declared % (1 << 16), [packet, data], 1000)
    native_lzfoo.check_decoder(window % 500, len(text) + len(data), [packet, data], 7)
    native_lzfoo.check_block(data, text, window % 65536)


@needs_core
@pytest.mark.parametrize("offset", [247, 248, 249])
@pytest.mark.parametrize("longer", [0, 1])
def test_a_match_is_copied_under_the_same_conditions(offset: int, longer: int) -> None:
    text = bytes(range(offset))
    data = text + text[: 4 + longer] + b"ended"
    match = offset.to_bytes(2, "little")
    block = bytes((0xF0 | longer, offset - 15)) + text + match + b"\x50ended"
    literal = python_lz4_to_lzfoo(block, data, 1)
    for window in (offset - 1, offset):
        expected = python_lz4_to_lzfoo(block, data, window)
        assert core().lz4_to_lzfoo(block, data, window) == expected
        copied = window == offset and (longer == 1 or offset == 247)
        assert (expected != literal) == copied


@needs_core
def test_claims_of_lengths_take_no_memory() -> None:
    # A copy of as many bytes as there can be, of which no more is made than is read.
    packet = b"\x01a" + b"\xff" + (U64_MAX // 8).to_bytes(8, "big") + b"\x01"
    decoder = core().LZFooDecoder(65535, ValueError)
    decoder.start(U64_MAX // 8 + 1, len(packet))
    decoder.feed(packet)
    assert [len(decoder.read()) for _ in range(40)] == [65536] * 40
    assert not decoder.finished


# Runs of entries.


@needs_core
@given(st.data())
def test_a_changed_run_is_taken_alike(data: st.DataObject) -> None:
    first = data.draw(st.integers(1, 60))
    carries = has_distinct_lipmaalink(first) and data.draw(st.booleans())
    packets = bytearray(encode_run(LOG.rows[first - 1 : first + 9], carries))
    for at in data.draw(st.lists(st.integers(0, len(packets) - 1), max_size=3)):
        packets[at] = data.draw(st.integers(0, 255))
    hashes = {n: held for n, held in HELD.items() if n < first}
    for n in data.draw(st.lists(st.integers(1, 60), max_size=2)):
        hashes.pop(n, None)
    limits = data.draw(st.tuples(st.integers(0, 12), st.integers(0, 400)))
    offset = data.draw(st.integers(0, 3))
    native_run.check_run(
        bytes(offset) + bytes(packets),
        offset,
        LOG.key,
        first,
        hashes,
        limits,
        with_backlink=carries,
    )


@needs_core
@pytest.mark.parametrize("log_id", [0, 247, 248, 65535, 65536, U64_MAX])
def test_long_runs_are_taken_alike(log_id: int) -> None:
    log = make_log(400, log_id, ends=True)
    data = encode_run(log.rows, False)
    taken = native_run.check_run(data, 0, log.key, 1, {}, (1000, 65536), with_backlink=False)
    assert taken == 400


@needs_core
@pytest.mark.parametrize("what", OTHERS)
def test_what_ends_a_run_ends_it_alike(what: str) -> None:
    data = encode_run(LOG.rows[:1], False) + OTHERS[what] + b"\x02" * 100
    for length in range(len(data) + 1):
        native_run.check_run(data[:length], 0, LOG.key, 1, {}, (9, 65536), with_backlink=False)


@needs_core
@pytest.mark.parametrize("at", [1, 2])
def test_a_backlink_of_another_type_of_hash_is_not_taken(at: int) -> None:
    data = bytearray(encode_run(LOG.rows[7:], True))
    lacking = {n: held for n, held in HELD.items() if n < 7}
    limits = (1000, 65536)
    whole = native_run.check_run(bytes(data), 0, LOG.key, 8, lacking, limits, with_backlink=True)
    data[at] ^= 1
    changed = native_run.check_run(bytes(data), 0, LOG.key, 8, lacking, limits, with_backlink=True)
    assert (whole, changed) == (53, 0)


@needs_core
@given(st.integers(1, U64_MAX) | st.integers(U64_MAX - 3, U64_MAX), st.booleans())
def test_links_lead_to_the_same_entries_whatever_the_number(seq: int, complete: bool) -> None:
    data = encode_run(LOG.rows[:3], False)
    # Each hash is another, so that the encodings show which were taken.
    wanted = {n for k in range(3) for n in (seq + k - 1, lipmaa(min(seq + k, U64_MAX))) if n > 0}
    hashes = {n: yamf_hash(n.to_bytes(9)) for n in wanted}
    if not complete:
        hashes.popitem()
    native_run.check_run(data, 0, LOG.key, seq, hashes, (9, 65536), with_backlink=False)


# Faults, and which one is used.


@needs_core
def test_a_panic_is_an_exception_like_others() -> None:
    with pytest.raises(RuntimeError, match="a fault in the native core: as it was asked to"):
        core().panics()
    assert core().yamf_hash(b"") == yamf_hash(bytearray())


@needs_core
def test_what_is_no_bytes_is_refused() -> None:
    with pytest.raises(TypeError):
        core().signatures_are_valid([bytes(97), "text"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="seqnums begin at 1"):
        core().parse_run(b"", 0, bytes(32), 0, 0, {}, 1, 1, False)
    for wrong in (b"", bytes(31)):
        assert not core().verify(wrong, b"", bytes(64))
        assert not core().verify(bytes(32), b"", wrong)


FAKE = """
INTERFACE = {interface}
__version__ = "0.0.0"
def verify(public_key, message, signature):
    return {verdict}
verify_with_tables = verify
"""


def imported(folder: Path, native: str | None, text: str | None) -> tuple[str, str, int]:
    """What a process says that has this as its native core: its state, its warnings, its status."""
    if text is not None:
        (folder / "bamboo_native.py").write_text(text)
    environment = {name: value for name, value in os.environ.items() if name != "BAMBOO_NATIVE"}
    environment |= {"PYTHONPATH": os.pathsep.join([str(folder), str(TOP)])}
    if native is not None:
        environment["BAMBOO_NATIVE"] = native
    program = "import wire; print(wire.NATIVE_STATE)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.partition("\n")[0], done.stderr, done.returncode


@pytest.mark.parametrize("verdict", ["True", "False", "len(message) == 32"])
def test_a_core_with_other_verdicts_is_not_used_and_there_is_a_warning(
    tmp_path: Path, verdict: str
) -> None:
    text = FAKE.format(interface=INTERFACE, verdict=verdict)
    state, warnings, status = imported(tmp_path, None, text)
    assert state.startswith("no (of the 12 test signatures it accepts [")
    assert warnings.startswith("the native core is not used: of the 12 test signatures")
    assert status == 0


@needs_core
def test_a_core_that_makes_other_signatures_is_not_used() -> None:
    real = core()

    class Other:
        INTERFACE, verify, verify_with_tables = INTERFACE, real.verify, real.verify_with_tables

        @staticmethod
        def Signer(_: bytes) -> NativeSigner:  # noqa: N802 (the core's name)
            return real.Signer(bytes(32))

    assert fault_of(cast(NativeCore, Other)) == "it does not sign as RFC 8032 says"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FAKE.format(interface=INTERFACE + 1, verdict="True"), "install it anew"),
        ("raise ImportError('of another system')", "cannot be loaded: of another system"),
        ("", "faulty: module 'bamboo_native' has no attribute 'INTERFACE'"),
    ],
)
def test_a_core_that_is_another_is_not_used(tmp_path: Path, text: str, reason: str) -> None:
    state, warnings, status = imported(tmp_path, None, text)
    assert state.startswith("no (")
    assert reason in state
    assert reason in warnings
    assert status == 0
    _, warnings, status = imported(tmp_path, "1", text)
    assert "BAMBOO_NATIVE=1 demands the native core" in warnings
    assert status == 1


def test_it_is_switched_off_by_the_environment(tmp_path: Path) -> None:
    assert imported(tmp_path, "0", "raise SystemExit") == ("no (BAMBOO_NATIVE=0)", "", 0)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("0", Wanted.NO), ("1", Wanted.DEMANDED), ("", Wanted.IF_THERE), ("yes", Wanted.IF_THERE)],
)
def test_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, value: str, wanted: Wanted
) -> None:
    monkeypatch.setenv("BAMBOO_NATIVE", value)
    assert native_wanted() is wanted
    monkeypatch.delenv("BAMBOO_NATIVE")
    assert native_wanted() is Wanted.IF_THERE


@needs_core
def test_the_installed_core_judges_as_every_peer_has_to() -> None:
    assert fault_of(core()) is None
    assert NATIVE_STATE.version == core().__version__
    assert str(NATIVE_STATE) == core().__version__
