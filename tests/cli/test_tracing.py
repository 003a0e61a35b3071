"""`trace show`: records as lines, gathered, filtered, also of a file that is still written."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.harness import CommandLine

AUTHOR = "ab" * 32
LOG = {"author": AUTHOR, "log_id": 0}
HEADER = {"bamboo_peer_trace": 1, "time": "2026-01-01T10:00:00.000000Z"}


def record(ms: int, fields: Mapping[str, object], connection: int = 1) -> object:
    peer = f"10.0.0.{connection}:7007"
    moment = f"2026-01-01T10:00:{ms // 1000:02}.{ms % 1000:03}000Z"
    return {"time": moment, "connection": connection, "peer": peer, "way": "received", **fields}


def data(ms: int, message: str, **fields: object) -> object:
    return record(ms, {"channel": "data", "message": message, "request": 2, **LOG, **fields})


def control(ms: int, message: str, **fields: object) -> object:
    return record(ms, {"channel": "control", "message": message, **fields})


def connection(ms: int, message: str, **fields: object) -> object:
    return record(ms, {"channel": "connection", "message": message, **fields})


def trace(cli: CommandLine, *records: object) -> Path:
    text = "".join(json.dumps(each) + "\n" for each in (HEADER, *records))
    return cli.file("trace", text.encode())


def told(cli: CommandLine, *records: object) -> list[str]:
    """The lines without the first one, and without what is before the message."""
    done = cli("trace", "show", trace(cli, *records))
    assert (done.status, done.err) == (0, "")
    return done.lines[1:]


def entry(ms: int, seq: int) -> list[object]:
    return [
        data(ms, "metadata", seq=seq, piece="metadata"),
        data(ms, "payload bytes", seq=seq, piece="payload", bytes=256),
    ]


def test_neighbouring_entries_of_a_request_are_gathered_in_a_line(cli: CommandLine) -> None:
    packets = [each for seq in range(17, 43) for each in entry(412, seq)]
    assert told(cli, data(400, "switch"), *packets)[-1] == (
        "     0.412  #1 <   r2  metadata+payload 17..42 (26 entries, 6,656 bytes)"
    )


def test_one_entry_and_a_payload_in_many_packets_are_said_as_such(cli: CommandLine) -> None:
    pieces = [data(1, "payload bytes", seq=3, bytes=1000, compressed=True) for _ in range(3)]
    lines = told(cli, *entry(0, 1), control(0, "grant", units=1), *pieces)
    assert lines[1].endswith("metadata+payload 1 (1 entry, 256 bytes)")
    assert lines[-1].endswith("payload 3 (3 packets, 3,000 bytes, compressed)")


def test_the_log_of_a_request_is_named_once(cli: CommandLine) -> None:
    lines = told(cli, data(0, "switch"), data(0, "notify", count=2, seq=1, last_seq=9))
    assert lines == [
        f"     0.000  #1     r2  is about {AUTHOR}/0",
        "     0.000  #1 <   r2  switch",
        "     0.000  #1 <   r2  notify of 1..9 (2 pieces)",
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {
                "message": "propose",
                "request": 2,
                **LOG,
                "start": 5,
                "lower_info": 4,
                "end": 13,
                "upper_info": 13,
                "eagerness": "limited",
                "eager_bytes": 1000,
                "min_bytes": 0,
                "max_bytes": str(2**64 - 1),
                "sparse": True,
                "mandatory": True,
                "starting_hash": "0040" + "c4" * 64,
            },
            (
                f"propose {AUTHOR}/0 5..13 with links 4, send payloads up to 1000, sparse,"
                " mandatory, hash c4c4c4c4..."
            ),
        ),
        (
            {
                "message": "propose",
                "request": 2,
                **LOG,
                "start": 7,
                "offset": 512,
                "eagerness": "all",
                "min_bytes": 1,
                "max_bytes": 99,
                "payloads_only": True,
            },
            (
                f"propose {AUTHOR}/0 from 7 on at byte 512, send everything, payloads from 1 bytes,"
                " payloads up to 99 bytes, payloads only"
            ),
        ),
        (
            {"message": "adjust", "request": 2, "eagerness": "notify", "allow_skip": True},
            "adjust: notify only, payloads may be skipped",
        ),
        (
            {"message": "adjust", "request": 2, "end": 3, "upper_info": 4},
            "adjust: end 3, links up to 4",
        ),
        ({"message": "cancel", "request": 2, "reason": 130}, "cancel 130 range complete"),
        (
            {"message": "cancel", "request": 2, "reason": 134, "seq": 9},
            "cancel 134 log ended before 9",
        ),
        (
            {"message": "cancel", "request": 2, "reason": 135, "entries": ["00", "01"]},
            "cancel 135 log is forked, with 2 entries",
        ),
        ({"message": "grant", "units": 64}, "grant 64 request credit"),
        ({"message": "apology", "request": 2}, "apology: the last piece was wrong"),
        ({"message": "bytes skipped", "request": 2, "count": 7, "seq": 3}, "skip 7 bytes of 3"),
        (
            {"message": "payload skipped: not held", "request": 2, "seq": 3},
            "payload of 3 skipped: not held",
        ),
        (
            {
                "message": "setup",
                "send_greedily": False,
                "accept_greedily": True,
                "send_window": 0,
                "receive_window": 65536,
            },
            "setup: accepts greedy data, windows 0 out, 65536 in",
        ),
        ({"message": "of a later version", "request": 2}, "of a later version"),
    ],
    ids=lambda value: value["message"] if isinstance(value, dict) else "",
)
def test_every_message_is_told_in_the_words_of_the_specification(
    cli: CommandLine, fields: dict[str, object], words: str
) -> None:
    [line] = told(cli, record(1, {"way": "sent", "channel": "control", **fields}))
    number = "r2" if "request" in fields else ""
    assert line == f"     0.001  #1 > {number:>4}  {words}"


def test_a_violation_stands_out(cli: CommandLine) -> None:
    begin = connection(0, "begin", direction="incoming")
    end = connection(
        2500,
        "end",
        kind="violation",
        reason="request 4: a number in use (point2point.md 2)",
    )
    lines = told(cli, begin, end)
    assert lines == [
        "     0.000  #1   incoming 10.0.0.1:7007",
        (
            "!!   2.500  #1   end of 10.0.0.1:7007: violation: request 4: a number in use"
            " (point2point.md 2)"
        ),
    ]
    coloured = cli("trace", "show", cli.folder / "trace", terminal=True)
    assert b"\x1b[1;31m!!" in coloured.out


def test_records_that_were_dropped_stand_out(cli: CommandLine) -> None:
    [line] = told(cli, {"time": HEADER["time"], "channel": "trace", "dropped_records": 1})
    assert line == "!!   0.000  1 record dropped here"


def test_what_a_peer_has_written_cannot_move_the_cursor(cli: CommandLine) -> None:
    [line] = told(cli, connection(0, "end", kind="lost", reason="\x1b[2J"))
    assert line.endswith(r"lost: \x1b[2J")


MIXED = [
    connection(0, "begin", direction="incoming"),
    record(0, {"channel": "connection", "message": "begin", "direction": "outgoing"}, 2),
    control(1, "cancel", request=2, reason=130, **LOG),
    control(1, "cancel", request=4, reason=130, author=AUTHOR, log_id=7),
    record(1, {"channel": "control", "message": "cancel", "request": 2, "reason": 130, **LOG}, 2),
]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], [0, 1, 2, 3, 4]),
        (["--peer", "10.0.0.2:7007"], [1, 4]),
        (["--peer", "10.0.0.1"], [0, 2, 3]),
        (["--log", AUTHOR], [0, 1, 2, 4]),
        (["--log", f"{AUTHOR}/7"], [0, 1, 3]),
        (["--request", "2"], [0, 1, 2, 4]),
        (["--request", "4", "--peer", "10.0.0.2"], [1]),
    ],
)
def test_filters_leave_what_says_where_one_is(
    cli: CommandLine, filters: list[str], expected: list[int]
) -> None:
    path = trace(cli, *MIXED)
    done = cli("trace", "show", path, *filters, "--json")
    assert done.records == [HEADER, *(MIXED[index] for index in expected)]
    assert len(cli("trace", "show", path, *filters).lines) >= 1 + len(expected)


def test_a_last_line_without_its_end_is_left_out(cli: CommandLine) -> None:
    path = trace(cli, control(1, "grant", units=1))
    path.write_bytes(path.read_bytes() + b'{"time": "2026-01-0')
    done = cli("trace", "show", path)
    assert (done.status, done.err, len(done.lines)) == (0, "", 2)


def test_a_line_that_is_no_record_is_named_and_the_rest_is_shown(cli: CommandLine) -> None:
    path = trace(cli, control(1, "grant", units=1))
    path.write_bytes(path.read_bytes() + b"oops\n[]\n" + path.read_bytes())
    done = cli("trace", "show", path)
    assert done.status == 0
    assert len(done.lines) == 4
    assert [line.rpartition(": ")[2] for line in done.err.splitlines()] == ["b'oops'", "b'[]'"]


def test_follow_goes_on_with_what_is_written_and_with_a_trace_that_takes_its_place(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = trace(cli, *entry(1, 1))
    steps = iter((b"more", b"new", b"stop"))

    def meanwhile(_: float) -> None:
        match next(steps):
            case b"more":
                with path.open("ab") as file:
                    file.write(json.dumps(control(2, "grant", units=5)).encode() + b"\n")
            case b"new":
                path.write_text(json.dumps(HEADER) + "\n")
            case _:
                raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", meanwhile)
    done = cli("trace", "show", path, "--follow")
    assert done.status == 130
    assert [line.partition("  ")[2].strip() for line in done.lines[3:4]] == [
        "0.002  #1 <       grant 5 request credit"
    ]
    assert [line.startswith("trace begun") for line in done.lines].count(True) == 2
    assert done.lines[2].endswith("metadata+payload 1 (1 entry, 256 bytes)")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"dear reader\n", "no trace"), (b'{"a": 1}\n', "no trace"), (b"", "nothing is in there yet")],
)
def test_a_file_that_is_no_trace_is_one_clear_line(
    cli: CommandLine, content: bytes, words: str
) -> None:
    done = cli("trace", "show", cli.file("letter", content))
    assert (done.status, done.out) == (1, b"")
    assert words in done.err
    assert len(done.err.splitlines()) == 1


def test_a_file_that_is_not_there_and_another_action_are_one_clear_line(cli: CommandLine) -> None:
    missing = cli("trace", "show", cli.folder / "none")
    assert (missing.status, missing.err) == (
        1,
        f"bamboo-peer: {cli.folder / 'none'}: No such file or directory\n",
    )
    assert cli("trace", "list", cli.folder / "none").status == 2
