"""Writes the store that tests/logstore/fixtures keeps of a format, once, when the format is new.

python -m tests.logstore.make_fixture tests/logstore/fixtures/format-N

The reserve and files that are there to be locked are not kept.
"""

import sys
from pathlib import Path

from logstore import ALL, Store, Subscription
from tests.logstore.authors import AuthorLog, signing_key
from wire import lower_pool, yamf_hash

LARGE = bytes(65_537)


def make(path: Path) -> None:
    """One of everything that a store keeps."""
    with Store.create(path, signing_key=signing_key(1000)) as store:
        store.append([b"own %d" % number for number in range(1, 11)])
        store.append([LARGE, b"last"], log_id=2**64 - 1, end_of_log=True)
        log = AuthorLog(1)
        entries = log.add_all(range(1, 9))
        store.put_entries(log.key, entries, source="peer")
        store.put_entries(log.key, [log.add(9, LARGE + b"?", held=False)], source="peer")
        store.drop(log.key, 2, 3)
        wanted = (log.key, 9, len(LARGE) + 1, yamf_hash(LARGE + b"?"))
        with store.payload_sink(*wanted, source="peer") as sink:
            sink.write(LARGE[:1000])
        forked = AuthorLog(2)
        store.put_entries(forked.key, forked.add_all(range(1, 5)), source="peer")
        store.put_entries(forked.key, [forked.make(3, b"other")], source="peer")
        for target in (ALL, log.key, forked.key.author):
            store.follow(target)
        partial = AuthorLog(3)
        partial.add_all(range(1, 41))
        store.put_entries(partial.key, [partial.entries[s] for s in lower_pool(40)], source="peer")
        store.follow(log.key, Subscription.parse("range:1..9"))
        store.want(log.key, 3, 3)
        store.remember("name", b"value")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
