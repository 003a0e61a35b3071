"""A page that is wrong is noticed, and one that is right passes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import Block
from tests.docs.tour import Keys, Tour, commands

KEYS = ["a1" * 32, "b2" * 32, "c3" * 32]


@pytest.fixture
def tour(tmp_path: Path) -> Iterator[Tour]:
    with Tour(tmp_path) as made:
        yield made


def test_a_block_is_taken_apart_into_commands_and_what_they_print() -> None:
    text = "before\n$ one \\\n>   two\nout\nmore\n$ three\n^C\nbye\n"
    assert commands(text) == [
        ("", "before\n"),
        ("one \\\n  two", "out\nmore\n"),
        ("three", ""),
        ("^C", "bye\n"),
    ]


def test_a_key_of_the_page_stands_for_one_key_throughout() -> None:
    keys = Keys()
    assert keys.match(f"{KEYS[0]}/0/1\n", f"{KEYS[1]}/0/1\n")
    assert keys.match(f"log {KEYS[0]}/7\n", f"log {KEYS[1]}/7\n")
    assert not keys.match(f"log {KEYS[0]}/7\n", f"log {KEYS[2]}/7\n")
    assert keys.match(f"log {KEYS[0][:8]}\n", f"log {KEYS[1][:8]}\n")
    assert not keys.match(f"{KEYS[2]} {KEYS[2]}\n", f"{KEYS[0]} {KEYS[1]}\n")


def test_a_key_in_a_command_becomes_the_one_of_this_run(tour: Tour) -> None:
    tour.follow(Block("console", f"$ printf 'b2%.0s' {{1..32}}\n{KEYS[0]}\n"))
    tour.follow(Block("console", f"$ test {KEYS[0]} = {KEYS[1]} && echo yes\nyes\n"))
    with pytest.raises(AssertionError, match="The page shows"):
        tour.follow(Block("console", f"$ test {KEYS[0]} = {KEYS[2]} && echo yes\nyes\n"))


def test_times_and_durations_only_have_to_look_right() -> None:
    keys = Keys()
    assert keys.match("at 2026-01-02T03:04:05.000006Z\n", "at 2027-09-08T07:06:05.040302Z\n")
    assert keys.match("done in 0.2 s\n", "done in 31 s\n")
    assert not keys.match("done in 0.2 s\n", "done in time\n")


def test_three_dots_are_any_lines() -> None:
    keys = Keys()
    assert keys.match("one\n...\nfour\n", "one\ntwo\nthree\nfour\n")
    assert not keys.match("one\n...\nfour\n", "one\ntwo\nthree\n")


def test_everything_else_has_to_be_the_same() -> None:
    assert not Keys().match("4 entries\n", "5 entries\n")
    assert not Keys().match("yes\n", "yes\nno\n")


def test_variables_are_kept_from_command_to_command(tour: Tour) -> None:
    tour.follow(Block("console", "$ NAME=amy\n$ echo $NAME\namy\n"))
    tour.follow(Block("console", "$ echo $NAME\namy\n"))
    with pytest.raises(AssertionError, match="The page shows"):
        tour.follow(Block("console", "$ echo $NAME\nbob\n"))


def test_output_that_the_page_does_not_show_is_noticed(tour: Tour) -> None:
    with pytest.raises(AssertionError, match="The page shows"):
        tour.follow(Block("console", "$ echo one\ntwo\n"))


def test_a_file_of_the_page_is_saved(tour: Tour, tmp_path: Path) -> None:
    tour.follow(Block("python hello.py", "print('hello')\n"))
    assert (tmp_path / "hello.py").read_text() == "print('hello')\n"
    tour.follow(Block("console", "$ python hello.py\nhello\n"))


def test_a_terminal_goes_on_until_it_is_interrupted(tour: Tour) -> None:
    script = (
        "import signal, time\n"
        "print('begin', flush=True)\n"
        "try:\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print('end')\n"
    )
    tour.follow(Block("python wait.py", script))
    tour.follow(Block("console second", "$ python wait.py\nbegin\n"))
    tour.follow(Block("console", "$ echo meanwhile\nmeanwhile\n"))
    with pytest.raises(AssertionError, match="this was printed"):
        tour.follow(Block("console second", "^C\nanother end\n"))


def test_a_terminal_that_ends_too_early_is_noticed(tour: Tour) -> None:
    with pytest.raises(AssertionError, match="this was printed"):
        tour.follow(Block("console second", "$ true\nnever\n"))


def test_ports_are_made_free_and_stay_the_same(tour: Tour, tmp_path: Path) -> None:
    tour.follow(Block("console", "$ echo localhost:7007 localhost:7008 > first\n"))
    tour.follow(Block("console", "$ echo localhost:7007 localhost:7008 > second\n"))
    first, second = (tmp_path / "first").read_text(), (tmp_path / "second").read_text()
    assert first == second
    ports = [int(address.partition(":")[2]) for address in first.split()]
    assert len(set(ports)) == 2
    assert not {7007, 7008} & set(ports)
