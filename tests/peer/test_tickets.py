"""Each look-up gets its own answer: peer/protocol/tickets.py."""

from peer.protocol.commands import Command, LookUp
from peer.protocol.events import LogView, LookedUp
from peer.protocol.tickets import Tickets
from wire import LogKey

LOGS = [LogKey(bytes([n]) * 32, 0) for n in range(2)]


def test_who_asked_is_told_whatever_the_order_of_the_answers() -> None:
    commands: list[Command] = []
    told: list[tuple[str, LogView]] = []
    tickets = Tickets(commands)
    tickets.look_up(LookUp(0, LOGS[0]), lambda view: told.append(("first", view)))
    tickets.look_up(LookUp(0, LOGS[1]), lambda view: told.append(("second", view)))
    assert commands == [LookUp(1, LOGS[0]), LookUp(2, LOGS[1])]
    assert len(tickets) == 2
    for number in (2, 1):
        assert tickets.answered(LookedUp(number, LogView(LOGS[number - 1])))
    assert told == [("second", LogView(LOGS[1])), ("first", LogView(LOGS[0]))]
    assert len(tickets) == 0


def test_an_answer_that_nobody_waits_for_here_is_somebody_elses() -> None:
    tickets = Tickets([])
    number = tickets.new()
    assert not tickets.answered(LookedUp(number, LogView(LOGS[0])))
    assert tickets.new() != number


def test_an_answer_is_given_once() -> None:
    told: list[LogView] = []
    tickets = Tickets([])
    tickets.look_up(LookUp(0, LOGS[0]), told.append)
    answer = LookedUp(1, LogView(LOGS[0]))
    assert [tickets.answered(answer), tickets.answered(answer)] == [True, False]
    assert len(told) == 1
