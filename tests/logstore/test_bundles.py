"""Bundles: what leaves one store arrives in another, whatever is cut off and wherever."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import (
    BundleImported,
    BundleRefused,
    LogState,
    PayloadState,
    PolicyKind,
    Store,
    Subscription,
    bundle_export,
    export_bundle,
    import_bundle,
)
from logstore.bundle_records import ENTRY, HEADER, PAYLOAD, PROOF, BundleError, encode_record
from tests.logstore.authors import AuthorLog, signing_key
from tests.logstore.carrying import (
    LARGE,
    SOME,
    content,
    exported,
    faults,
    filled,
    had,
    imported,
    log_of,
    logs_strategy,
    payload_of,
    records,
    two,
)
from wire import LogKey, lower_pool, yamf_hash


def test_all_that_is_held_arrives() -> None:
    with two() as (source, target):
        filled(source, log_of(1, SOME), log_of(2, [b"a"] * 30), log_of(2, [None], 7))
        source.append([b"own", b"w" * 100_000])
        data = exported(source)
        done, named = imported(target, data)
        assert (done, named) == (BundleImported(40, 37, 0, 0, False, ()), [])
        assert content(target) == content(source)
        assert faults(target) == []
        assert {info.newest_from for info in target.logs()} == {"bundle"}
        again, _ = imported(target, data)
        assert again == BundleImported(0, 0, 40, 0, False, ())


def test_logs_ascend_and_so_do_their_entries() -> None:
    with two() as (source, _):
        filled(source, *(log_of(number, SOME, log_id) for number in (3, 1, 2) for log_id in (9, 0)))
        keys = [each.body[:32] for each in records(exported(source)) if each.type == 0]
        assert len(keys) == 6
        assert keys == sorted(keys)


def test_payloads_come_in_pieces_of_64_kib_and_none_at_all_is_one_piece_too() -> None:
    with two() as (source, _):
        filled(source, log_of(1, [bytes(LARGE), b"", None]))
        sizes = [
            len(each.body) if each.type == PAYLOAD else None for each in records(exported(source))
        ]
        assert sizes == [None, None, 65_536, 65_536, LARGE - 131_072, None, 0, None, None]


def test_targets_are_logs_and_authors() -> None:
    with two() as (source, target):
        one, other, third = log_of(1, [b"1"]), log_of(2, [b"2"]), log_of(2, [b"3"], 5)
        filled(source, one, other, third)
        imported(target, exported(source, [third.key]))
        assert set(content(target)) == {third.key}
        imported(target, exported(source, [other.key.author]))
        assert set(content(target)) == {other.key, third.key}


def test_without_payloads_there_are_entries_alone() -> None:
    with two() as (source, target):
        filled(source, log_of(1, SOME))
        done, _ = imported(target, exported(source, payloads=False))
        assert (done.entries, done.payloads) == (len(SOME), 0)
        done, _ = imported(target, exported(source))
        assert (done.entries, done.payloads, done.already_held) == (0, 5, len(SOME))
        assert content(target) == content(source)


def test_what_the_receiver_has_is_left_out() -> None:
    with two() as (source, target):
        log, other = log_of(1, [b"x"] * 20), log_of(2, [b"y"] * 5)
        filled(source, log, other)
        target.put_entries(log.key, [log.entries[seq] for seq in range(1, 11)], source="test")
        filled(target, other)
        data = exported(source, have=had(target))
        assert len([each for each in records(data) if each.type == ENTRY]) == 10
        assert len([each for each in records(data) if each.type == 0]) == 1
        done, _ = imported(target, data)
        assert (done.entries, done.already_held) == (10, 0)
        assert content(target) == content(source)


@pytest.mark.parametrize(
    ("wanted", "lacking", "last"),
    [
        (None, None, 8),
        (None, 5, 4),
        (Subscription(PolicyKind.METADATA), 5, 8),
        (Subscription(PolicyKind.LATEST, count=2), 5, 8),
        (Subscription(PolicyKind.LATEST, count=2), 7, 6),
        (Subscription(PolicyKind.RANGE, first=6), 5, 8),
        (Subscription(max_bytes=2), 5, 8),
    ],
)
def test_have_goes_up_to_where_nothing_that_is_wanted_is_missing(
    wanted: Subscription | None, lacking: int | None, last: int
) -> None:
    with two() as (_, target):
        log = log_of(1, [None if seq == lacking else b"abc" for seq in range(1, 9)])
        filled(target, log)
        if wanted is not None:
            target.follow(log.key, wanted)
        assert bundle_export.held_logs(target) == [(log.key, last)]


def test_have_stops_at_gaps_and_at_what_is_fetched() -> None:
    with two() as (_, target):
        log = log_of(1, [b"abc"] * 8)
        path = [log.entries[seq] for seq in (1, 2, 3, 4, 8)]
        target.put_entries(log.key, path, source="test")
        assert bundle_export.held_logs(target) == [(log.key, 4)]
        filled(target, log)
        target.drop(log.key, 3, 3)
        assert bundle_export.held_logs(target) == [(log.key, 8)]
        target.want(log.key, 3, 3)
        assert bundle_export.held_logs(target) == [(log.key, 2)]


@pytest.mark.parametrize("what", ["a bundle", "cut off", "flipped", "not from entry 1"])
def test_a_have_that_is_none_is_refused(what: str) -> None:
    with two() as (source, target):
        filled(source, log_of(1, SOME))
        filled(target, log_of(1, SOME))
        data = had(target)
        wrong = {
            "a bundle": exported(source),
            "cut off": data[:-1],
            "flipped": data[:30] + bytes((data[30] ^ 1,)) + data[31:],
            "not from entry 1": HEADER + encode_record(0, bytes(32) + b"\0\x02\x03"),
        }
        with pytest.raises(BundleRefused):
            exported(source, have=wrong[what])


def test_partial_logs_arrive_with_their_gaps() -> None:
    with two() as (source, target):
        log = log_of(1, [b"p%d" % seq for seq in range(1, 101)])
        path = [log.entries[seq] for seq in sorted(lower_pool(100))]
        source.put_entries(log.key, path, source="test")
        done, named = imported(target, exported(source))
        assert (done.entries, named) == (len(path), [])
        assert content(target) == content(source)


# --- forks, deleted payloads, own logs ----------------------------------------------------------


def forked() -> tuple[AuthorLog, AuthorLog]:
    """Two histories that part with entry 4."""
    one = log_of(1, [b"p%d" % seq for seq in range(1, 8)])
    other = AuthorLog(1, entries={seq: one.entries[seq] for seq in (1, 2, 3)})
    other.add_all([4, 5, 6])
    return one, other


def test_a_fork_is_found_as_by_replication_and_its_proof_travels() -> None:
    one, other = forked()
    with two() as (source, target), Store.memory(signing_key=signing_key(97)) as third:
        filled(source, one)
        filled(target, other)
        done, named = imported(target, exported(source))
        assert named == []
        assert [(each.key, each.seq) for each in done.forks] == [(one.key, 4)]
        assert (done.entries, done.already_held) == (0, 3)
        with Store.memory(signing_key=signing_key(96)) as peer:
            filled(peer, other)
            peer.put_entries(one.key, list(one.entries.values()), source="peer")
            assert target.fork(one.key) == peer.fork(one.key)
        data = exported(target)
        assert [each.type for each in records(data)][:2] == [0, PROOF]
        done, _ = imported(third, data)
        assert [each.seq for each in done.forks] == [4]
        info = third.log(one.key)
        assert info is not None
        assert (info.state, info.newest) == (LogState.FORKED, 3)
        again, _ = imported(third, exported(source))
        assert again == BundleImported(0, 0, 3, 0, False, ())


def test_both_branches_in_one_bundle_are_a_fork() -> None:
    one, other = forked()
    with two() as (source, target):
        filled(source, one)
        found = records(exported(source))
        second = encode_record(ENTRY, other.entries[4].encoded)
        at = next(each.end for each in found if each.body == one.entries[4].encoded)
        data = exported(source)
        done, _ = imported(target, data[:at] + second + data[at:])
        assert [each.seq for each in done.forks] == [4]


def test_what_was_deleted_here_is_not_taken_unless_it_is_fetched() -> None:
    with two() as (source, target):
        log = log_of(1, [b"small", bytes(LARGE), b"other"])
        filled(source, log)
        data = exported(source)
        imported(target, data)
        target.drop(log.key, 1, 2)
        done, named = imported(target, data)
        assert (done.payloads, named) == (0, [])
        states = [each[2] is None for each in content(target)[log.key]]
        assert states == [True, True, False]
        target.want(log.key, 1, 2)
        done, _ = imported(target, data)
        assert done.payloads == 2
        assert content(target) == content(source)
        assert target.wants() == {}


def test_own_entries_count_as_shared_before_they_leave_and_contested_ones_stay() -> None:
    with two() as (source, _):
        source.append([b"mine"] * 3)
        key = LogKey(source.author, 0)
        assert source.shared() == {}
        exported(source)
        assert source.shared() == {key: 3}
        source.append([b"more"] * 2)
        elsewhere = log_of(99, [b"mine"] * 3)
        contrary = elsewhere.add(4, b"signed on another machine")
        assert source.put_many([(key, [contrary])], source="test")[0].contested
        bodies = [each.body for each in records(exported(source)) if each.type == ENTRY]
        assert len(bodies) == 3


# --- what is wrong ------------------------------------------------------------------------------


def test_bad_entries_and_payloads_are_named_by_offset_and_the_rest_is_stored() -> None:
    with two() as (source, target):
        filled(source, log_of(1, [b"one"]), log_of(2, [b"x" * 100, bytes(LARGE), b"z"]))
        data = exported(source)
        bad = bytearray(data)
        found = records(data)
        entry = next(
            each for each in found if each.type == ENTRY and each.body[1:33] == found[1].body[1:33]
        )
        bad[entry.end - 1] ^= 1  # in its signature
        large = next(each for each in found if len(each.body) == 65_536)
        bad[large.end - 1] ^= 1
        done, named = imported(target, bytes(bad))
        assert [offset for offset, _ in named] == [entry.offset, large.offset, found[-1].offset]
        assert "signature" in named[0][1]
        assert "not the one whose hash" in named[1][1]
        assert done.cut_short is False
        assert imported(target, data)[0].bad == 0
        assert content(target) == content(source)


@pytest.mark.parametrize("size", [100, LARGE])
@pytest.mark.parametrize("change", ["short", "long"])
def test_payloads_of_the_wrong_length_are_named(size: int, change: str) -> None:
    with two() as (source, target):
        filled(source, log_of(1, [b"p" * size, b"next"]))
        data = exported(source)
        pieces = [each for each in records(data) if each.type == PAYLOAD]
        last = pieces[-2]
        if change == "short":
            cut = data[: last.offset] + encode_record(PAYLOAD, last.body[:-1]) + data[last.end :]
        else:
            cut = data[: last.end] + encode_record(PAYLOAD, b"!") + data[last.end :]
        done, named = imported(target, cut)
        assert named[0][0] == pieces[0].offset
        assert (done.entries, done.payloads) == (2, 1 + (change == "long"))
        imported(target, data)
        assert content(target) == content(source)


def test_an_entry_of_another_log_or_out_of_order_is_bad() -> None:
    with two() as (source, target):
        log, other = log_of(1, [b"1", b"2", b"3"]), log_of(2, [b"1"])
        filled(source, log)
        head = exported(source)[: records(exported(source))[0].end]
        bodies = [log.entries[2], log.entries[1], other.entries[1]]
        stray = b"".join(encode_record(ENTRY, each.encoded) for each in bodies)
        done, named = imported(target, head + stray)
        assert len(named) == 3
        assert "no path to entry 1" in " ".join(why for _, why in named)
        assert done.cut_short
        assert content(target) == {}


@settings(max_examples=60)
@given(data=st.data())
def test_damage_never_costs_what_is_held(data: st.DataObject) -> None:
    with two() as (source, target):
        log = log_of(1, SOME[:4])
        filled(source, log, log_of(2, [b"a", b"b"]))
        target.put_entries(log.key, [log.entries[1], log.entries[2]], source="test")
        before = content(target)
        bundle = bytearray(exported(source))
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(bundle) - 1))
            bundle[at] ^= data.draw(st.integers(1, 255))
        imported(target, bytes(bundle))
        assert content(target)[log.key][:2] == before[log.key]
        assert faults(target) == []
        done, _ = imported(target, exported(source))
        assert not done.cut_short
        imported(target, exported(source))
        assert content(target) == content(source)


# --- cut anywhere -------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(logs=logs_strategy(), data=st.data())
def test_an_import_that_was_cut_off_goes_on(logs: list[AuthorLog], data: st.DataObject) -> None:
    with two() as (source, target):
        filled(source, *(each for each in logs if each.entries))
        bundle = exported(source)
        for _ in range(data.draw(st.integers(1, 3))):
            cut = data.draw(st.integers(0, len(bundle) - 1))
            done, named = imported(target, bundle[:cut])
            assert (done.cut_short, named) == (True, [])
            assert faults(target) == []
        done, named = imported(target, bundle)
        assert (done.cut_short, named) == (False, [])
        assert content(target) == content(source)
        assert faults(target) == []
        assert target.partial_payloads() == {}


def test_of_a_payload_what_has_come_is_kept() -> None:
    with two() as (source, target):
        log = log_of(1, [bytes(LARGE)])
        filled(source, log)
        data = exported(source)
        piece = next(each for each in records(data) if each.type == PAYLOAD)
        imported(target, data[: piece.end + 100])
        stored = target.entry(log.key, 1)
        assert stored is not None
        assert (stored.payload_state, stored.partial_bytes) == (PayloadState.PARTIAL, 65_536)
        done, _ = imported(target, data)
        assert (done.entries, done.payloads, done.already_held) == (0, 1, 1)


def test_what_is_damaged_is_told_and_left_out(tmp_path: Path) -> None:
    with (
        Store.create(tmp_path / "store", signing_key=signing_key(99)) as source,
        Store.memory(signing_key=signing_key(98)) as target,
    ):
        log = log_of(1, [b"1", b"A" * LARGE, b"3"])
        filled(source, log)
        (file,) = [
            each
            for each in (tmp_path / "store/payloads").rglob("*")
            if each.is_file() and each.stat().st_size
        ]
        file.write_bytes(b"B" * LARGE)
        out, told = io.BytesIO(), list[str]()
        done = export_bundle(source, out, report=told.append)
        assert (done.damaged, len(told), done.entries, done.payloads) == (1, 1, 3, 2)
        assert imported(target, out.getvalue())[0] == BundleImported(3, 2, 0, 0, False, ())


def test_nothing_waits_in_memory(tmp_path: Path) -> None:
    import tracemalloc

    with (
        Store.create(tmp_path / "a", signing_key=signing_key(99)) as source,
        Store.create(tmp_path / "b", signing_key=signing_key(98)) as target,
    ):
        log = AuthorLog()
        size = 24 << 20
        log.add(1, bytes(size))
        filled(source, log)
        log.entries.clear()
        tracemalloc.start()
        try:
            export_bundle(source, tmp_path / "file")
            with (tmp_path / "file").open("rb") as file:
                import_bundle(target, file)
            assert tracemalloc.get_traced_memory()[1] < size / 4
        finally:
            tracemalloc.stop()
        assert yamf_hash(payload_of(target, log.key, 1)) == yamf_hash(bytes(size))


def test_a_decoder_after_an_error_is_the_importers_end() -> None:
    with two() as (source, target):
        filled(source, log_of(1, [b"1", b"2"]))
        data = exported(source)
        with pytest.raises(BundleError):
            records(data[:-1] + b"!")
        done, named = imported(target, data[:-1] + b"!")
        assert (done.entries, done.bad, done.cut_short) == (2, 1, False)
        assert named[0][0] == records(data)[-1].offset


class Meddler(io.BytesIO):
    """A pipe while whose first bytes are written something happens to the store."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act: Callable[[], object] | None = act

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        act, self._act = self._act, None
        if act is not None:
            act()
        return super().write(data)


def test_what_comes_while_it_is_written_is_for_the_next_one() -> None:
    with two() as (source, target):
        log, other = log_of(1, [b"1", None, b"3"]), log_of(2, [b"other"])
        filled(source, log)

        def meddle() -> None:
            filled(source, other)
            source.complete_payload(log.key, 2, b"not held")
            source.drop(log.key, 3, 3)
            log.add(4, b"late")
            filled(source, log)

        out = Meddler(meddle)
        done = export_bundle(source, out)
        assert (done.logs, done.entries, done.payloads) == (1, 3, 1)
        done_import, named = imported(target, out.getvalue())
        assert (done_import.entries, done_import.payloads, named) == (3, 1, [])
