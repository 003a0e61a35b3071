"""How far a log has come, in the fields of `status --json`."""

from typing import Any

import pytest

from local_api import log_standings
from logstore import PolicyKind, Store, Subscription
from tests.logstore.authors import AuthorLog
from wire import lower_pool

LOG = AuthorLog(1)
ENTRIES = LOG.add_all(range(1, 41))
KEY = {"author": LOG.key.author.hex(), "log_id": LOG.key.log_id}
COMPANY = {"since": "2026-01-02T03:04:05Z", "until": None, "peers": ["ab"]}


def node(newest: int = 0, **others: object) -> dict[str, Any]:
    """What a node says of the log: that a peer holds so many entries, if that is more than here."""
    told = KEY | {
        "behind": newest,
        "answered": True,
        "in_step_at": "2026-01-01T00:00:00Z",
        "in_step_with": ["cd"],
        "peers": [{"address": "x", "newest": newest}],
    }
    return {"logs": [told] if newest else [], "company": COMPANY, **others}


def fields(store: Store, said: dict[str, Any] | None) -> dict[str, Any]:
    [log] = [each for each in log_standings(store, said, None) if each.key == LOG.key]
    return log.fields()


def put(store: Store, seqs: range | list[int], *, held: bool = True) -> None:
    some = [ENTRIES[seq - 1] for seq in seqs]
    if not held:
        some = [LOG.make(each.seq, each.payload, held=False) for each in some]  # type: ignore[arg-type]
    store.put_entries(LOG.key, some, source="peer")


@pytest.mark.parametrize(
    ("policy", "held", "total"),
    [
        ("full", 10, 40),
        ("metadata", 10, 40),
        ("latest:35", 5, 35),
        ("range:5..20", 6, 16),
        ("range:5..8", 4, 4),
        ("sparse", 3, len(lower_pool(40))),
    ],
)
def test_what_is_wanted_up_to_the_newest_of_a_peer_is_the_total(
    policy: str, held: int, total: int
) -> None:
    with Store.memory() as store:
        put(store, range(1, 11))
        store.follow(LOG.key, Subscription.parse(policy))
        found = fields(store, node(40))
        if policy == "sparse":
            held = len(set(lower_pool(40)) & set(range(1, 11)))
        assert (found["held"], found["total"]) == (held, total)
        assert found["percent"] == 100 * held // total
        assert found["total_is_final"] is True


def test_of_what_nobody_follows_nothing_is_missing() -> None:
    with Store.memory() as store:
        put(store, range(1, 11))
        found = fields(store, node(40))
        assert (found["held"], found["total"], found["percent"]) == (10, 10, 100)


def test_a_gap_counts_as_missing_and_not_as_held() -> None:
    with Store.memory() as store:
        put(store, [1, 2, 3, 4, 13, 40])
        store.follow(LOG.key)
        found = fields(store, node(totals_final=True))
        assert (found["held"], found["total"], found["percent"]) == (6, 40, 15)
        assert found["total_is_final"] is True


def test_of_a_forked_log_no_more_is_wanted_than_is_valid() -> None:
    with Store.memory() as store:
        put(store, range(1, 11))
        store.put_entries(LOG.key, [LOG.make(8, b"another")], source="peer")
        store.follow(LOG.key)
        found = fields(store, node(40))
        assert (found["held"], found["total"]) == (7, 7)


def test_a_log_that_is_followed_and_not_here_has_a_total() -> None:
    with Store.memory() as store:
        store.follow(LOG.key)
        found = fields(store, node(40))
        assert (found["held"], found["total"], found["percent"]) == (0, 40, 0)
        assert (found["payload_bytes_held"], found["payload_bytes_total"]) == (0, 0)


def test_rates_say_how_long_it_takes() -> None:
    with Store.memory() as store:
        put(store, range(1, 11))
        store.follow(LOG.key)
        assert fields(store, node(40))["eta_s"] is None
        moving = [KEY | {"rate_entries": 4.0, "rate_bytes": 10}]
        found = fields(store, node(40, moving=moving))
        assert (found["rate_entries"], found["rate_bytes"], found["eta_s"]) == (4.0, 10, 8)
        store.unfollow(LOG.key)
        assert fields(store, node(40, moving=moving))["eta_s"] == 0


def test_where_only_payloads_are_missing_bytes_say_how_long_it_takes() -> None:
    with Store.memory() as store:
        put(store, range(1, 11), held=False)
        store.follow(LOG.key)
        moving = [KEY | {"rate_entries": 0.0, "rate_bytes": 10}]
        found = fields(store, node(moving=moving))
        assert found["payload_bytes_held"] == 0
        assert found["eta_s"] == -(-found["payload_bytes_total"] // 10)
        store.follow(LOG.key, Subscription(PolicyKind.METADATA))
        assert fields(store, node(moving=moving))["eta_s"] == 0


def test_since_when_it_is_in_step_and_with_whom() -> None:
    with Store.memory() as store:
        put(store, range(1, 11))
        store.follow(LOG.key)
        whole = fields(store, node())
        # Its entries came later than the peer.
        assert whole["in_step_at"] > COMPANY["since"]
        assert whole["in_step_with"] == ["ab"]
        late = COMPANY | {"since": "9999-01-01T00:00:00Z"}
        assert fields(store, node(company=late))["in_step_at"] == late["since"]
        alone = COMPANY | {"until": "2026-01-03T00:00:00Z"}
        assert fields(store, node(company=alone))["in_step_at"] == alone["until"]
        behind = fields(store, node(40))
        assert (behind["in_step_at"], behind["in_step_with"]) == ("2026-01-01T00:00:00Z", ["cd"])
        nobody = fields(store, None)
        assert (nobody["in_step_at"], nobody["in_step_with"]) == (None, [])
        assert nobody["total_is_final"] is False
