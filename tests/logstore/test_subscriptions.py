"""What of a log is wanted: logstore/subscriptions.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import FULL, PolicyKind, Subscription
from wire import U64_MAX, lower_pool

SEQS = st.integers(1, U64_MAX)
SUBSCRIPTIONS = st.one_of(
    st.sampled_from(
        [Subscription(kind) for kind in (PolicyKind.FULL, PolicyKind.METADATA, PolicyKind.SPARSE)]
    ),
    st.builds(Subscription, st.just(PolicyKind.LATEST), count=SEQS),
    st.tuples(SEQS, SEQS).map(
        lambda ends: Subscription(PolicyKind.RANGE, first=min(ends), last=max(ends))
    ),
    st.builds(Subscription, st.just(PolicyKind.RANGE), first=SEQS),
)


@given(SUBSCRIPTIONS)
def test_a_policy_is_read_as_it_is_written(subscription: Subscription) -> None:
    assert Subscription.parse(str(subscription)) == subscription


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("full", "full"),
        ("metadata", "metadata"),
        ("sparse", "sparse"),
        ("latest:7", "latest:7"),
        ("range:3..9", "range:3..9"),
        ("range:3..", "range:3.."),
        ("range:..9", "range:1..9"),
        ("range:03..09", "range:3..9"),
    ],
)
def test_what_policies_look_like(text: str, said: str) -> None:
    assert str(Subscription.parse(text)) == said


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no policy: it is one of full, sparse"),
        ("FULL", "is no policy"),
        ("full:", "is no policy"),
        ("sparse:3", "is no policy"),
        ("latest", "as in latest:100"),
        ("latest:0", "as in latest:100"),
        ("latest:-1", "as in latest:100"),
        (f"latest:{U64_MAX + 1}", "as in latest:100"),
        ("range", "as in range:10..20"),
        ("range:7", "as in range:10..20"),
        ("range:0..3", "as in range:10..20"),
        ("range:a..3", "as in range:10..20"),
        ("range:9..3", "ends before it begins"),
    ],
)
def test_what_is_no_policy(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Subscription.parse(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Subscription(count=3),
        lambda: Subscription(first=3),
        lambda: Subscription(PolicyKind.LATEST),
        lambda: Subscription(PolicyKind.RANGE, first=3, last=2),
        lambda: Subscription(min_bytes=3, max_bytes=2),
        lambda: Subscription(max_bytes=U64_MAX + 1),
        lambda: Subscription(eager_bytes=-1),
    ],
)
def test_what_makes_no_sense_is_refused(make: "type[Subscription]") -> None:
    with pytest.raises(ValueError, match=r"."):
        make()


def test_payloads_are_wanted_by_size() -> None:
    middle = Subscription(min_bytes=10, max_bytes=20, eager_bytes=15)
    assert [size for size in range(30) if middle.wants_payload(size)] == list(range(10, 16))
    assert FULL.wants_payload(0)
    assert FULL.wants_payload(U64_MAX)
    assert not Subscription(PolicyKind.METADATA).wants_payload(0)


@given(SUBSCRIPTIONS, st.integers(0, 400))
def test_the_entries_wanted(subscription: Subscription, newest: int) -> None:
    wanted = {seq for seq in range(newest + 3) if subscription.wants_entry(seq, newest)}
    numbers = set(range(1, newest + 1))
    expected = {
        PolicyKind.FULL: numbers,
        PolicyKind.METADATA: numbers,
        PolicyKind.SPARSE: set(lower_pool(newest)) if newest else set(),
        PolicyKind.LATEST: {seq for seq in numbers if seq > newest - subscription.count},
        PolicyKind.RANGE: {
            seq
            for seq in numbers
            if subscription.first <= seq and (subscription.last or U64_MAX) >= seq
        },
    }
    assert wanted == expected[subscription.kind]
