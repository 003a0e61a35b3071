"""What `serve` takes, and that a signal ends it in good order however early it comes."""

import signal
from typing import NoReturn

import pytest

from tests.cli.harness import CommandLine


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("argv", "module", "status"),
    [
        (("serve", "--no-listen"), "serve", 0),
        (("sync", "localhost"), "sync", 130),
        (("wait",), "waiting", 130),
        (("fetch", "ab" * 32, "1"), "fetching", 130),
    ],
)
def test_sigterm_is_like_ctrl_c_and_no_failure_of_serve(
    own: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    argv: tuple[str, ...],
    module: str,
    status: int,
) -> None:
    def interrupted(*_: object, **__: object) -> NoReturn:
        signal.raise_signal(number)
        raise AssertionError

    monkeypatch.setattr(f"bamboo_cli.{module}.opened_store", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    result = own(*argv)
    assert (result.status, result.out, result.err) == (status, b"", "")
    assert signal.getsignal(signal.SIGTERM) is before


def test_how_old_a_file_gets_is_said_of_an_export(own: CommandLine) -> None:
    result = own("serve", "--no-listen", "--max-file-age", "5")
    assert (result.status, result.out, result.err) == (
        2,
        b"",
        "bamboo-peer: --max-file-age is about --export: name a directory\n",
    )
