"""What goes for one connection only, what is in force on it, and what moved."""

import json
from pathlib import Path

import pytest

from .running import run, serving, until


def test_each_peer_that_is_called_is_greedy_or_safe_by_itself(
    giver: str, taker: Path, tmp_path: Path
) -> None:
    run(tmp_path / "third", "init")
    trace = tmp_path / "trace"
    with serving(tmp_path / "third", "--listen", "127.0.0.1:0", "--json") as third:
        other = third.event()["address"]
        arguments = ("--connect", f"{giver},greedy=receive", "--connect", other)
        with serving(taker, "--no-listen", *arguments, "--trace", str(trace)) as node:
            until(lambda: run(taker, "status").stdout.count("established") == 2)
            screen = run(taker, "status").stdout.splitlines()
            [chosen] = [line for line in screen if giver in line]
            [plain] = [line for line in screen if other in line]
            assert chosen.endswith(", safe out, greedy in")
            assert plain.endswith(", greedy both ways")
            words = run(taker, "why", giver).stdout
            assert "since this side wants it so" in words
            assert "open requests: 0 of ours, and the peer takes 64 more now" in words
            state = json.loads(run(taker, "status", "--json").stdout)["node"]
            ways = {
                each["address"]: (
                    each["terms"]["greedy_sending"],
                    each["terms"]["greedy_receiving"],
                )
                for each in state["connections"]
            }
            assert ways == {giver: (False, True), other: (True, True)}
            assert node.end()[0] == 0
    records = map(json.loads, run(taker, "trace", "show", str(trace), "--json").stdout.splitlines())
    sent = {
        record["peer"]: (record["send_greedily"], record["accept_greedily"])
        for record in records
        if record.get("channel") == "setup" and record["way"] == "sent"
    }
    assert sent == {giver: (False, True), other: (True, True)}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("--connect", "h:1,greedy=no"),
            "argument --connect: 'h:1,greedy=no': greedy='no' is none",
        ),
        (("--connect", "h:1,safe"), "argument --connect: 'h:1,safe': 'safe' is no option of a"),
        (
            ("--connect", "[::1]:1,greedy=none", "--connect", "[::1]:1"),
            "argument --connect: [::1]:1 is named twice, with different options",
        ),
        (("--listen", "h:1,greedy=none"), "argument --listen: 'h:1,greedy=none': options stand"),
    ],
)
def test_what_is_wrong_with_the_option_of_a_peer_is_said(
    taker: Path, arguments: tuple[str, ...], reason: str
) -> None:
    done = run(taker, "serve", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_sync_and_fetch_take_the_option_of_a_peer(
    author: str, giver: str, taker: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    done = run(taker, "sync", f"{giver},greedy=none", "--follow", author, "--trace", str(trace))
    assert done.returncode == 0
    assert "> setup: nothing greedy" in " ".join(
        run(taker, "trace", "show", str(trace)).stdout.split()
    )
    run(taker, "drop", author, "2")
    fetched = run(taker, "fetch", author, "2", "--from", f"{giver},greedy=none")
    assert (fetched.returncode, run(taker, "cat", author, "2").stdout) == (0, "2")


def test_sync_says_what_compression_saved(giver: str, taker: Path, tmp_path: Path) -> None:
    plain = run(taker, "sync", giver, "--follow-all")
    assert "compression" not in plain.stdout
    run(tmp_path / "giver", "append", stdin=b"again and again " * 40_000)
    done = run(taker, "sync", giver, "--compression", "always")
    assert "received 1 entry and 625.0 KiB of payloads, sent 0 and 0 B in " in done.stdout
    assert " on the wire, compression saved 6" in done.stdout
    run(tmp_path / "giver", "append", stdin=b"once again " * 40_000)
    moved = json.loads(run(taker, "sync", giver, "--json").stdout)
    assert moved["payload_bytes_received"] == 440_000
    assert moved["saved_bytes_received"] > 400_000
    assert moved["bytes_received"] < 40_000
    assert moved["saved_bytes_sent"] == 0
