"""`status` and `why` beside nodes that run: who holds what, and why something does not come."""

import json
import socket
from pathlib import Path
from typing import Any

from .running import run, serving, until

NOBODYS = "ab" * 32


def status(store: Path, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(store, "status", "--json", *arguments).stdout)
    return found


def why(store: Path, subject: str) -> tuple[int, str]:
    done = run(store, "why", subject)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_why_says_step_by_step_what_is_lacking(author: str, giver: str, taker: Path) -> None:
    code, words = why(taker, author)
    assert code == 1
    assert "it is not followed" in words
    run(taker, "follow", f"{author}/0")
    assert "no node serves this store" in why(taker, author)[1]
    with serving(taker, "--no-listen", "--json"):
        until(lambda: bool(status(taker)["serving"]))
        until(lambda: "the node calls nobody" in why(taker, author)[1])
    with serving(taker, "--no-listen", "--connect", giver):
        until(lambda: why(taker, author)[0] == 0)
        assert "it is held up to entry 3" in why(taker, author)[1]
        code, words = why(taker, giver)
        assert (code, "is connected (outgoing) since" in words) == (0, True)


def test_why_and_status_name_a_peer_that_cannot_be_reached(taker: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with serving(taker, "--no-listen", "--connect", address):
        until(lambda: "cannot be reached: Connection refused" in why(taker, address)[1])
        code, words = why(taker, address)
        assert (code, words[0]) == (1, "!")
        screen = run(taker, "status").stdout
        assert f"outgoing {address}: " in screen
        assert "last error: Connection refused, next attempt at " in screen


def test_why_names_a_peer_that_refuses_what_it_does_not_hold(giver: str, taker: Path) -> None:
    run(taker, "follow", f"{NOBODYS}/0")
    with serving(taker, "--no-listen", "--connect", giver):
        until(lambda: "does not give or take it (cancel 128" in why(taker, NOBODYS)[1])
        code, words = why(taker, NOBODYS)
        assert code == 1
        assert f"the only connected peer, {giver}, does not offer what is missing" in words


def test_why_is_not_fooled_by_what_is_neither_a_log_nor_a_peer(taker: Path) -> None:
    assert run(taker, "why", "no:such:thing").returncode == 2
    assert run(taker, "why", "elsewhere:1").returncode == 1


def test_status_of_one_log_and_of_all(author: str, giver: str, taker: Path) -> None:
    run(taker, "sync", giver, "--follow", author)
    line = f"  {author}/0: 3 entries"
    assert line not in run(taker, "status").stdout
    assert line in run(taker, "status", "--all").stdout
    assert run(taker, "status", author).stdout == line + "\n"
    missing = run(taker, "status", NOBODYS)
    assert missing.returncode == 1
    assert "nothing is held of this log" in missing.stderr
    [log] = status(taker, author)["logs"]
    assert (log["height"], log["known"], log["behind"], log["peers"]) == (3, 3, 0, [])


def test_a_trace_that_serve_and_sync_write_is_shown(
    author: str, tmp_path: Path, taker: Path
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    with serving(
        tmp_path / "giver", "--listen", "127.0.0.1:0", "--json", "--trace", str(theirs)
    ) as node:
        address = node.event()["address"]
        done = run(taker, "sync", address, "--follow", author, "--trace", str(ours))
        assert done.returncode == 0
        assert node.end()[0] == 0
    shown = run(taker, "trace", "show", str(ours)).stdout
    assert f"outgoing {address}" in shown
    assert "metadata+payload 1..3 (3 entries, 3 bytes)" in shown
    assert f"end of {address}: closed" in shown
    assert " >   r" in run(taker, "trace", "show", str(theirs)).stdout
    refused = run(taker, "sync", address, "--trace", str(taker / "author.key"))
    assert (refused.returncode, "no trace; name another file" in refused.stderr) == (1, True)


def test_status_and_why_tell_how_much_of_a_large_payload_is_here(
    tmp_path: Path, author: str, taker: Path
) -> None:
    run(tmp_path / "giver", "append", stdin=b"p" * 20_000_000)
    slow = ("--listen", "127.0.0.1:0", "--json", "--max-rate", "2M", "--window", "0")
    with serving(tmp_path / "giver", *slow) as giver:
        called = giver.event()["address"]
        with serving(taker, "--no-listen", "--connect", called, "--follow", author) as node:
            part = "in the middle of the payload of entry 4 ("
            until(lambda: part in why(taker, author)[1])
            until(lambda: "of 20,000,000 bytes have come" in run(taker, "status").stdout)
            assert node.end()[0] == 0
    # Also when nobody brings it any more.
    assert part in run(taker, "status", author).stdout
    assert part in run(taker, "why", author).stdout


def test_a_pause_is_obeyed_by_the_node_beside_and_told_by_status_and_why(
    author: str, giver: str, taker: Path
) -> None:
    run(taker, "follow", f"{author}/0")
    with serving(taker, "--no-listen", "--connect", giver):
        until(lambda: status(taker)["in_step"])
        run(taker, "pause")
        until(lambda: status(taker)["node"]["connections"][0]["state"] == "paused")
        found = status(taker)
        assert (found["verdict"], found["paused"], found["in_step"]) == (
            "paused, until `resume`",
            True,
            False,
        )
        assert why(taker, giver) == (
            1,
            "! all connections are paused: `bamboo-peer resume` ends that\n"
            f"! {giver} is paused: `bamboo-peer resume PEER` ends that\n"
            + why(taker, giver)[1].split("\n", 2)[2],
        )
        refused = run(taker, "sync", giver)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "all connections are paused" in refused.stderr
        run(taker, "resume")
        until(lambda: status(taker)["in_step"])
