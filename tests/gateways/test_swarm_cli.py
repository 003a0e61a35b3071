"""`swarm VERB`: what is printed, and what is refused."""

import sys
from pathlib import Path

import pytest

from gateways.swarm import Bins, Side, node_of
from gateways.swarm.bmt import content_chunk
from gateways.swarm.proximity import proximity
from gateways.swarm.states import State
from logstore import Store
from tests.cli.conftest import cli, own  # noqa: F401 - fixtures
from tests.cli.harness import CommandLine


def test_a_file_is_put_listed_and_read(own: CommandLine, tmp_path: Path) -> None:  # noqa: F811
    made = own("--json", "swarm", "init").record
    assert set(made) == {"overlay", "public_key", "log_id", "network"}
    assert (made["log_id"], made["network"]) == (7000, 3)
    assert own("swarm", "init").text == f"overlay {made['overlay']}"
    data = bytes(range(256)) * 500
    path = tmp_path / "file"
    path.write_bytes(data)
    put = own("--json", "swarm", "put", str(path)).record
    assert put["bytes"] == len(data)
    assert (put["file"], put["chunks"], put["new"]) == (str(path), 33, 3)
    assert own("swarm", "put", "-", stdin=data).text == f"{put['hash']}  -  33 chunks, 0 new"
    assert own("swarm", "get", put["hash"]).out == data
    assert own("swarm", "get", put["hash"], "--range", "1000..1999").out == data[1000:2000]
    assert own("swarm", "get", put["hash"], "--range", "127990..").out == data[127_990:]
    target = tmp_path / "target"
    assert own("swarm", "get", put["hash"], "--to", str(target)).out == b""
    assert target.read_bytes() == data
    records = own("--json", "swarm", "chunks").records
    assert len(records) == 3
    [root] = own("--json", "swarm", "chunks", put["hash"]).records
    assert root in records
    assert (root["kind"], root["span"], root["held"]) == ("content", len(data), True)
    assert (root["bin"], root["index"]) == (None, None)
    status = own("--json", "swarm", "status").record
    bins = [{"bin": number, "items": 0, "gone": 0, "root": ""} for number in range(17)]
    held = {"overlay": made["overlay"], "chunks": 3, "bad": 0, "bins": bins}
    assert status == held | {"serving": False, "depth": None, "peers": [], "fully_synced": False}


def test_what_a_serving_node_has_done_is_told(own: CommandLine) -> None:  # noqa: F811
    overlay = own("--json", "swarm", "init").record["overlay"]
    assert own("swarm", "intervals").text == ""
    chunk = content_chunk(5, b"hello")
    with Store.open(own.store) as store:
        side = Side(store)
        bins = Bins(store, side, node_of(store, side), store.append_many)
        bins.begin()
        bins.keep([chunk])
        bins.save(bytes(32), [("SYNC", "g", "1;1,9")])
        side.close()
    bin_ = proximity(bytes.fromhex(overlay), chunk.address)
    [record] = own("--json", "swarm", "chunks").records
    assert (record["bin"], record["index"], record["held"]) == (bin_, 1, True)
    state = State()
    state.append(chunk.address)
    root = state.root().hex()
    told = own("--json", "swarm", "status").record["bins"]
    assert told[bin_] == {"bin": bin_, "items": 1, "gone": 0, "root": root}
    assert [each["items"] for each in told].count(0) == 16
    assert f"bin {bin_}" in own("swarm", "status").text
    assert own("--json", "swarm", "intervals").record == {
        "overlay": "00" * 32,
        "stream": "SYNC|g",
        "text": "1;1,9",
        "verified": None,
    }
    assert own("swarm", "intervals").text == f"{'00' * 32}  SYNC|g  1;1,9"


def test_what_is_refused_says_what_and_why(own: CommandLine, tmp_path: Path) -> None:  # noqa: F811
    before = own("swarm", "put", __file__)
    assert before.status == 1
    assert "`swarm init`" in before.err
    own("swarm", "init")
    good, empty = tmp_path / "good", tmp_path / "empty"
    good.write_bytes(b"good")
    empty.write_bytes(b"")
    put = own("--json", "swarm", "put", str(empty), str(tmp_path / "none"), str(good))
    assert put.status == 1
    assert [each["file"] for each in put.records] == [str(good)]
    assert f"{empty}: an empty file" in put.err
    assert "none: No such file" in put.err
    unknown = own("swarm", "get", "00" * 32)
    assert unknown.status == 1
    assert f"chunk {'00' * 32} is not held" in unknown.err
    for words in (
        ("get", "xyz"),
        ("get",),
        ("get", "00" * 32, "--range", "5..1"),
        ("get", "00" * 32, "--range", "x"),
        ("put",),
        ("chunks", "0"),
        ("init", "--log-id", str(2**64 - 1)),
    ):
        assert own("swarm", *words).status == 2, words
    assert own("swarm", "chunks", "00" * 32).status == 1
    # A file that was there stays, where what is to replace it cannot be had.
    target = tmp_path / "target"
    target.write_bytes(b"before")
    assert own("swarm", "get", "00" * 32, "--to", str(target)).status == 1
    assert target.read_bytes() == b"before"
    assert [*tmp_path.glob("target*")] == [target]


@pytest.mark.parametrize("library", ["coincurve", "cryptography", "sha3"])
@pytest.mark.parametrize(
    "words",
    [
        ("init",),
        ("put", "x"),
        ("get", "00" * 32),
        ("serve",),
        ("chunks",),
        ("intervals",),
        ("status",),
    ],
)
def test_without_the_extra_each_verb_says_what_to_install(
    own: CommandLine,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    library: str,
    words: tuple[str, ...],
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    said = own("swarm", *words)
    assert said.status == 1
    assert "pip install 'bamboo-peer[swarm]'" in said.err
