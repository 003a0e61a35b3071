"""The relay's session by itself: each rule of 3.3, step by step, without sockets or a store."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.datastream.codec import Declaration, Entry, Header
from gateways.datastream.sessions import (
    Append,
    AskEntries,
    AskHeader,
    DeclaredOtherwise,
    HistoriesDiffer,
    OpenedLog,
    OpenLog,
    ReadOwn,
    RelayEnds,
    RelaySession,
    StartData,
    Truncate,
    Wait,
)

DECLARED = Declaration(1, 137, 1, "relay")


def entries(count: int, mark: bytes = b"") -> list[Entry]:
    return [Entry(number, 1, mark + bytes([number])) for number in range(count)]


class Host:
    """Carries steps out on lists: `stored` is upstream's, `log` ours; `step` returns the next."""

    def __init__(self, stored: list[Entry], log: list[Entry], **options: bool) -> None:
        self.stored = stored
        self.log = log
        self.session = RelaySession(**options)
        self._steps: Generator[Any, Any, None] = self.session.run()
        self._answer: Any = None
        self.asked: list[int] = []

    def header(self) -> Header:
        return Header(1, 137, 1, 4096, len(self.stored))

    def entry(self, number: int) -> Entry | None:
        return self.stored[number] if number < len(self.stored) else None

    def step(self) -> Any:  # noqa: ANN401 - of any kind
        """The next step, carried out."""
        step = self._steps.send(self._answer)
        self._answer = None
        match step:
            case AskHeader():
                self._answer = self.header()
            case AskEntries(numbers):
                assert len(numbers) <= 256
                self.asked += numbers
                self._answer = [self.entry(number) for number in numbers]
            case OpenLog():
                self._answer = OpenedLog(DECLARED, len(self.log))
            case ReadOwn(number):
                self._answer = self.log[number]
            case Truncate(number):
                del self.log[number:]
            case Append(added):
                assert [each.number for each in added] == list(
                    range(len(self.log), len(self.log) + len(added))
                )
                self.log += added
            case _:
                pass
        return step

    def until(self, kind: type) -> Any:  # noqa: ANN401 - of that kind
        """The next step of a kind; those before it are carried out."""
        while not isinstance(step := self.step(), kind):
            pass
        return step

    def to_the_end(self) -> None:
        """Carries out all that is left, until it is content."""
        for _ in self._steps_left():
            pass

    def _steps_left(self) -> Iterator[object]:
        while True:
            try:
                yield self.step()
            except StopIteration:
                return

    def receive(self, *found: Entry) -> None:
        for entry in found:
            self.session.receive(entry)


def streaming(stored: list[Entry], log: list[Entry], **options: bool) -> Host:
    host = Host(stored, log, **options)
    assert host.until(StartData).number == len(log)
    assert host.step() == Wait(2.0)
    return host


def test_what_the_header_counted_before_it_came_is_appended_as_it_came() -> None:
    host = streaming(entries(5), [])
    host.receive(*entries(5))
    host.until(Wait)
    assert host.log == entries(5)
    assert host.asked == []


def test_what_was_not_counted_when_it_came_waits_and_is_asked_for() -> None:
    host = streaming(entries(3), [])
    host.receive(*entries(3), Entry(3, 1, b"rolled back"))
    # Three are appended, and the fourth is looked at again soon.
    assert host.until(Wait) == Wait(0.05)
    assert host.log == entries(3)
    host.stored.append(Entry(3, 1, b"committed"))
    host.until(Wait)
    assert host.log[3].data == b"committed"
    assert host.asked == [3]


def test_many_are_asked_for_256_at_a_time() -> None:
    host = streaming([], [])
    many = [Entry(number, 1, b"") for number in range(600)]
    host.receive(*many)
    host.stored += many
    host.until(Append)
    assert host.asked == list(range(600))


def test_an_entry_that_is_counted_and_not_there_ends_it() -> None:
    host = streaming([], [])
    host.receive(*entries(1))
    host.stored += entries(1)
    host.entry = lambda number: None  # type: ignore[method-assign]
    with pytest.raises(RelayEnds, match="counts entry 0 and does not have it"):
        host.until(Append)
    assert host.log == []


def test_one_that_waits_is_replaced_with_those_behind_it() -> None:
    host = streaming([], [])
    host.receive(*entries(3))
    host.receive(Entry(1, 1, b"anew"))
    host.stored += [entries(1)[0], Entry(1, 1, b"anew")]
    host.until(Wait)
    assert host.log == host.stored
    with pytest.raises(RelayEnds, match="entry 3 came, and 2 was due"):
        host.receive(Entry(3, 1, b""))


def test_one_that_comes_again_while_it_is_confirmed_is_compared_with_the_log() -> None:
    host = streaming([], [])
    host.receive(*entries(3))
    host.stored += entries(3)
    host.until(AskEntries)
    host.receive(*entries(3)[1:])
    host.until(Append)
    host.until(Wait)
    host.until(Wait)
    assert host.log == entries(3)
    assert not host.session.is_full


def test_what_is_skipped_to_ends_it() -> None:
    host = streaming(entries(5), entries(2))
    with pytest.raises(RelayEnds, match="entry 3 came, and 2 was due"):
        host.receive(entries(5)[3])


def test_an_equal_one_that_comes_again_is_dropped() -> None:
    host = streaming(entries(4), entries(3))
    host.receive(*entries(4)[1:])
    host.until(Wait)
    assert host.log == entries(4)
    assert host.asked == [2]  # the last one, at the beginning


def test_another_one_that_comes_again_is_dropped_if_upstream_does_not_hold_it_either() -> None:
    host = streaming(entries(4), entries(4))
    host.receive(Entry(2, 9, b"never committed"))
    host.until(Wait)
    assert host.log == entries(4)
    assert host.asked == [3, 2]


@pytest.mark.parametrize("follow", [False, True])
def test_another_one_that_comes_again_and_is_stored_there_is_another_history(follow: bool) -> None:
    host = streaming(entries(6), entries(6), follow_truncation=follow)
    host.stored[2:] = [Entry(2, 1, b"other"), Entry(3, 1, b"other")]
    host.receive(host.stored[3])
    if follow:
        with pytest.raises(RelayEnds, match="another entry 3"):
            host.until(Append)
        assert host.log == entries(2)
    else:
        with pytest.raises(HistoriesDiffer) as caught:
            host.until(Append)
        assert caught.value.number == 2
        assert host.log == entries(6)


@given(st.integers(1, 40), st.integers(0, 39), st.integers(0, 45), st.booleans())
def test_the_first_entry_that_differs_is_found(
    held: int, differs: int, total: int, follow: bool
) -> None:
    differs = min(differs, held - 1)
    stored = (entries(differs) + entries(50, b"other")[differs:])[:total]
    host = Host(stored, entries(held), follow_truncation=follow)
    first = min(differs, total)
    if follow:
        assert host.until(StartData).number == first
        assert host.log == entries(first)
    else:
        with pytest.raises(HistoriesDiffer) as caught:
            host.until(StartData)
        assert caught.value.number == first
    assert len(host.asked) <= 8


def test_a_log_that_declares_something_else_is_left_alone() -> None:
    host = Host(entries(1), [])
    host.header = lambda: Header(2, 137, 1, 4096, 1)  # type: ignore[method-assign]
    with pytest.raises(DeclaredOtherwise):
        host.until(StartData)


def test_silence_is_right_as_long_as_upstream_counts_no_more() -> None:
    host = streaming(entries(2), entries(2))
    for _ in range(3):
        assert isinstance(host.step(), AskHeader)
        assert host.step() == Wait(2.0)
    host.stored += entries(3)[2:]
    with pytest.raises(RelayEnds, match="counts 3 entries and sends none"):
        host.until(Append)


def test_a_history_that_has_become_shorter_is_looked_at_from_the_beginning() -> None:
    host = streaming(entries(5), entries(5))
    del host.stored[2:]
    with pytest.raises(RelayEnds, match="2 entries left"):
        host.until(Append)


def test_no_more_than_a_mebibyte_waits() -> None:
    host = streaming([], [])
    big = [Entry(number, 1, b"x" * 300_000) for number in range(4)]
    seen = []
    for some in (big[:3], big[3:]):
        host.receive(*some)
        seen.append(host.session.is_full)
    host.stored += big
    host.until(Wait)
    seen.append(host.session.is_full)
    host.receive(*big)
    seen.append(host.session.is_full)
    host.until(Wait)
    seen.append(host.session.is_full)
    assert seen == [False, True, False, True, False]
    assert host.log == big


@pytest.mark.parametrize("held", [0, 3])
def test_once_is_content_with_what_the_header_said_last(held: int) -> None:
    host = Host(entries(3), entries(held), once=True)
    if held < 3:
        host.until(Wait)
        host.receive(*entries(3))
    host.to_the_end()
    assert host.log == entries(3)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["commit", "send", "steps"]), st.integers(1, 3)),
        st.tuples(st.just("again"), st.integers(0, 12)),
        st.tuples(st.just("early"), st.integers(0, 1)),
    ),
    max_size=40,
)


@given(ACTIONS)
def test_whatever_comes_the_log_holds_what_upstream_has_committed(
    actions: list[tuple[str, int]],
) -> None:
    """Upstream sends what it has committed, again too, and at its end what it may never commit."""
    host = streaming([], [])
    sent = 0
    for kind, number in actions:
        match kind:
            case "commit":
                total = len(host.stored)
                host.stored += entries(total + number)[total:]
            case "send":
                host.receive(*host.stored[sent : sent + number])
                sent = min(len(host.stored), sent + number)
            case "again":
                host.receive(*host.stored[min(number, sent) : sent])
            case "early":
                if sent == len(host.stored):
                    host.receive(Entry(sent, 1, b"never committed" if number else bytes([sent])))
            case _:
                for _ in range(3 * number):
                    if sent < len(host.stored):  # silence would be the end
                        host.receive(*host.stored[sent:])
                        sent = len(host.stored)
                    host.step()
        assert host.log == host.stored[: len(host.log)]
    host.receive(*host.stored[sent:])
    for _ in range(3):
        host.until(Wait)
    assert host.log == host.stored
