"""Entry 1 of a node's logs, and what is none."""

import pytest

from gateways.declaration import DeclarationError, canonical_json
from gateways.swarm.declared import (
    LOGS,
    BinDeclared,
    ChunksDeclared,
    Declared,
    FeedDeclared,
    ReceiptsDeclared,
    declarations,
    declare,
    read_declared,
)

OVERLAY, TOPIC, USER = bytes(range(32)), bytes(range(1, 33)), bytes(range(20))


@pytest.mark.parametrize(
    "declared",
    [
        ChunksDeclared(),
        ReceiptsDeclared(OVERLAY),
        BinDeclared("sync", 0, OVERLAY),
        BinDeclared("gone", 16, OVERLAY),
        FeedDeclared(OVERLAY, TOPIC, USER),
    ],
)
def test_what_is_written_is_read(declared: Declared) -> None:
    assert read_declared(declare(declared)) == declared


def test_a_node_has_a_log_of_each_kind_and_two_of_each_bin() -> None:
    found = [read_declared(each) for each in declarations(OVERLAY)]
    assert len(found) == LOGS == 36
    assert found[:2] == [ChunksDeclared(), ReceiptsDeclared(OVERLAY)]
    assert found[2:19] == [BinDeclared("sync", number, OVERLAY) for number in range(17)]
    assert found[19:] == [BinDeclared("gone", number, OVERLAY) for number in range(17)]


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 2},
        {"stream": "ockam"},
        {"role": "other"},
        {"bin": 17},
        {"bin": -1},
        {"overlay": "00"},
        {"overlay": OVERLAY.hex().upper()},
        {"overlay": 7},
        {"more": 1},
    ],
)
def test_what_declares_something_else_is_refused(changed: dict[str, object]) -> None:
    fields = {
        "stream": "swarm",
        "version": 1,
        "role": "sync",
        "bin": 3,
        "overlay": OVERLAY.hex(),
    }
    assert isinstance(read_declared(canonical_json(fields)), BinDeclared)
    with pytest.raises(DeclarationError):
        read_declared(canonical_json(fields | changed))
