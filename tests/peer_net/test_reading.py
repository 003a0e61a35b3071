"""What a session is told of a log."""

from logstore import NewEntry, Store
from peer import LookUp
from peer.net.reading import look_up
from wire import decode_entry

SIZE = 200_000


def test_a_payload_whose_bytes_are_all_there_but_unproved_begins_anew() -> None:
    """No request may begin at the end of a payload (point2point.md 3)."""
    with Store.memory() as author, Store.memory() as replica:
        [appended] = author.append([b"x" * SIZE])
        held = author.entry(appended.key, 1)
        assert held is not None
        entry = decode_entry(held.encoded)
        replica.put_entries(
            appended.key, [NewEntry(1, held.encoded, held.hash, None)], source="test"
        )
        for written, resumes_at in ((SIZE // 2, SIZE // 2), (SIZE, 0)):
            with replica.payload_sink(
                appended.key, 1, SIZE, entry.payload_hash, source="test"
            ) as sink:
                sink.write(b"x" * (written - sink.offset))
            view = look_up(replica, LookUp(1, appended.key), ()).view
            assert view.tail_partial_bytes == resumes_at
