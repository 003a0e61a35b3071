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


def test_where_to_listen_and_not_to_contradict_each_other(
    own: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = own("serve", "--no-listen", "--listen", "127.0.0.1:0")
    assert (both.status, both.out) == (2, b"")
    assert "--listen" in both.err.replace("--no-listen", "")
    assert "--no-listen" in both.err

    def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    # The configuration says what goes as a rule, the command line what goes this once.
    monkeypatch.setattr("bamboo_cli.serve.opened_store", interrupted)
    listens = own.file("listens.toml", b'[serve]\nlisten = "127.0.0.1:0"\n')
    assert own("serve", "--no-listen", "--config", listens).status == 0
    listens_not = own.file("listens-not.toml", b"[serve]\nno-listen = true\n")
    assert own("serve", "--listen", "127.0.0.1:0", "--config", listens_not).status == 0
    own.setenv("BAMBOO_PEER_NO_LISTEN", "1")
    assert own("serve", "--config", listens).status == 0


def test_the_bare_name_of_a_peer_is_a_host_and_there_is_a_hint(
    own: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("bamboo_cli.serve.run_trio", interrupted)
    own("peer", "allow", "ab" * 32, "--name", "ben")
    own("name", "0", "diary")
    assert own("serve", "--no-listen", "--connect", "ben").err == (
        "--connect ben calls a host of that name; peer ben has no address: `peer allow ben"
        " --address HOST:PORT`, or write ben@HOST:PORT\n"
    )
    own("peer", "allow", "ben", "--address", "10.0.0.1:7008")
    assert own("serve", "--no-listen", "--connect", "ben").err.endswith(
        "; ben is the name of a peer: write ben@10.0.0.1:7008\n"
    )
    for plain in ("ben@10.0.0.1", "diary", "example.org", "unix:/ben"):
        assert own("serve", "--no-listen", "--connect", plain).err == ""
