"""`HOST:PORT` as users write it."""

import pytest

from peer.net import Address


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
    ],
)
def test_what_is_no_address_and_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Address.parse(text)


@pytest.mark.parametrize("text", ["example.org:1", "[::1]:7007", "127.0.0.1:0"])
def test_an_address_reads_as_it_was_written(text: str) -> None:
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("localhost", True), ("127.0.0.1", True), ("[::1]", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_which_addresses_only_this_machine_reaches(text: str, expected: bool) -> None:
    assert Address.parse(text).is_loopback is expected
