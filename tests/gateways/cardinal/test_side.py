"""The side table: brought on, lost, damaged, of another store, shared; what was deleted here."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateways.cardinal import Consuming, HistoryGone, Side, Stream, Updated, codec, read_state
from gateways.cardinal import side as side_module
from gateways.cardinal.consuming import ProducersDisagree
from gateways.cardinal.declared import declare
from gateways.cardinal.frames import encode_frame, encode_note
from gateways.cardinal.headers import Head
from gateways.cardinal.side import FILE_NAME, BadEvent
from gateways.cardinal.taking import PLACE_BITS
from gateways.cardinal.why import reasons
from logstore import Seldom, Store
from tests.gateways.failing import damage, fill_disk_once
from wire import LogKey

from .chains import SETTINGS, Producer, Replica, block, hash_of, no_clock, taken, updates, view_of

GENESIS = bytes(32)


@pytest.fixture
def producer() -> Iterator[Producer]:
    made = Producer()
    for number in range(1, 8):
        made.add(block(number, number, hash_of(number - 1) if number > 1 else GENESIS, number))
    yield made
    made.close()


@pytest.fixture
def node(tmp_path: Path, producer: Producer) -> Iterator[Store]:
    with Store.create(tmp_path / "node") as store:
        Replica(store).take_all(producer.store)
        yield store


ALL = [((hash_of(number),), ()) for number in range(1, 8)]


def seen(store: Store, producer: Producer) -> list[tuple[object, object]]:
    side = Side(store, Seldom(no_clock))
    try:
        return [*updates(taken(Consuming(store, side, view_of(producer.stream))))]
    finally:
        side.close()


def test_a_table_that_is_lost_damaged_or_of_another_store_is_made_anew(
    node: Store, producer: Producer, tmp_path: Path
) -> None:
    assert seen(node, producer) == ALL
    assert node.path is not None
    path = node.path / FILE_NAME
    kept = path.read_bytes()
    path.unlink()
    assert seen(node, producer) == ALL
    path.write_bytes(b"no database at all")
    assert seen(node, producer) == ALL
    path.write_bytes(kept[: len(kept) // 2])
    assert seen(node, producer) == ALL
    path.write_bytes(kept)
    assert seen(node, producer) == ALL
    with Store.create(tmp_path / "other") as other:
        Replica(other).take(producer.store, producer.stream.key)
        (tmp_path / "other" / FILE_NAME).write_bytes(kept)
        assert seen(other, producer) == []


def test_only_what_is_new_is_read(
    node: Store, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seen(node, producer) == ALL
    producer.add(block(8, 8, hash_of(7), 8))
    Replica(node).take_all(producer.store)
    positions: list[int] = []
    read_changes = Store.read_changes

    def noted(store: Store, after: int, **limits: int) -> object:
        positions.append(after)
        return read_changes(store, after, **limits)

    monkeypatch.setattr(Store, "read_changes", noted)
    assert seen(node, producer) == [*ALL, ((hash_of(8),), ())]
    assert len(positions) == 1
    assert positions[0] >= 22


def test_what_could_not_be_written_is_taken_again(
    node: Store, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = Side(node, Seldom(no_clock))
    consuming = Consuming(node, side, view_of(producer.stream))
    assert len(updates(taken(consuming))) == 7
    producer.add(block(8, 8, hash_of(7), 8))
    Replica(node).take_all(producer.store)
    fill_disk_once(monkeypatch)
    with pytest.raises(Exception, match="full"):
        taken(consuming)
    assert updates(taken(consuming)) == [((hash_of(8),), ())]
    side.close()


def test_two_who_bring_one_table_on(node: Store, producer: Producer) -> None:
    sides = [Side(node, Seldom(no_clock)) for _ in range(2)]
    both = [Consuming(node, side, view_of(producer.stream)) for side in sides]
    replica = Replica(node)
    found: list[list[object]] = [[], []]
    for number in range(8, 30):
        producer.add(block(number, number, hash_of(number - 1), number))
        replica.take_all(producer.store)
        first = number % 2
        found[first] += updates(taken(both[first]))
    for place in range(2):
        found[place] += updates(taken(both[place]))
    assert found[0] == found[1] == [((hash_of(number),), ()) for number in range(1, 30)]
    for side in sides:
        side.close()


def test_a_damaged_entry_keeps_nobody_from_the_others(
    node: Store, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    node.append([b"no stream at all"], log_id=5)
    damage(node, LogKey(node.author, 5), 1)
    accounts = producer.stream.topics()["accounts"]
    damage(node, accounts, 4)
    assert seen(node, producer) == ALL[:2]
    assert str(accounts) in caplog.text
    side = Side(node, Seldom(no_clock))
    consuming = Consuming(node, side, view_of(producer.stream))
    taken(consuming)
    waits = reasons(node, side, consuming, hash_of(3))
    assert waits.state == "incomplete"
    assert waits.sentences == ["block 3 waits for 1 of 1 messages under 'a/'"]
    above = reasons(node, side, consuming, hash_of(5))
    assert above.state == "side"
    assert above.sentences == [
        f"block 5 is complete; the parent of block 4 is not: {hash_of(3).hex()}"
    ]
    assert reasons(node, side, consuming, hash_of(2)).state == "chain"
    assert reasons(node, side, consuming, hash_of("none")).state == "unknown"
    side.close()


def test_bad_frames_are_told_with_their_place_and_the_rest_counts(producer: Producer) -> None:
    good = encode_frame(*codec.encode_message(codec.Update(hash_of("x"), b"a/1", b"")))
    bad = encode_frame(b"\x03" + hash_of("x"), b"")
    producer.store.append_many([(producer.stream.key.log_id, [good + bad + good + b"\xff\x01"])])
    side = Side(producer.store, Seldom(no_clock))
    said = taken(Consuming(producer.store, side, view_of(producer.stream)))
    found = [each for each in said if isinstance(each, BadEvent)]
    assert [(each.log, each.seq, each.frame) for each in found] == [
        (producer.stream.key, 9, 1),
        (producer.stream.key, 9, 3),
    ]
    assert "empty application key" in found[0].reason
    assert len(updates(said)) == 7
    side.close()


def test_a_payload_of_nothing_but_bad_frames_costs_a_thousand_rows(producer: Producer) -> None:
    producer.store.append_many([(producer.stream.key.log_id, [b"\x01\x09\x00" * 40_000])])
    side = Side(producer.store, Seldom(no_clock))
    said = taken(Consuming(producer.store, side, view_of(producer.stream)))
    found = [each for each in said if isinstance(each, BadEvent)]
    assert len(found) == 1_000
    assert "the last that is told" in found[-1].reason
    assert len(updates(said)) == 7
    side.close()


def test_two_streams_that_claim_one_log(producer: Producer) -> None:
    declared = producer.stream.declared
    first = free = 50
    ids = {**declared.log_ids, "main": free}
    other = declared._replace(log_ids=ids, topic="main")
    producer.store.append_many([(first, [declare(other)])])
    side = Side(producer.store, Seldom(no_clock))
    both = view_of(producer.stream, Stream(LogKey(producer.store.author, free), other))
    assert updates(taken(Consuming(producer.store, side, both))) == ALL
    side.close()


@pytest.mark.parametrize("named", ["own", "other", "large", "later"])
def test_a_note_that_names_no_channel(producer: Producer, named: str) -> None:
    """Of the stream's own log, of one that declares something else, of one that does so later."""
    log_id = producer.stream.key.log_id if named == "own" else 77
    if named in ("other", "large"):
        # A large payload lies in a file.
        first = b"no channel" * (1 if named == "other" else 20_000)
        producer.store.append([first], log_id=log_id)
    note = encode_note({"channel": log_id})
    reorg = encode_frame(*codec.encode_message(codec.Reorg(hash_of(3), 3)))
    # A note is about the frame behind it: this one has none.
    lost = note + encode_frame(*codec.encode_message(codec.Ping(GENESIS, b""))) + reorg
    producer.store.append_many([(producer.stream.key.log_id, [note + reorg])])
    side = Side(producer.store, Seldom(no_clock))
    consuming = Consuming(producer.store, side, view_of(producer.stream))
    changes = updates(taken(consuming))
    assert changes[7:] == [((), tuple(hash_of(number) for number in range(4, 8)))]
    assert (consuming.channel is not None) == (named == "later")
    producer.begin()
    if named == "later":
        producer.store.append([b"no channel"], log_id=log_id)
        assert taken(consuming) == []
    assert consuming.channel is None
    producer.writer.channel = None
    producer.store.append_many([(producer.stream.key.log_id, [lost])])
    producer.add(block(4, "new", hash_of(3), 1))
    assert updates(taken(consuming))[-1] == ((hash_of("new"),), ())
    assert consuming.channel is None
    side.close()


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_history_begins_behind_what_was_deleted(
    node: Store, producer: Producer, *, is_made_anew: bool
) -> None:
    view = view_of(producer.stream)
    side = Side(node, Seldom(no_clock))
    old = Consuming(node, side, view)
    taken(old)
    node.drop(producer.stream.topics()["accounts"], 2, 4)
    side.close()
    if is_made_anew:
        assert node.path is not None
        (node.path / FILE_NAME).unlink()
    side = Side(node, Seldom(no_clock))
    fresh = Consuming(node, side, view)
    assert updates(taken(fresh)) == ALL[3:]
    with pytest.raises(HistoryGone, match=f"4 {hash_of(4).hex()}"):
        Consuming(node, side, view, start=Head(2, hash_of(2), 2))
    # At the edge and above it goes on.
    for number in (3, 5):
        start = Head(number, hash_of(number), number)
        assert updates(taken(Consuming(node, side, view, start=start))) == ALL[number:]
    goes_on = Consuming(node, side, view, progress=old.progress())
    assert updates(taken(goes_on)) == []
    with pytest.raises(HistoryGone, match="cannot be read"):
        goes_on.content(hash_of(2))
    side.close()


def test_a_token_goes_on_on_another_node(producer: Producer) -> None:
    first, second = Store.memory(), Store.memory()
    replicas = Replica(first), Replica(second)
    sides = [Side(store, Seldom(no_clock)) for store in (first, second)]
    view = view_of(producer.stream)
    replicas[0].take_all(producer.store)
    here = Consuming(first, sides[0], view)
    half = taken(here)[: 2 * 4]
    progress = [each for each in half if isinstance(each, Updated)][-1].progress
    token = here.token(progress)
    assert token.endswith("/3=6")
    # The other one has the logs in another order.
    for topic in ("main", "storage", "accounts"):
        while replicas[1].take(producer.store, producer.stream.topics()[topic], 1):
            pass
    there = Consuming(second, sides[1], view, start=progress.head, token=token)
    assert updates(taken(there)) == ALL[4:]
    for side in sides:
        side.close()


def test_a_state_beside_a_store_that_was_put_back_goes_on_by_its_token(
    producer: Producer, tmp_path: Path
) -> None:
    topics = producer.stream.topics()
    view = view_of(producer.stream)
    with Store.create(tmp_path / "node") as store:
        for topic in ("main", "accounts", "storage"):
            Replica(store).take(producer.store, topics[topic], 1)
    shutil.copytree(tmp_path / "node", tmp_path / "copy")
    with Store.open(tmp_path / "node") as store:
        Replica(store).take_all(producer.store)
        side = Side(store, Seldom(no_clock))
        here = Consuming(store, side, view)
        half = [each for each in taken(here) if isinstance(each, Updated)][:4]
        states = [here.state(each.progress) for each in half]
        assert read_state(store, states[-1]) == (half[-1].progress, None)
        side.close()
    shutil.copy(tmp_path / "node" / FILE_NAME, tmp_path / "copy")
    # It grows again past the same numbers, with the logs in another order.
    with Store.open(tmp_path / "copy") as store:
        for topic in ("storage", "accounts", "main"):
            Replica(store).take(producer.store, topics[topic])
        progress, token = read_state(store, states[-1])
        assert token is not None
        assert progress.at >> PLACE_BITS <= store.position()
        side = Side(store, Seldom(no_clock))
        there = Consuming(store, side, view, progress=progress, token=token)
        assert updates(taken(there)) == ALL[4:]
        # Nor does the table count, which is ahead of the copy and not of what it is now.
        assert updates(taken(Consuming(store, side, view))) == ALL
        side.close()


def test_views_that_are_not_used_any_more_go(
    node: Store, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_module, "VIEWS_MAX", 2)
    monkeypatch.setattr(side_module, "UNUSED_S", -10)
    side = Side(node, Seldom(no_clock))
    for number in range(5):
        view = view_of(producer.stream, track=(f"{number}",))
        assert len(updates(taken(Consuming(node, side, view)))) == 7
    side.close()
    assert node.path is not None
    with sqlite3.connect(node.path / FILE_NAME) as db:
        assert db.execute("SELECT count(*) FROM views").fetchone()[0] <= 3
        [blocks] = db.execute("SELECT count(*) FROM blocks").fetchone()
        assert blocks <= 21
    db.close()


def test_streams_that_are_declared_otherwise_are_both_named(producer: Producer) -> None:
    other = Producer(SETTINGS._replace(patterns=()))
    side = Side(producer.store, Seldom(no_clock))
    with pytest.raises(ProducersDisagree, match=str(other.stream.key)):
        Consuming(producer.store, side, view_of(producer.stream, other.stream))
    side.close()
    other.close()
