"""A bundle of any bytes is taken in or named, and what is held and verified stays as it was.

The same bytes in other pieces are the same records, and a file of any bytes is gone on with into
a bundle that is whole, or left as it is.
"""

import io
import tempfile
from contextlib import suppress
from pathlib import Path

from nacl.signing import SigningKey

from fuzz.harness import main
from fuzz.wire_samples import LOG, ROWS
from logstore import BundleRefused, NewEntry, Store, export_bundle, import_bundle
from logstore.bundle_records import (
    ENTRY,
    HEADER,
    PAYLOAD,
    PROOF,
    BundleDecoder,
    BundleError,
    LogRange,
    Record,
    decode_log,
    encode_log,
    encode_record,
)
from wire import yamf_hash

_KEYS = SigningKey(b"\1" * 32), SigningKey(b"\2" * 32)
_NEWS = [NewEntry(seq, encoded, yamf_hash(encoded), payload) for seq, encoded, payload in ROWS]
_HELD = 3
_PATH = Path(tempfile.mkdtemp()) / "bundle"


def _exported() -> bytes:
    with Store.memory(signing_key=_KEYS[0]) as store:
        store.put_entries(LOG, _NEWS, source="corpus")
        out = io.BytesIO()
        export_bundle(store, out)
        return out.getvalue()


_WHOLE = _exported()
_LOG = HEADER + encode_log(LogRange(LOG, 1, 2))
CORPUS = [
    _WHOLE,
    _LOG + encode_record(ENTRY, ROWS[0][1]) + encode_record(PAYLOAD, ROWS[0][2]),
    _LOG + encode_record(PROOF, ROWS[0][1] + ROWS[0][1]),
    _LOG + encode_record(0x55, b"later"),
]


def _records(data: bytes, step: int) -> tuple[list[Record], str]:
    decoder, records = BundleDecoder(), []
    try:
        for at in range(0, len(data), step):
            decoder.feed(data[at : at + step])
            while (record := decoder.next_record()) is not None:
                records.append(record)
    except BundleError as error:
        return records, f"{error.offset} {error}"
    return records, str(decoder.is_complete)


def _check_whole(written: bytes) -> None:
    """What was gone on with has all, or as much as it says itself."""
    records, ended = _records(written, len(written))
    assert ended == "True"
    last = decode_log(records[0]).last
    encodings = [each.body for each in records if each.type == ENTRY]
    assert encodings == [encoded for seq, encoded, _ in ROWS if seq <= last]
    payloads = [each.body for each in records if each.type == PAYLOAD]
    assert payloads == [payload for seq, _, payload in ROWS if seq <= last]


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    assert _records(data, 7) == _records(data, len(data) + 1)
    with Store.memory(signing_key=_KEYS[1]) as store:
        store.put_entries(LOG, _NEWS[:_HELD], source="held")
        before = store.read(LOG, 1, entries_max=_HELD, bytes_max=1 << 20, with_payload=False)
        named: list[int] = []
        done = import_bundle(store, io.BytesIO(data), lambda offset, _: named.append(offset))
        assert done.bad == len(named)
        assert not done.forks
        assert all(0 <= offset <= len(data) for offset in named)
        assert (
            store.read(LOG, 1, entries_max=_HELD, bytes_max=1 << 20, with_payload=False) == before
        )
        for row in store.read(LOG, 1, entries_max=100, bytes_max=1 << 20, with_payload=False):
            assert row.encoded == ROWS[row.seq - 1][1]
    with Store.memory(signing_key=_KEYS[0]) as store:
        store.put_entries(LOG, _NEWS, source="corpus")
        _PATH.write_bytes(data)
        with suppress(BundleRefused):
            export_bundle(store, _PATH)
            _check_whole(_PATH.read_bytes())
            return
        assert _PATH.read_bytes() == data


if __name__ == "__main__":
    main(check, CORPUS)
