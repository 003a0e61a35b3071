"""A signal ends a command in good order however early it comes."""

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

    monkeypatch.setattr(f"peer.cli.{module}.opened_store", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    result = own(*argv)
    assert (result.status, result.out, result.err) == (status, b"", "")
    assert signal.getsignal(signal.SIGTERM) is before
