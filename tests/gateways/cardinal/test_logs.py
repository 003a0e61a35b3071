"""The logs of a stream: made all or none, found again, and refused by name where they are none."""

from pathlib import Path

import pytest

from gateways import free_runs
from gateways.cardinal import (
    Gathering,
    NotAStream,
    Settings,
    Stream,
    create_stream,
    held_entries,
    messages_of_entry,
    own_stream,
    stream_of,
)
from gateways.cardinal.declared import ReorgDeclared, TopicDeclared, declare, read_declared
from gateways.cardinal.frames import ENTRY_BYTES, encode_frame, encode_note
from gateways.cardinal.logs import Lying, Unread, new_entries
from gateways.declaration import DeclarationError
from logstore import LogMoved, Store, StoreDamaged
from tests.gateways.failing import damage
from wire import LogKey

SETTINGS = Settings("demo", patterns=(("a/", "accounts"), ("s/", "storage"), ("b/", "accounts")))


def made(store: Store, settings: Settings = SETTINGS, log_id: int | None = None) -> Stream:
    return create_stream(store, store.append_many, settings, log_id=log_id)


def ignored(_: StoreDamaged) -> None:
    """Damage is no matter of the test."""


def test_a_stream_is_made_of_a_run_of_logs_and_found_again(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store") as store:
        for used in (2, 5):
            store.append([b"x"], log_id=used)
        stream = made(store)
        assert stream.key == LogKey(store.author, 6)
        assert stream.declared.log_ids == {"accounts": 7, "main": 6, "storage": 8}
        for topic, log_id in stream.declared.log_ids.items():
            entry = store.entry(LogKey(store.author, log_id), 1)
            assert entry is not None
            assert entry.payload is not None
            assert read_declared(entry.payload) == stream.declared._replace(topic=topic)
        # The default topic comes last, as it is written.
        assert [*stream.topics()] == ["accounts", "storage", "main"]
        assert made(store) == stream
        assert own_stream(store, "demo") == stream == stream_of(store, stream.key)
        assert own_stream(store, "other") is None
        with pytest.raises(NotAStream, match="other settings"):
            made(store, SETTINGS._replace(threshold=1))


def test_where_a_stream_is_to_begin() -> None:
    with Store.memory() as store:
        assert made(store, Settings("one"), log_id=77).key.log_id == 77
        assert made(store, Settings("two")).key.log_id == 1
        with pytest.raises(LogMoved):
            made(store, SETTINGS, log_id=75)
        # Nothing of it was made.
        assert [info.key.log_id for info in store.logs()] == [1, 77]
        runs = free_runs(store, 3, 74)
        assert [next(runs) for _ in range(3)] == [74, 78, 79]


def test_what_cannot_be_declared_makes_nothing() -> None:
    with Store.memory() as store:
        with pytest.raises(DeclarationError, match="pattern"):
            made(store, Settings("demo", patterns=(("(?=a)", "t"),)))
        many = tuple((f"{number}/" + "x" * 60, "t") for number in range(100, 160))
        with pytest.raises(ValueError, match="4096"):
            made(store, Settings("demo", patterns=many))
        assert [*store.logs()] == []


def test_what_is_no_stream_is_said() -> None:
    with Store.memory() as store:
        stream = made(store)
        topic = LogKey(store.author, stream.declared.log_ids["accounts"])
        with pytest.raises(NotAStream, match="the topic 'accounts'") as refused:
            stream_of(store, topic)
        assert str(stream.key) in str(refused.value)
        channel = store.append([declare(ReorgDeclared("demo", 7, bytes(32)))], log_id=50)
        with pytest.raises(NotAStream, match="channel"):
            stream_of(store, channel[0].key)
        other = store.append([b"{}"], log_id=51)
        with pytest.raises(NotAStream, match="no stream"):
            stream_of(store, other[0].key)
        with pytest.raises(NotAStream, match="nothing is held"):
            stream_of(store, LogKey(store.author, 99))
        elsewhere = TopicDeclared("demo", "main", "main", {"main": 3}, (), 1)
        lying = store.append([declare(elsewhere)], log_id=52)
        with pytest.raises(NotAStream, match="another log"):
            stream_of(store, lying[0].key)
        store.drop(stream.key, 1, 1)
        with pytest.raises(NotAStream, match="payload of its entry 1"):
            stream_of(store, stream.key)


def test_consecutive_messages_of_a_topic_share_an_entry() -> None:
    with Store.memory() as store:
        stream = made(store)
        gathering = Gathering(stream)
        for topic, key in (("main", b"1"), ("main", b"2"), ("storage", b"3"), ("main", b"4")):
            gathering.add(topic, key, b"v")
        ids = stream.declared.log_ids
        assert gathering.take() == [
            (ids["main"], [encode_frame(b"1", b"v") + encode_frame(b"2", b"v")]),
            (ids["storage"], [encode_frame(b"3", b"v")]),
            (ids["main"], [encode_frame(b"4", b"v")]),
        ]
        assert gathering.take() == []
        with pytest.raises(KeyError):
            gathering.add("nowhere", b"k", b"v")
        for _ in range(3):
            gathering.add("main", b"k", bytes(ENTRY_BYTES // 2))
        batches = gathering.take()
        assert [len(payload) // (ENTRY_BYTES // 2) for _, [payload] in batches] == [1, 1, 1]


def test_what_waits_is_written_once_it_is_much() -> None:
    with Store.memory() as store:
        gathering = Gathering(made(store))
        full = []
        for _ in range(3):
            gathering.add("main", b"k", bytes(ENTRY_BYTES // 2))
            full.append(gathering.is_full)
        assert full == [False, True, True]


def test_messages_come_out_in_the_order_of_their_arrival_and_bad_ones_are_named() -> None:
    with Store.memory() as store:
        stream = made(store)
        ids = stream.declared.log_ids
        position = store.position()
        big = encode_frame(b"big", bytes(100_000))
        for topic, payload in (
            ("storage", encode_frame(b"1", b"")),
            ("main", encode_note({"channel": 9}) + encode_frame(b"2", b"") + b"\xff"),
            ("accounts", encode_frame(b"3", b"")),
            ("storage", big),
            ("main", encode_frame(b"5", b"")),
        ):
            store.append([payload], log_id=ids[topic])
        store.append([b""], log_id=ids["main"], end_of_log=True)
        logs = stream.topics()
        expected = [
            ("storage", b"1"),
            ("main", b"2"),
            ("accounts", b"3"),
            ("storage", b"big"),
            ("main", b"5"),
        ]
        for entries in (
            held_entries(store, logs, ignored),
            new_entries(store, position, logs, ignored),
        ):
            found = [
                each
                for _, topic, entry in entries
                for each in messages_of_entry(store, topic, entry)
            ]
            assert [(each.topic, each.key) for each in found if isinstance(each, Lying)] == expected
            [bad] = [each for each in found if isinstance(each, Unread)]
            assert (bad.log.log_id, bad.seq) == (ids["main"], 2)
        damage(store, LogKey(store.author, ids["main"]), 3)
        damaged: list[StoreDamaged] = []
        left = [topic for _, topic, _ in held_entries(store, logs, damaged.append)]
        assert left.count("main") == 2
        assert len(damaged) == 1
