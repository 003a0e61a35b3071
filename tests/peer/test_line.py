"""Logs in line: what happened goes ahead of what is offered."""

from peer.planner.line import WaitingLine
from wire import LogKey

LOGS = tuple(LogKey(bytes([n]) * 32, 0) for n in range(6))


def drained(line: WaitingLine) -> list[LogKey]:
    found = []
    while line:
        found.append(line.pop())
    return found


def test_offers_come_in_order_and_backwards() -> None:
    for backwards, expected in ((False, LOGS), (True, LOGS[::-1])):
        line = WaitingLine()
        line.offer(LOGS, backwards=backwards)
        assert drained(line) == list(expected)


def test_what_was_pushed_goes_ahead_of_offers_and_the_first_of_all() -> None:
    line = WaitingLine()
    line.offer(LOGS[:2])
    line.push(LOGS[2])
    line.push(LOGS[3])
    line.push(LOGS[4], first=True)
    line.push(LOGS[3], first=True)
    assert LOGS[3] in line
    assert drained(line) == [LOGS[3], LOGS[4], LOGS[2], LOGS[0], LOGS[1]]


def test_only_new_offers_get_another_turn() -> None:
    line = WaitingLine()
    line.offer(LOGS[:3])
    assert line.pop() == LOGS[0]
    line.offer(LOGS[:5])
    assert drained(line) == list(LOGS[1:5])
    line.offer(LOGS[:4])
    assert not line
    line.offer(LOGS)
    assert drained(line) == list(LOGS[4:])


def test_what_made_room_goes_behind_offers() -> None:
    line = WaitingLine()
    line.offer(LOGS[:2])
    for log in LOGS[2:5]:
        line.step_behind(log)
        line.push(log)
    line.step_forward(LOGS[4])
    line.push(LOGS[4])
    assert LOGS[2] in line
    assert line.count(LOGS[3].__eq__) == 2 + 1
    assert drained(line) == [LOGS[4], LOGS[0], LOGS[1], LOGS[2], LOGS[3]]
    assert not line


def test_what_makes_room_while_it_stands_in_line_steps_behind_and_stands_there_once() -> None:
    line = WaitingLine()
    line.offer((LOGS[0], LOGS[2]))
    line.push(LOGS[1])
    line.push(LOGS[2], first=True)
    line.step_behind(LOGS[2])
    line.push(LOGS[2], first=True)
    # Nor does it get ahead by being offered with all others of its author.
    line.asked_for(LOGS[2])
    assert drained(line) == [LOGS[1], LOGS[0], LOGS[2], LOGS[2]]


def test_who_found_no_credit_keeps_his_place_behind_others_too() -> None:
    line = WaitingLine()
    line.offer(LOGS[:1])
    for log in LOGS[1:4]:
        line.step_behind(log)
        line.push(log)
    line.push(LOGS[3], first=True)
    assert drained(line) == [LOGS[0], LOGS[3], LOGS[1], LOGS[2]]
