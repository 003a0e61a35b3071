"""Values as JSON readers get them right."""

from peer.protocol.plain import json_number, log_fields
from wire import LogKey


def test_numbers_that_json_readers_would_round_are_strings() -> None:
    assert json_number(2**53 - 1) == 2**53 - 1
    assert json_number(2**53) == "9007199254740992"


def test_a_log_is_named_by_its_author_in_hex_and_its_number() -> None:
    assert log_fields(LogKey(b"\xab" * 32, 2**63)) == {
        "author": "ab" * 32,
        "log_id": str(2**63),
    }
