"""Each reason why a log is not complete, or a peer brings nothing, is said with what to do."""

from collections.abc import Iterator
from typing import Any

import pytest
from nacl.signing import SigningKey

from logstore import ALL, NewEntry, PolicyKind, Store, Subscription
from peer.node import Reason, lack_of, why_log, why_peer
from wire import LogKey, yamf_hash

from .support import Author

PEER = "10.0.0.1:7007"
LOG = LogKey(bytes(SigningKey(b"r" * 32).verify_key), 0)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.memory() as held:
        yield held


def connection(**fields: object) -> dict[str, object]:
    return {
        "address": PEER,
        "direction": "outgoing",
        "state": "established",
        "since": "2026-01-01T10:00:00Z",
        "last_error": None,
        "attempts": 0,
        "retry_at": None,
        "entries_received": 1,
        "entries_sent": 0,
        "logs": 1,
    } | fields


def of_peer(**fields: object) -> dict[str, object]:
    plain = {"address": PEER, "newest": 0, "active": 0, "refused": None, "given_up": None}
    return plain | fields


def state(*peers: dict[str, object], behind: int = 0, **fields: object) -> dict[str, Any]:
    log = {"author": LOG.author.hex(), "log_id": 0, "height": 0, "newest": 0, "behind": behind}
    return {
        "connections": [connection()],
        "ended": [],
        "logs_in_trouble": len(peers),
        "logs": [log | {"peers": list(peers)}] if peers else [],
    } | fields


def said(reasons: list[Reason]) -> str:
    return "\n".join(map(str, reasons))


def is_wrong(reasons: list[Reason]) -> bool:
    return any(reason.wrong for reason in reasons)


def held(store: Store, *, payloads: bool = True) -> LogKey:
    """Two entries of a log of somebody else; without `payloads` the second one's is missing."""
    author = Author()
    rows = []
    for seq in (1, 2):
        encoded = author.sign(seq, b"payload")
        payload = b"payload" if payloads or seq == 1 else None
        rows.append(NewEntry(seq, encoded, author.hash(seq), payload))
    store.put_entries(author.log, rows, source="test")
    return author.log


def test_a_log_that_is_not_followed(store: Store) -> None:
    reasons = why_log(store, state(), LOG)
    assert is_wrong(reasons)
    assert "nothing of it is held here" in said(reasons)
    assert f"it is not followed, so nothing new of it is taken in: `bamboo-peer follow {LOG}`" in (
        said(reasons)
    )


@pytest.mark.parametrize("followed", [True, False])
def test_a_fetch_of_what_nobody_has(store: Store, *, followed: bool) -> None:
    """Of a log that is in order else, or is not followed."""
    log = held(store)
    if followed:
        store.follow(log)
        assert not is_wrong(why_log(store, state(), log))
    store.want(log, 3, 5)
    [reason] = [each for each in why_log(store, state(), log) if "fetch" in each.text]
    assert reason.wrong
    assert "3..5" in reason.text
    store.unwant(log, 3, 5)
    assert not [each for each in why_log(store, state(), log) if "fetch" in each.text]


def test_a_fetch_that_is_coming_says_from_whom_and_how_far(store: Store) -> None:
    log = held(store, payloads=False)
    store.want(log, 1, 2)
    part = {"author": log.author.hex(), "log_id": 0, "seq": 2, "bytes": 3, "payload_bytes": 7}
    others = part | {"log_id": 1, "seq": 1, "address": "another log"}
    peer = of_peer(active=1, fetching=True, arriving=2, last_progress="T")
    told_of = {"author": log.author.hex(), "log_id": 0, "height": 2, "newest": 2, "behind": 0}
    node = state(logs=[told_of | {"peers": [peer]}], arriving=[part | {"address": PEER}, others])
    reasons = why_log(store, node, log)
    middle = "in the middle of the payload of entry 2 (3 of 7 bytes have come, 42 %)"
    assert [str(each) for each in reasons if each.wrong] == [
        "a `fetch` wants 1..2, and not all of it has come"
    ]
    assert [str(each) for each in reasons if not each.wrong] == [
        "it is held up to entry 2",
        "it is not followed, so nothing else of it is taken in",
        f"it is being fetched from {PEER}; something came last at T, {middle}",
    ]
    # A payload that another peer brings than the one that the log is fetched from.
    away = node | {"arriving": [part | {"address": "b:1", "seq": 1}]}
    assert "the payload of entry 1 comes from b:1 (3 of 7 bytes have come, 42 %)" in (
        said(why_log(store, away, log))
    )


def test_a_fetch_that_nobody_connected_can_answer(store: Store) -> None:
    store.want(LOG, 1, 1)
    words = said(why_log(store, state(of_peer()), LOG))
    assert f"the only connected peer, {PEER}, does not offer what is missing" in words
    assert "no node serves this store" in said(why_log(store, None, LOG))
    asked = state(of_peer(active=1, fetching=True, last_progress=None))
    assert f"it is asked of {PEER}, from where nothing of it has come yet" in (
        said(why_log(store, asked, LOG))
    )


def test_no_node_that_serves_the_store(store: Store) -> None:
    store.follow(LOG)
    assert "no node serves this store" in said(why_log(store, None, LOG))
    assert "start one with `bamboo-peer serve`" in said(why_peer(store, None, PEER))


def test_a_node_that_calls_nobody(store: Store) -> None:
    store.follow(ALL)
    alone = state(connections=[])
    assert "nobody is connected, and the node calls nobody: name a peer" in (
        said(why_log(store, alone, LOG))
    )


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (f"{PEER}: Connection refused", "see whether a node listens there"),
        (f"{PEER}: no answer in 10 s", "no firewall is between"),
        ("not a bamboo peer: it speaks HTTP", "belongs to another program"),
        ("request 4: a number in use (point2point.md 2)", "`serve --trace FILE` shows how"),
        ("connection lost: Connection reset by peer", "calls again by itself"),
    ],
)
def test_a_peer_that_cannot_be_reached(store: Store, error: str, advice: str) -> None:
    store.follow(LOG)
    away = connection(
        state="waiting", last_error=error, attempts=3, retry_at="2026-01-01T10:00:09Z"
    )
    for reasons in (
        why_log(store, state(connections=[away]), LOG),
        why_peer(store, state(connections=[away]), PEER),
    ):
        assert is_wrong(reasons)
        assert "cannot be reached: " + error.removeprefix(f"{PEER}: ") in said(reasons)
        assert "(3 attempts), the next attempt is at 2026-01-01T10:00:09Z" in said(reasons)
        assert advice in said(reasons)


def test_on_loopback_the_error_says_what_to_do(store: Store) -> None:
    store.follow(LOG)
    error = "the other side does not speak TLS; on loopback call it without `ID@` and --tls"
    away = connection(
        state="waiting", last_error=error, attempts=1, retry_at="2026-01-01T10:00:09Z"
    )
    told = said(why_peer(store, state(connections=[away]), PEER))
    assert "does not speak TLS (1 attempt), the next" in told
    assert told.endswith("Z: call it without `ID@` and --tls")
    assert "tls=no" not in told


def test_nobody_connected_offers_it(store: Store) -> None:
    store.follow(LOG)
    reasons = why_log(store, state(of_peer()), LOG)
    assert f"the only connected peer, {PEER}, does not offer what is missing: connect" in (
        said(reasons)
    )
    two = state(of_peer(), connections=[connection(), connection(address="b:1")])
    assert "none of the 2 connected peers offers" in said(why_log(store, two, LOG))


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (128, "does not give or take it (cancel 128 at T)"),
        (129, "has nothing of it, or no resources for it now (cancel 129 at T)"),
        (132, "lacks a payload that it is to send (cancel 132 at T)"),
        (133, "holds other entries of it than are held here (cancel 133 at T)"),
        (135, "says that it is forked (cancel 135 at T)"),
    ],
)
def test_a_peer_that_refused(store: Store, reason: int, words: str) -> None:
    store.follow(LOG)
    refused = of_peer(refused={"reason": reason, "at": "T"})
    assert f"{PEER} {words}" in said(why_log(store, state(refused), LOG))
    assert f"of {LOG}: {PEER} {words}" in said(why_peer(store, state(refused), PEER))


def test_a_refusal_that_a_later_request_has_overtaken_is_not_told(store: Store) -> None:
    store.follow(LOG)
    overtaken = of_peer(refused={"reason": 129, "at": "T"}, active=1)
    assert "cancel" not in said(why_log(store, state(overtaken), LOG))


def test_a_disk_that_is_full(store: Store) -> None:
    store.follow(LOG)
    given_up = of_peer(given_up={"detail": "entry 4: the disk is full", "at": "T"})
    reasons = why_log(store, state(given_up), LOG)
    assert is_wrong(reasons)
    assert f"what {PEER} sent could not be kept at T: entry 4: the disk is full" in said(reasons)


def test_a_log_that_is_behind_names_who_holds_more_and_whom_it_is_fetched_from(
    store: Store,
) -> None:
    store.follow(LOG)
    source = of_peer(newest=40, active=1, fetching=True, last_progress="T")
    reasons = why_log(store, state(source, behind=40), LOG)
    assert is_wrong(reasons)
    assert f"it is behind by 40 entries: {PEER} holds up to entry 40" in said(reasons)
    assert f"it is being fetched from {PEER}; something came last at T" in said(reasons)
    one = state(of_peer(newest=1), behind=1)
    assert "behind by 1 entry:" in said(why_log(store, one, LOG))
    assert f"of {LOG} it holds 1 entry more than we" in said(why_peer(store, one, PEER))


def test_gaps_that_the_other_side_may_have_too(store: Store) -> None:
    author = Author()
    rows = [NewEntry(seq, author.sign(seq, b""), author.hash(seq), b"") for seq in range(1, 6)]
    store.put_entries(author.log, [rows[0], rows[3]], source="test")
    store.follow(author.log)
    source = of_peer(newest=4, active=1, fetching=True)
    told_of = {"author": author.log.author.hex(), "log_id": author.log.log_id, "height": 1}
    log = told_of | {"newest": 4, "behind": 3, "peers": [source]}
    words = said(why_log(store, state() | {"logs_in_trouble": 1, "logs": [log]}, author.log))
    assert (
        f"2 entries below entry 4 missing: {PEER} holds that one too, perhaps with the same gaps"
    ) in words
    assert f"it is asked of {PEER}, from where nothing of it has come yet" in words
    assert "behind by" not in words


def test_how_much_of_a_large_payload_is_here(store: Store) -> None:
    author, payload = Author(), b"p" * 100_000
    rows = [NewEntry(1, author.sign(1, payload), author.hash(1), None)]
    store.put_entries(author.log, rows, source="test")
    store.follow(author.log)
    entry = store.entry(author.log, 1)
    assert entry is not None
    with store.payload_sink(author.log, 1, len(payload), yamf_hash(payload), source="test") as sink:
        sink.write(payload[:70_000])
    peer = of_peer(active=1, fetching=True, arriving=1, last_progress="T")
    told_of = {"author": author.log.author.hex(), "log_id": author.log.log_id, "height": 1}
    log = told_of | {"newest": 1, "behind": 0, "peers": [peer]}
    words = said(why_log(store, state() | {"logs_in_trouble": 1, "logs": [log]}, author.log))
    assert "in the middle of the payload of entry 1 (70,000 of 100,000 bytes have come, 70 %)" in (
        words
    )


def test_entries_of_ones_own_that_only_others_hold(store: Store) -> None:
    store.append([b"one"])
    own = LogKey(store.author, 0)
    told = state(of_peer(newest=5), behind=4)
    told["logs"][0]["author"] = own.author.hex()
    reasons = why_log(store, told, own)
    assert is_wrong(reasons)
    assert "append nothing before they are here again, or the log forks" in said(reasons)


def test_a_log_in_order_and_an_own_log_without_peers_are_all_well(store: Store) -> None:
    log = held(store)
    store.follow(log)
    reasons = why_log(store, state(), log)
    assert not is_wrong(reasons)
    assert "it is held up to entry 2" in said(reasons)
    assert "no connected peer is known to hold more of it" in said(reasons)
    store.append([b"one"])
    assert not is_wrong(why_log(store, state(connections=[]), LogKey(store.author, 0)))


def test_payloads_that_are_missing_and_payloads_that_are_not_wanted(store: Store) -> None:
    log = held(store, payloads=False)
    store.follow(log)
    wanted = why_log(store, state(), log)
    assert is_wrong(wanted)
    assert "the payload of 1 held entry is missing" in said(wanted)
    store.follow(log, Subscription(PolicyKind.METADATA))
    assert not is_wrong(why_log(store, state(), log))


@pytest.mark.parametrize(
    ("subscription", "cause"),
    [
        (Subscription(PolicyKind.METADATA, max_bytes=6), "it is followed as metadata"),
        (Subscription(max_bytes=6), "payloads above 6 bytes are left out (--max-payload)"),
        (Subscription(min_bytes=8), "payloads below 8 bytes are left out (--min-payload)"),
        (Subscription(eager_bytes=6), "payloads above 6 bytes come only by `fetch` (--eager)"),
        (
            Subscription(PolicyKind.LATEST, count=9, max_bytes=6),
            "it is followed as latest:9 and payloads above 6 bytes are left out (--max-payload)",
        ),
    ],
)
def test_what_leaves_payloads_out_is_named(
    store: Store, subscription: Subscription, cause: str
) -> None:
    log = held(store, payloads=False)
    store.follow(log, subscription)
    reasons = why_log(store, state(), log)
    assert not is_wrong(reasons)
    assert f"the payload of 1 held entry is not here, since {cause}: `bamboo-peer fetch" in (
        said(reasons)
    )


def test_several_missing_payloads_are_told_in_the_plural(store: Store) -> None:
    author = Author()
    rows = [NewEntry(seq, author.sign(seq, b"x"), author.hash(seq), None) for seq in (1, 2, 3)]
    store.put_entries(author.log, rows, source="test")
    store.follow(author.log)
    assert "the payloads of 3 held entries are missing" in (
        said(why_log(store, state(), author.log))
    )


def test_a_log_that_has_ended_and_is_complete_is_all_well(store: Store) -> None:
    store.append([b"one"], end_of_log=True)
    reasons = why_log(store, None, LogKey(store.author, 0))
    assert not is_wrong(reasons)
    assert "its author has ended it with entry 1" in said(reasons)


def test_so_many_logs_in_trouble_that_this_one_is_not_told(store: Store) -> None:
    store.follow(LOG)
    full = state(logs_in_trouble=501)
    assert "so many logs in trouble" in said(why_log(store, full, LOG))


def test_a_peer_in_order_one_in_setup_and_one_with_nothing_in_common(store: Store) -> None:
    fine = why_peer(store, state(), PEER)
    assert not is_wrong(fine)
    assert "both sides keep 1 log in step" in said(fine)
    assert "has not sent its setup yet" in said(
        why_peer(store, state(connections=[connection(state="setup")]), PEER)
    )
    nothing = [connection(logs=0, entries_received=0)]
    strangers = why_peer(store, state(connections=nothing, logs_in_trouble=1), PEER)
    assert is_wrong(strangers)
    assert "no log is followed by both sides" in said(strangers)
    for done in (state(connections=nothing), state(connections=[connection(logs=0)])):
        assert not is_wrong(why_peer(store, done, PEER))
        assert "no request is open" in said(why_peer(store, done, PEER))


def test_a_log_waits_for_a_peer_that_takes_no_more_requests(store: Store) -> None:
    store.follow(LOG)
    full = connection(terms=terms(waits_for=["requests"]))
    words = said(why_log(store, state(connections=[full]), LOG))
    assert f"{PEER} takes no more requests, and each log needs one" in words
    ours = state(of_peer(newest=4, active=1), behind=4, connections=[full])
    assert "takes no more requests" not in said(why_log(store, ours, LOG))


def test_a_peer_that_broke_a_rule_and_one_that_left(store: Store) -> None:
    ended = {"address": PEER, "direction": "incoming", "at": "T"}
    violation = ended | {"kind": "violation", "reason": "request 4: a number in use (rule)"}
    closed = ended | {"kind": "closed", "reason": "closed"}
    reasons = why_peer(store, state(connections=[], ended=[violation]), "10.0.0.1")
    assert is_wrong(reasons)
    assert f"{PEER} broke a rule of the protocol at T: request 4: a number in use (rule)" in (
        said(reasons)
    )
    assert "`serve --trace FILE` shows what it sends" in said(reasons)
    assert not is_wrong(why_peer(store, state(connections=[], ended=[closed]), PEER))


def terms(**fields: object) -> dict[str, object]:
    return {
        "send_greedily": True,
        "accept_greedily": True,
        "greedy_sending": True,
        "greedy_receiving": True,
        "requests": 3,
        "requests_left": 61,
        "peer_requests": 2,
        "peer_requests_max": 1000,
        "in_flight_received": 5,
        "in_flight_received_max": 65536,
        "in_flight_sent": 6,
        "in_flight_sent_max": 70000,
        "rate_sent": None,
        "rate_received": None,
        "waits_for": [],
        "peer_waits_for": [],
    } | fields


def told(node: dict[str, object] | None = None, **fields: object) -> str:
    """What is said of a connection with such terms, which is never a reason to worry."""
    connections = [connection(terms=terms(**fields))]
    with Store.memory() as store:
        reasons = why_peer(store, state() | {"connections": connections} | (node or {}), PEER)
    assert not is_wrong(reasons)
    return said(reasons)


def test_limits_and_how_much_of_them_is_used_are_told() -> None:
    said_of_it = told()
    assert (
        "open requests: 3 of ours, and the peer takes 61 more now; 2 of the peer's, of 1,000"
        in said_of_it
    )
    assert "in flight, 5 of 65,536 are taken by what came" in said_of_it
    assert "6 of 70,000 by what went there" in said_of_it
    assert "--max-rate" not in said_of_it
    assert "waits" not in said_of_it
    assert "of any number by what went there" in told(in_flight_sent_max=None)


def test_rates_are_told_with_what_moves() -> None:
    node: dict[str, object] = {"max_rate": 500_000, "max_rate_per_peer": None}
    said_of_it = told(node, rate_sent=1200, rate_received=0)
    assert (
        "in the last second 1,200 bytes went there and 0 came,"
        " of 500,000 for all together (--max-rate) each way" in said_of_it
    )
    assert "--max-rate-per-peer" not in said_of_it


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"waits_for": ["requests"]},
            "this side waits with further requests until the peer takes some",
        ),
        ({"waits_for": ["in flight"]}, "this side waits until the peer is done with some of what"),
        ({"waits_for": ["rate"]}, "this side waits for its turn to send: raise the limit"),
        (
            {"peer_waits_for": ["requests"]},
            "the peer waits with further requests until some of its own",
        ),
        (
            {"peer_waits_for": ["in flight"]},
            "the peer waits until some of what it sent is stored here",
        ),
        (
            {"peer_waits_for": ["rate"]},
            "the peer waits for its turn to be read from: raise the limit",
        ),
    ],
)
def test_who_waits_for_a_limit_is_told(fields: dict[str, object], expected: str) -> None:
    assert expected in told(None, **fields)


def test_whose_wish_it_is_that_a_direction_is_safe_is_told() -> None:
    assert "(greedy both ways)" in told()
    safe = {"greedy_sending": False, "greedy_receiving": False}
    theirs = told(None, **safe)
    assert "only once they are verified here, since the peer takes no others" in theirs
    assert (
        "only once they are verified there, since the peer sends no others (safe both ways)"
        in theirs
    )
    ours = told(None, send_greedily=False, accept_greedily=False, **safe)
    assert ours.count("since this side wants it so") == 2
    assert "(greedy out, safe in)" in told(None, greedy_receiving=False)
    assert "(safe out, greedy in)" in told(None, greedy_sending=False)


def test_a_peer_that_nobody_has_heard_of(store: Store) -> None:
    reasons = why_peer(store, state(), "elsewhere:7007")
    assert is_wrong(reasons)
    assert "call it with `serve --connect elsewhere:7007`" in said(reasons)


@pytest.mark.parametrize(
    ("policy", "newest", "entries"),
    [
        ("full", 2, False),
        ("full", 3, True),
        ("metadata", 3, True),
        ("sparse", 2, False),
        ("latest:1", 9, True),
        ("range:1..2", 9, False),
        ("range:2..3", 9, True),
    ],
)
def test_what_is_lacking_depends_on_what_is_wanted(
    store: Store, policy: str, newest: int, entries: bool
) -> None:
    log = held(store, payloads=False)
    subscription = Subscription.parse(policy)
    lack = lack_of(store, log, subscription, newest)
    assert lack.entries is entries
    assert lack.payloads is (policy != "metadata")


def test_a_log_of_which_nothing_is_held_lacks_what_is_known_of_it(store: Store) -> None:
    assert not lack_of(store, LOG, Subscription()).entries
    assert lack_of(store, LOG, Subscription(), 1).entries


def test_a_payload_on_its_way_is_no_lack_of_a_source(store: Store) -> None:
    log = held(store, payloads=False)
    store.follow(log)
    peer = of_peer(active=1, fetching=True, arriving=2, last_progress="T")
    told_of = {"author": log.author.hex(), "log_id": log.log_id, "height": 2, "newest": 2}
    node = state() | {"logs_in_trouble": 1, "logs": [told_of | {"behind": 0, "peers": [peer]}]}
    words = said(why_log(store, node, log))
    assert "the payload of 1 held entry is missing" in words
    assert (
        f"it is being fetched from {PEER}; something came last at T,"
        " in the middle of the payload of entry 2" in words
    )
    assert "does not offer" not in words


def test_what_came_after_the_node_said_how_it_is_is_no_trouble(store: Store) -> None:
    """The state is a second old at most: a log that is whole cannot be what a peer has more of."""
    author = Author()
    store.follow(author.log)
    log = author.log
    told = {"author": log.author.hex(), "log_id": 0, "height": 0, "newest": 0, "behind": 3}
    peer = of_peer(newest=3, active=1)
    old = state() | {
        "connections": [connection(entries_received=0, logs=0)],
        "logs_in_trouble": 1,
        "logs": [told | {"peers": [peer]}],
    }
    assert "it holds 3 entries more than we" in said(why_peer(store, old, PEER))
    assert "no log is followed by both sides" in said(why_peer(store, old, PEER))
    rows = [NewEntry(seq, author.sign(seq, b"x"), author.hash(seq), b"x") for seq in (1, 2, 3)]
    store.put_entries(log, rows, source=PEER)
    assert not is_wrong(why_log(store, old, log))
    assert not is_wrong(why_peer(store, old, PEER))
