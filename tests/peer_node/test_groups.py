"""From the order in which entries came to a transaction, and back to each session's answers."""

from itertools import takewhile

import pytest

from logstore import EntryRejectedInfo, ForkProof, PutResult
from peer import Event, Ingested, IngestFailed, IngestItem, Refusal
from peer.node.host.groups import Checked, Group, grouped, replies
from peer.node.host.port import Port
from tests.records import replace

from .support import Author, run_of


def port() -> Port:
    return Port(1, "a peer", lambda events, payer: None, lambda error: pytest.fail(str(error)))


def handed_in(port: Port, items: list[IngestItem], *, bad: tuple[int, ...] = ()) -> list[Checked]:
    """Entries that were handed in and checked; `bad`: seqnums with a wrong signature."""
    checked = []
    for item in items:
        handed = port.handed(item.request, item.log)
        handed.entries += len(item.entries)
        valid = takewhile(lambda entry: entry[0] not in bad, item.entries)
        checked.append(Checked(handed, item, len(list(valid))))
    return checked


def result(author: Author, **changes: object) -> PutResult:
    fields: dict[str, object] = {"stored": 0, "known": 0, "fork": None, "height": 0, "newest": 0}
    return PutResult(key=author.log, **{**fields, **changes})  # type: ignore[arg-type]


def answers(port: Port, groups: list[Group]) -> list[Event]:
    return replies(groups)[port]


def test_entries_of_one_request_are_one_group_and_one_answer() -> None:
    author, session = Author(), port()
    [group] = groups = grouped(handed_in(session, author.items(1, 3)))
    assert [entry.seq for entry in group.new_entries()] == [1, 2, 3]
    assert answers(session, groups) == [Ingested(1, 3)]
    assert session.handed_in == {}


def test_the_order_of_two_requests_of_one_log_is_kept() -> None:
    author, session = Author(), port()
    items = [*author.items(1, 2), *author.items(3, 3, request=2), *author.items(4, 4)]
    groups = grouped(handed_in(session, items))
    assert [[entry.seq for entry in group.entries] for group in groups] == [[1, 2], [3], [4]]


def test_logs_that_come_mixed_are_grouped_by_log() -> None:
    one, other, session = Author(1), Author(2), port()
    items = [one.item(1), other.item(1, request=2), one.item(2), other.item(2, request=2)]
    groups = grouped(handed_in(session, items))
    assert [[entry.seq for entry in group.entries] for group in groups] == [[1, 2], [1, 2]]


def test_a_wrong_signature_refuses_it_and_all_behind_it_in_the_request() -> None:
    author, session = Author(), port()
    groups = grouped(handed_in(session, author.items(1, 5), bad=(3,)))
    assert [entry.seq for entry in groups[0].new_entries()] == [1, 2]
    good, failed = answers(session, groups)
    assert good == Ingested(1, 2)
    assert isinstance(failed, IngestFailed)
    assert (failed.seq, failed.entries) == (3, 3)
    assert (failed.refusal, failed.detail) == (Refusal.INVALID, "the signature is wrong")


def test_a_wrong_signature_in_a_run_refuses_what_is_behind_it() -> None:
    author, session = Author(), port()
    items = [run_of(author.items(1, 4)), run_of(author.items(5, 9)), run_of(author.items(10, 12))]
    [group] = groups = grouped(handed_in(session, items, bad=(7,)))
    assert [entry.seq for entry in group.new_entries()] == [1, 2, 3, 4, 5, 6]
    good, failed = answers(session, groups)
    assert good == Ingested(1, 6)
    assert failed == IngestFailed(1, 7, Refusal.INVALID, "the signature is wrong", 6)


def test_what_the_store_rejects_in_a_run_refuses_what_is_behind_it() -> None:
    author, session = Author(), port()
    [group] = groups = grouped(handed_in(session, [run_of(author.items(1, 9))]))
    rejected = EntryRejectedInfo(4, "a reason")
    group.take_result(result(author, rejected=rejected), invalid_seq=None)
    good, failed = answers(session, groups)
    assert good == Ingested(1, 3)
    assert failed == IngestFailed(1, 4, Refusal.INVALID, "a reason", 6)


def test_the_size_of_a_payload_that_is_due_goes_with_its_entry() -> None:
    author, session = Author(), port()
    first, second = author.item(1), replace(author.item(2, payload=False), due_bytes=70_000)
    [group] = grouped(handed_in(session, [first, second]))
    assert [(entry.seq, entry.due_bytes) for entry in group.new_entries()] == [(1, 0), (2, 70_000)]


def test_what_is_handed_in_after_a_refusal_is_booked_anew() -> None:
    author, session = Author(), port()
    first = handed_in(session, author.items(1, 2), bad=(1,))
    late = handed_in(session, author.items(3, 3))
    failed = answers(session, grouped(first))[-1]
    # The one that was under way belongs to what was refused.
    assert isinstance(failed, IngestFailed)
    assert failed.entries == 3
    assert grouped(late) == []
    again = grouped(handed_in(session, author.items(1, 1)))
    assert answers(session, again) == [Ingested(1, 1)]


@pytest.mark.parametrize(
    ("invalid_seq", "refusal"), [(None, Refusal.INVALID), (2, Refusal.FORKED), (4, Refusal.INVALID)]
)
def test_what_the_store_rejects_is_the_senders_fault_unless_the_author_broke_the_log(
    invalid_seq: int | None, refusal: Refusal
) -> None:
    author, session = Author(), port()
    [group] = groups = grouped(handed_in(session, author.items(1, 3)))
    rejected = EntryRejectedInfo(3, "a reason")
    group.take_result(result(author, rejected=rejected), invalid_seq=invalid_seq)
    good, failed = answers(session, groups)
    assert good == Ingested(1, 2)
    assert failed == IngestFailed(1, 3, refusal, "a reason", 1)


def test_what_contradicts_held_entries_is_the_authors_fault() -> None:
    author, session = Author(), port()
    [group] = groups = grouped(handed_in(session, author.items(1, 3)))
    rejected = EntryRejectedInfo(3, "a reason", contradicts=True)
    group.take_result(result(author, rejected=rejected), invalid_seq=None)
    assert answers(session, groups)[1] == IngestFailed(1, 3, Refusal.FORKED, "a reason", 1)


def test_entries_from_a_fork_on_are_refused() -> None:
    author, session = Author(), port()
    [group] = groups = grouped(handed_in(session, author.items(1, 3)))
    group.take_result(result(author, fork=ForkProof(author.log, 2, b"", b"")), invalid_seq=None)
    good, failed = answers(session, groups)
    assert good == Ingested(1, 1)
    assert failed == IngestFailed(1, 2, Refusal.FORKED, "forked at 2", 2)


def test_a_fork_above_the_entries_refuses_none() -> None:
    author, session = Author(), port()
    [group] = groups = grouped(handed_in(session, author.items(1, 3)))
    group.take_result(result(author, fork=ForkProof(author.log, 9, b"", b"")), invalid_seq=None)
    assert answers(session, groups) == [Ingested(1, 3)]


def test_entries_that_may_link_to_a_refused_one_are_refused_for_the_same_reason() -> None:
    author, other, session = Author(1), Author(2), port()
    first = handed_in(session, author.items(1, 2))
    behind = handed_in(session, author.items(3, 4, request=2))
    apart = handed_in(session, other.items(1, 1, request=3))
    [group] = groups = grouped(first)
    group.refuse_from(0, Refusal.STORAGE, "disk full")
    assert answers(session, groups) == [IngestFailed(1, 1, Refusal.STORAGE, "disk full", 2)]
    events = answers(session, grouped([*behind, *apart]))
    assert events == [
        IngestFailed(2, 3, Refusal.STORAGE, "disk full", 2),
        Ingested(3, 1),
    ]
