"""`fetch`, as far as it goes without a peer; tests/cli_online has the rest."""

import signal
from contextlib import suppress

import pytest

from bamboo_cli.interrupting import noted_signals
from logstore import Store
from tests.cli.harness import CommandLine, lines_of, make_log, words
from wire import LogKey


@pytest.fixture
def log(own: CommandLine) -> str:
    """Three entries that are held, one of them without its payload."""
    made = make_log(words(3))
    own("import", stdin=lines_of(made))
    own("drop", str(made[0].key), 2)
    return str(made[0].key)


def wants(own: CommandLine) -> dict[LogKey, list[tuple[int, int]]]:
    with Store.open(own.store, readonly=True) as store:
        return store.wants()


def test_what_is_held_already_is_said(own: CommandLine, log: str) -> None:
    result = own("fetch", log, "3", "--from", "localhost")
    assert (result.status, result.lines) == (0, [f"{log} 3: all of it was held already"])
    record = own("fetch", log, "3..3", "--from", "localhost", "--json").record
    author, log_id = log.split("/")
    assert record == {
        "author": author,
        "log_id": int(log_id),
        "first": 3,
        "last": 3,
        "entries": 0,
        "payloads": 0,
        "name": None,
    }


def test_without_a_node_a_peer_has_to_be_named(own: CommandLine, log: str) -> None:
    result = own("fetch", log, "2")
    assert (result.status, result.out) == (3, b"")
    assert "start `serve`, or name a peer with --from" in result.err
    assert wants(own) == {}


def test_what_nobody_brings_is_wanted_no_more(own: CommandLine, log: str) -> None:
    result = own("fetch", log, "1..4", "--from", "localhost:1")
    assert (result.status, result.out) == (3, b"")
    assert "3 of 4 entries held, 2 with payloads: " in result.err
    assert "localhost:1" in result.err
    assert wants(own) == {}


def test_a_node_that_brings_nothing_is_not_waited_for_without_end(
    own: CommandLine, log: str
) -> None:
    with Store.open(own.store) as store, store.lock_node():
        result = own("fetch", log, "2..", "--timeout", "0.2")
    assert (result.status, result.out) == (4, b"")
    assert "nothing has come for 0.2 s; 2 of 2 entries held, 1 with payloads" in result.err
    assert wants(own) == {}


def test_an_open_range_of_nothing_is_a_mistake(own: CommandLine, log: str) -> None:
    author = "ab" * 32
    for argv in ((author, ".."), (log, "4..")):
        result = own("fetch", *argv, "--from", "localhost")
        assert (result.status, result.out) == (1, b"")
        assert "say where the range ends" in result.err


def test_nothing_is_fetched_behind_the_end_of_a_log(own: CommandLine) -> None:
    own("append", "--end-of-log", stdin=b"last")
    result = own("fetch", own.author, "2", "--from", "localhost")
    assert (result.status, result.out) == (1, b"")
    assert "the log is ended: there is no valid entry behind 1" in result.err


@pytest.mark.parametrize("argv", [(), ("LOG",), ("LOG", "0"), ("LOG", "3..1"), ("a b", "1")])
def test_a_log_and_a_range_are_needed(own: CommandLine, argv: tuple[str, ...]) -> None:
    result = own("fetch", *(("ab" * 32) if each == "LOG" else each for each in argv))
    assert (result.status, result.out) == (2, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_in_the_middle_of_a_write_is_not_lost(
    own: CommandLine, log: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """What a handler raises in a callback, or in a destructor, Python drops."""
    want = Store.want

    def interrupted(store: Store, key: LogKey, first: int, last: int) -> bool:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        return want(store, key, first, last)

    with Store.open(own.store) as store, store.lock_node():
        monkeypatch.setattr(Store, "want", interrupted)
        result = own("fetch", log, "2..", "--timeout", "20")
    assert result.status == 130
    assert wants(own) == {}


def test_a_second_interrupt_ends_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), noted_signals():  # noqa: PT012 - which of them raises
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second one was only noted")
    with pytest.raises(KeyboardInterrupt), noted_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before
