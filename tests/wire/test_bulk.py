"""Runs of entries: the fast way equals the packet-by-packet way, and leaves the rest to it."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import CUTS, pieces
from wire import (
    NATIVE,
    NATIVE_STATE,
    DataDecoder,
    Entry,
    LogKey,
    Metadata,
    Notify,
    PayloadBytes,
    PayloadStart,
    Run,
    RunEntry,
    Switch,
    Violation,
    bulk,
    data_decoder,
    encode_entry,
    encode_metadata_packet,
    encode_notify,
    encode_payload_header,
    encode_run,
    has_distinct_lipmaalink,
    lipmaa,
    rebuild_entry,
    yamf_hash,
)

needs_core = pytest.mark.skipif(NATIVE is None, reason=f"native core: {NATIVE_STATE}")


class Log(NamedTuple):
    """Entries with right links; the signatures are not valid, nobody looks at them here."""

    key: LogKey
    rows: list[tuple[int, bytes, bytes]]
    hashes: dict[int, bytes]


def make_log(entries: int, log_id: int = 0, *, ends: bool = False) -> Log:
    log = Log(LogKey(bytes(range(32)), log_id), [], {})
    for seq in range(1, entries + 1):
        payload = bytes((seq % 256,)) * (seq * 7 % 300)
        entry = Entry(
            log.key.author,
            log_id,
            seq,
            ends and seq == entries,
            log.hashes[lipmaa(seq)] if has_distinct_lipmaalink(seq) else None,
            log.hashes.get(seq - 1),
            len(payload),
            yamf_hash(payload),
            bytes(64),
        )
        encoded = encode_entry(entry)
        log.rows.append((seq, encoded, payload))
        log.hashes[seq] = yamf_hash(encoded)
    return log


LOG = make_log(60)


def take(
    decoder: DataDecoder,
    seq: int,
    hashes: dict[int, bytes],
    log: Log = LOG,
    *,
    entries_max: int = 1000,
    payload_bytes_max: int = 65536,
    with_backlink: bool = False,
) -> Run:
    return decoder.next_run(
        log.key,
        seq,
        hashes,
        entries_max=entries_max,
        payload_bytes_max=payload_bytes_max,
        with_backlink=with_backlink,
    )


def expected(log: Log, first: int, last: int) -> list[RunEntry]:
    rows = log.rows[first - 1 : last]
    return [RunEntry(seq, encoded, log.hashes[seq], payload) for seq, encoded, payload in rows]


def fed(data: bytes) -> DataDecoder:
    decoder = DataDecoder(0)
    decoder.feed(data)
    return decoder


@pytest.mark.parametrize("log_id", [0, 247, 248, 2**64 - 1])
def test_a_run_is_what_was_encoded(log_id: int) -> None:
    log = make_log(300, log_id)
    data = encode_run(log.rows, False)
    hashes: dict[int, bytes] = {}
    decoder = fed(data)
    assert take(decoder, 1, hashes, log) == Run(expected(log, 1, 300), None)
    assert hashes == log.hashes
    assert (decoder.buffered, decoder.consumed) == (0, len(data))
    assert take(decoder, 301, hashes, log) == Run([], None)


def test_an_encoded_run_is_the_packets_one_after_the_other() -> None:
    for first in (1, 2, 8, 13, 40):
        with_backlink = has_distinct_lipmaalink(first)
        data = b""
        for seq, encoded, payload in LOG.rows[first - 1 :]:
            carries = with_backlink and seq == first
            data += encode_metadata_packet(encoded, 0, seq, carries)
            data += encode_payload_header(len(payload)) + payload
        assert encode_run(LOG.rows[first - 1 :], with_backlink) == data
    assert encode_run([], True) == b""


def test_an_encoded_run_says_where_a_log_ends() -> None:
    log = make_log(3, ends=True)
    following = encode_notify(1)
    decoder = fed(encode_run(log.rows, False) + following)
    assert take(decoder, 1, {}, log) == Run(expected(log, 1, 3), None)
    assert decoder.next_packet(False) == Notify(1)


def test_nothing_is_taken_as_part_of_a_run_after_the_end_of_the_log() -> None:
    ended, whole = make_log(3, ends=True), make_log(5)
    data = encode_run([*ended.rows, *whole.rows[3:]], False)
    decoder = fed(data)
    assert len(take(decoder, 1, {}).entries) == 3
    assert isinstance(decoder.next_packet(False), Metadata)


@pytest.mark.parametrize("seq", [1, 2, 3, 5])
def test_a_backlink_that_the_receiver_always_has_is_never_carried(seq: int) -> None:
    with pytest.raises(Violation, match=f"entry {seq} never carries"):
        encode_run(LOG.rows[seq - 1 :], True)
    with pytest.raises(AssertionError):
        take(fed(b""), seq, {}, with_backlink=True)


@pytest.mark.parametrize("first", [4, 8, 12, 13, 40])
def test_the_first_entry_may_carry_its_backlink(first: int) -> None:
    data = encode_run(LOG.rows[first - 1 :], True)
    hashes = {n: LOG.hashes[n] for n in range(1, first - 1)}
    assert take(fed(data), first, hashes, with_backlink=True).entries == expected(LOG, first, 60)
    hashes = {n: LOG.hashes[n] for n in range(1, first)}
    assert take(fed(data), first, hashes, with_backlink=True).entries == expected(LOG, first, 60)


def test_a_backlink_that_differs_from_the_hash_held_is_left_to_be_judged() -> None:
    data = encode_run(LOG.rows[7:], True)
    hashes = LOG.hashes | {7: yamf_hash(b"another")}
    decoder = fed(data)
    assert take(decoder, 8, hashes, with_backlink=True) == Run([], None)
    packet = decoder.next_packet(True)
    assert isinstance(packet, Metadata)
    assert packet.backlink == LOG.hashes[7]


@pytest.mark.parametrize("missing", [7, 4])
def test_a_run_ends_before_an_entry_whose_link_is_not_known(missing: int) -> None:
    hashes = {n: LOG.hashes[n] for n in range(1, 8) if n != missing}
    assert take(fed(encode_run(LOG.rows[7:], False)), 8, hashes) == Run([], None)


@given(CUTS, st.integers(1, 61), st.integers(0, 300))
def test_runs_and_packets_take_turns_in_any_pieces(
    cuts: list[int], entries_max: int, payload_bytes_max: int
) -> None:
    data = encode_run(LOG.rows, False)
    decoder, hashes, rows = DataDecoder(0), dict[int, bytes](), list[tuple[int, bytes, bytes]]()
    encoded, payload, left = b"", b"", -1
    for piece in pieces(data, cuts):
        decoder.feed(piece if len(piece) % 2 else memoryview(piece))
        while True:
            if left < 0 and not encoded:
                run = take(
                    decoder,
                    len(rows) + 1,
                    hashes,
                    entries_max=entries_max,
                    payload_bytes_max=payload_bytes_max,
                )
                assert run.mismatch is None
                assert len(run.entries) <= entries_max
                assert all(len(entry.payload) <= payload_bytes_max for entry in run.entries)
                rows += [(entry.seq, entry.encoded, entry.payload) for entry in run.entries]
            packet = decoder.next_packet(False)
            if packet is None:
                break
            seq = len(rows) + 1
            if isinstance(packet, Metadata):
                links = (
                    hashes[lipmaa(seq)] if has_distinct_lipmaalink(seq) else None,
                    hashes.get(seq - 1),
                )
                encoded = rebuild_entry(LOG.key, seq, packet.tag, *links, packet.tail)
                hashes[seq] = yamf_hash(encoded)
            elif isinstance(packet, PayloadStart):
                left = packet.length
            else:
                assert isinstance(packet, PayloadBytes)
                payload += packet.data
                left -= len(packet.data)
            if left == 0:
                rows.append((seq, encoded, payload))
                encoded, payload, left = b"", b"", -1
    assert rows == LOG.rows
    assert hashes == LOG.hashes
    assert decoder.consumed == len(data)


# Payloads alone, of entries that the receiver holds.


def payload_packets(rows: list[tuple[int, bytes, bytes]]) -> bytes:
    return b"".join(encode_payload_header(len(row[2])) + row[2] for row in rows)


def encodings(first: int = 1, log: Log = LOG) -> list[bytes]:
    return [encoded for _, encoded, _ in log.rows[first - 1 :]]


@pytest.mark.parametrize("log_id", [0, 247, 248, 2**64 - 1])
def test_payloads_are_taken_by_what_their_entries_say(log_id: int) -> None:
    log = make_log(300, log_id)
    data = payload_packets(log.rows)
    decoder = fed(data + encode_notify(1))
    taken = decoder.next_payloads(log_id, 1, encodings(log=log), payload_bytes_max=300)
    assert taken == [payload for _, _, payload in log.rows]
    assert decoder.consumed == len(data)
    assert decoder.next_packet(False) == Notify(1)


@given(CUTS, st.integers(0, 300), st.integers(0, 60))
def test_payloads_and_packets_take_turns_in_any_pieces(
    cuts: list[int], payload_bytes_max: int, known: int
) -> None:
    data = payload_packets(LOG.rows)
    decoder, payloads = DataDecoder(0), list[bytes]()
    payload, left = b"", -1
    for piece in pieces(data, cuts):
        decoder.feed(piece if len(piece) % 2 else memoryview(piece))
        while True:
            if left < 0:
                seq = len(payloads) + 1
                taken = decoder.next_payloads(
                    0, seq, encodings(seq)[:known], payload_bytes_max=payload_bytes_max
                )
                assert len(taken) <= known
                assert all(len(each) <= payload_bytes_max for each in taken)
                payloads += taken
            packet = decoder.next_packet(False)
            if packet is None:
                break
            if isinstance(packet, PayloadStart):
                left = packet.length
            else:
                assert isinstance(packet, PayloadBytes)
                payload += packet.data
                left -= len(packet.data)
            if left == 0:
                payloads.append(payload)
                payload, left = b"", -1
    assert payloads == [row[2] for row in LOG.rows]
    assert decoder.consumed == len(data)


PAYLOAD_2 = LOG.rows[1][2]
NOT_THE_SECOND = {
    "another packet": encode_notify(3),
    "an unused byte": b"\x0b",
    "metadata": encode_metadata_packet(LOG.rows[1][1], 0, 2, False),
    "a skip": b"\x06",
    "a compressed payload": b"\x09\x0e\x0f" + b"\x0e" + PAYLOAD_2,
    "two packets": b"\x08\x01" + PAYLOAD_2[:1] + b"\x08\x0d" + PAYLOAD_2[1:],
    "a length written long": b"\x08\xf8\x0e" + PAYLOAD_2,
    "a longer packet": b"\x08\x0f" + PAYLOAD_2 + b"\x02",
    "another payload": b"\x08\x0e" + PAYLOAD_2[:-1] + b"?",
    "an unfinished payload": b"\x08\x0e" + PAYLOAD_2[:-1],
    "nothing": b"",
}


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("what", sorted(NOT_THE_SECOND))
def test_payloads_end_before_what_is_not_the_next_one_in_one_raw_packet(
    what: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(data_decoder, "parse_payloads", bulk.python_parse_payloads)
    first = payload_packets(LOG.rows[:1])
    decoder = fed(first + NOT_THE_SECOND[what])
    taken = decoder.next_payloads(0, 1, encodings(), payload_bytes_max=300)
    assert taken == [LOG.rows[0][2]]
    assert decoder.consumed == len(first)


@needs_core
@given(
    st.integers(1, 60), st.integers(1, 61), st.lists(st.integers(0, 5000), max_size=3), st.data()
)
def test_payloads_are_parsed_alike(
    first: int, seq: int, flips: list[int], data: st.DataObject
) -> None:
    """Also where what is held, or its number, is not what the packets are of."""
    offset = data.draw(st.integers(0, 3))
    packets = bytearray(bytes(offset) + payload_packets(LOG.rows[first - 1 :]))
    for at in flips:
        packets[at % len(packets)] ^= 1
    known = [*encodings(seq), data.draw(st.binary(max_size=400)), b""]
    given_to_both = (bytes(packets), offset, 0, seq, known, data.draw(st.integers(0, 300)))
    assert bulk.parse_payloads(*given_to_both) == bulk.python_parse_payloads(*given_to_both)


def test_no_more_entries_are_taken_than_asked_for() -> None:
    decoder = fed(encode_run(LOG.rows, False))
    hashes: dict[int, bytes] = {}
    assert take(decoder, 1, hashes, entries_max=0).entries == []
    assert take(decoder, 1, hashes, entries_max=4).entries == expected(LOG, 1, 4)
    assert take(decoder, 5, hashes).entries == expected(LOG, 5, 60)


def test_a_run_ends_before_a_payload_above_the_limit() -> None:
    over = next(i for i, row in enumerate(LOG.rows) if len(row[2]) > 200)
    decoder = fed(encode_run(LOG.rows, False))
    assert take(decoder, 1, {}, payload_bytes_max=200).entries == expected(LOG, 1, over)
    assert isinstance(decoder.next_packet(False), Metadata)


def test_a_payload_with_another_hash_ends_the_run_and_is_told() -> None:
    rows = list(LOG.rows)
    seq, encoded, payload = rows[9]
    rows[9] = (seq, encoded, bytes(len(payload) - 1) + b"\x01")
    decoder = fed(encode_run(rows, False))
    hashes: dict[int, bytes] = {}
    run = take(decoder, 1, hashes)
    assert run.mismatch == 9
    assert run.entries[:9] == expected(LOG, 1, 9)
    assert run.entries[9] == RunEntry(10, encoded, LOG.hashes[10], rows[9][2])
    assert take(decoder, 11, hashes) == Run(expected(LOG, 11, 60), None)


# What may follow the first entry: nothing of it may be taken by a run.
ROW_2 = LOG.rows[1]
META_2 = encode_metadata_packet(ROW_2[1], 0, 2, False)
OTHERS = {
    "another packet": encode_notify(3),
    "an unused byte": b"\x0b",
    "a skip for a payload": META_2 + b"\x06",
    "a compressed payload": META_2 + b"\x09\x0e\x0f" + b"\x0e" + ROW_2[2],
    "a payload in two packets": META_2 + b"\x08\x01" + ROW_2[2][:1] + b"\x08\x0d" + ROW_2[2][1:],
    "a length written long": META_2 + b"\x08\xf8\x0e" + ROW_2[2],
    "a longer payload packet": META_2 + b"\x08\x0f" + ROW_2[2] + b"\x02",
    "a size written long": META_2[:1] + b"\xf8\x0e" + META_2[2:] + b"\x08\x0e" + ROW_2[2],
    "a hash of another type": META_2[:2] + b"\x01" + META_2[3:] + b"\x08\x0e" + ROW_2[2],
    "an unfinished payload": META_2 + b"\x08\x0e" + ROW_2[2][:-1],
    "an unfinished packet": META_2[:-1],
    "metadata alone": META_2,
    "a huge claim": META_2[:1] + b"\xff" * 9 + META_2[2:] + b"\x08" + b"\xff" * 9,
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_run_ends_at_a_packet_s_start_before_anything_else(what: str) -> None:
    first = encode_run(LOG.rows[:1], False)
    # Bytes enough that nothing is left out just because it is not there yet.
    trailer = b"" if "unfinished" in what else b"\x02" * 100
    decoder = fed(first + OTHERS[what] + trailer)
    assert take(decoder, 1, {}) == Run(expected(LOG, 1, 1), None)
    assert decoder.consumed == len(first)
    assert take(decoder, 2, dict(LOG.hashes)) == Run([], None)
    assert decoder.consumed == len(first)


def test_every_prefix_of_a_run_gives_its_whole_entries() -> None:
    data = encode_run(LOG.rows[:3], False)
    ends = [len(encode_run(LOG.rows[:n], False)) for n in range(4)]
    for length in range(len(data) + 1):
        whole = sum(end <= length for end in ends[1:])
        decoder = fed(data[:length])
        assert take(decoder, 1, {}).entries == expected(LOG, 1, whole)
        assert decoder.consumed == ends[whole]


def test_nothing_is_taken_inside_a_payload_or_after_a_violation() -> None:
    data = encode_run(LOG.rows, False)
    decoder = fed(encode_payload_header(5))
    assert decoder.next_packet(False) == PayloadStart(5, False)
    decoder.feed(data)
    assert take(decoder, 1, {}) == Run([], None)
    decoder = DataDecoder(100)
    decoder.feed(b"\x09\x05\x06\x05")
    assert decoder.next_packet(False) == PayloadStart(5, True)
    decoder.feed(data)
    assert take(decoder, 1, {}) == Run([], None)
    decoder = fed(b"\x00\x01\x01" + data)
    assert decoder.next_packet(False) == Switch(1)
    with pytest.raises(Violation):
        decoder.next_packet(False)
    assert take(decoder, 1, {}) == Run([], None)


@given(st.binary(max_size=400), st.integers(1, 60), st.booleans())
def test_hostile_bytes_raise_nothing(data: bytes, seq: int, backlink: bool) -> None:
    with_backlink = backlink and has_distinct_lipmaalink(seq)
    for start in (b"", b"\x80", b"\x81" + bytes(5) + b"\x00\x40"):
        decoder = fed(start + data)
        run = take(decoder, seq, dict(LOG.hashes), with_backlink=with_backlink)
        assert decoder.consumed + decoder.buffered == len(start + data)
        assert run.mismatch in (None, len(run.entries) - 1)
