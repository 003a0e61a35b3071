"""`HOST:PORT` as users write it."""

import pytest

from peer.node import Address, PeerAddress


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("example.org", Address("example.org", 7007)),
        ("example.org:1", Address("example.org", 1)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("[::1]", Address("::1", 7007)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_what_is_an_address(text: str, expected: Address) -> None:
    assert Address.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected HOST:PORT"),
        (":7007", "expected HOST:PORT"),
        ("a b:1", "expected HOST:PORT"),
        ("host:", "port behind the colon"),
        ("[::1]:", "port behind the colon"),
        ("host:x", "up to 65535"),
        ("host:65536", "up to 65535"),
        ("host:-1", "up to 65535"),
        ("host:\u0661", "up to 65535"),
        ("::1", "needs brackets"),
        ("[::1", r"expected \[HOST\]:PORT"),
        ("[::1]7", r"expected \[HOST\]:PORT"),
        ("host:1,greedy=none", "a peer that is called only"),
        ("a..b:1", "'a..b' is no name of a host"),
        (f"{'x' * 64}.org", "is no name of a host"),
        ("\udcff", "is no name of a host"),
        ("ab" * 32, f"^{'ab' * 32} is no name of a host, but the id of a peer: write ID@HOST:PORT"),
        (f"{'AB' * 32}:7007", "is no name of a host, but the id of a peer: write ID@HOST:PORT"),
    ],
)
def test_what_is_no_address_and_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Address.parse(text)


@pytest.mark.parametrize("text", ["example.org:1", "[::1]:7007", "127.0.0.1:0"])
def test_an_address_reads_as_it_was_written(text: str) -> None:
    assert str(Address.parse(text)) == text


def test_a_socket_s_path_is_an_address_where_it_is_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/tmp")
    for text in ("unix:/tmp/a@b.sock", "unix:a@b.sock"):
        found = Address.parse(text, unix=True)
        assert (found.path, str(found)) == ("/tmp/a@b.sock", "unix:/tmp/a@b.sock")
        assert found.is_loopback
        called = PeerAddress.parse(f"{text},greedy=none")
        assert (called.address, called.peer, called.greedy) == (found, None, "none")
    with pytest.raises(ValueError, match="not a socket's path"):
        Address.parse("unix:/tmp/a")
    named = PeerAddress.parse(f"{'ab' * 32}@unix:/tmp/a@b")
    assert (named.peer, str(named)) == ("ab" * 32, "unix:/tmp/a@b")
    assert PeerAddress.parse(named.written) == named


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("unix:", "expected the path"),
        ("unix:a\nb", "expected the path"),
        ("unix:a,b", "a comma"),
        ("unix:" + "x" * 200, "107 bytes"),
    ],
)
def test_what_is_no_path_of_a_socket_and_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Address.parse(text, unix=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("localhost", True), ("127.0.0.1", True), ("[::1]", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_which_addresses_only_this_machine_reaches(text: str, expected: bool) -> None:
    assert Address.parse(text).is_loopback is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("example.org", PeerAddress(Address("example.org", 7007))),
        ("example.org,greedy=send", PeerAddress(Address("example.org", 7007), "send")),
        ("a:1,greedy=both", PeerAddress(Address("a", 1), "both")),
        ("[::1]:7,greedy=none", PeerAddress(Address("::1", 7), "none")),
        ("[::1],greedy=receive", PeerAddress(Address("::1", 7007), "receive")),
    ],
)
def test_what_goes_for_one_peer_stands_behind_its_address(text: str, expected: PeerAddress) -> None:
    assert PeerAddress.parse(text) == expected
    assert str(expected) == str(expected.address)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a:1,gredy=none", "'a:1,gredy=none': 'gredy=none' is no option of a connection; there is"),
        ("a:1,", "'' is no option"),
        ("a:1,greedy", "'greedy' is no option"),
        ("a:1,greedy=", "greedy='' is none of both, send, receive and none"),
        ("a:1,greedy=Never", "greedy='Never' is none of"),
        ("a:1,greedy=both,greedy=none", "'greedy' is said twice"),
        ("a:x,greedy=both", "'a:x': the port has to be a number"),
        ("a:0", "'a:0': nobody can be called at port 0"),
        ("::1,greedy=both", "needs brackets"),
        (",greedy=both", "expected HOST:PORT"),
    ],
)
def test_an_option_that_means_nothing_is_named(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        PeerAddress.parse(text)
