"""`status` for people: how far a log has come, within 80 columns."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bamboo_cli.status import WIDTH
from bamboo_cli.terminal import Terminal
from logstore import Store
from tests.logstore.authors import AuthorLog, signing_key

LOG = AuthorLog(1)
TOLD = {
    "author": LOG.key.author.hex(),
    "log_id": 0,
    "behind": 65,
    "answered": False,
    "in_step_at": "2026-01-01T00:00:00Z",
    "in_step_with": ["cd", "ef"],
    "peers": [{"address": "a-host-of-a-very-long-name.example.org:70070", "newest": 201}],
}
MOVING = {"author": TOLD["author"], "log_id": 0, "rate_entries": 12.5, "rate_bytes": 2048}


def shown(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    *,
    wide: bool,
    **changes: object,
) -> list[str]:
    from bamboo_cli import main

    state: Mapping[str, Any] = {"logs": [TOLD | changes], "connections": [], "moving": [MOVING]}
    monkeypatch.setattr("peer.node.serving_state", lambda _: state)
    monkeypatch.setattr(Terminal, "wide", wide)
    assert main(["--store", str(path), "status"]) == 0
    return capsysbinary.readouterr().out.decode().splitlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with Store.create(path, signing_key=signing_key(9)) as store:
        store.put_entries(LOG.key, LOG.add_all(range(1, 137)), source="peer")
        store.follow(LOG.key)
        store.set_name("a-" + "long-name-" * 6, LOG.key)
    return path


def test_totals_percent_rate_and_the_last_time_in_step(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    lines = shown(path, monkeypatch, capsysbinary, wide=False)
    [line] = [each for each in lines if str(LOG.key) in each]
    assert "136 of at least 201 (67 %)" in line
    assert "12.5 entries and 2.0 KiB a second, about 6 seconds left" in line
    assert "in step last at 2026-01-01T00:00:00Z with 2 peers" in line
    lines = shown(path, monkeypatch, capsysbinary, wide=False, answered=True)
    assert any("136 of 201 (67 %)" in each for each in lines)


def test_people_see_no_line_that_is_wider_than_their_terminal(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    lines = shown(path, monkeypatch, capsysbinary, wide=True)
    assert max(map(len, lines)) <= WIDTH
    assert any("a-long-name-" in each for each in lines)
    assert "136 of at least 201 (67 %)" in " ".join(" ".join(lines).split())
