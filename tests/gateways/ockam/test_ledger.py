"""Declarations and ledger payloads are those of the vectors; merging needs no order."""

import functools
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.declaration import DeclarationError
from gateways.ockam.declared import (
    LEDGER_DECLARATION,
    LedgerDeclared,
    StreamDeclared,
    address_of,
    declare_stream,
    read_declared,
)
from gateways.ockam.ledger import (
    PAYLOAD_BYTES_MAX,
    Place,
    Position,
    Trim,
    decode_records,
    encode_records,
    merge_places,
    payloads_of,
)
from gateways.reading import CodecError

from .test_codec import U64, VECTORS

MAPPING: dict[str, Any] = VECTORS["mapping"]
AUTHOR = bytes.fromhex(MAPPING["author"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PLACES = st.builds(Place, st.integers(0, 3), st.integers(0, 3))
RECORDS = st.builds(
    Position, st.binary(min_size=32, max_size=32), TEXT, U64, TEXT, U64, U64
) | st.builds(Trim, U64, U64)


def test_the_mapping_of_the_vectors() -> None:
    assert declare_stream("orders", 0) == MAPPING["entry_1_payload"].encode()
    assert MAPPING["ledger_entry_1_payload"].encode() == LEDGER_DECLARATION
    assert read_declared(declare_stream("orders", 0)) == StreamDeclared("orders", 0)
    assert read_declared(LEDGER_DECLARATION) == LedgerDeclared()
    assert address_of(bytes.fromhex(MAPPING["entry_1_hash"])) == MAPPING["address"]


def test_the_ledger_of_the_vectors() -> None:
    saved = Position(AUTHOR, "orders", 0, "c1", 0, 2)
    rewound = Position(AUTHOR, "orders", 0, "c1", 1, 0)
    payloads = {
        key: bytes.fromhex(text) for key, text in MAPPING.items() if "ledger payload" in key
    }
    for payload, records in zip(
        payloads.values(), [[saved], [rewound, Trim(MAPPING["stream_log"], 1)]], strict=True
    ):
        assert decode_records(payload) == records
        assert encode_records(records) == payload


@pytest.mark.parametrize(
    "payload",
    [
        '{"kind":"stream","name":"orders","partition":1024,"stream":"ockam","version":1}',
        '{"kind":"stream","name":"","partition":0,"stream":"ockam","version":1}',
        '{"kind":"stream","name":"orders","partition":0,"stream":"ockam","version":2}',
        '{"kind":"stream", "name":"orders","partition":0,"stream":"ockam","version":1}',
        '{"kind":"other","name":"orders","partition":0,"stream":"ockam","version":1}',
        '{"a":1,"kind":"stream","name":"orders","partition":0,"stream":"ockam","version":1}',
        '{"kind":"stream","name":"\\u00e4","partition":0,"stream":"ockam","version":1}',
        "[]",
    ],
)
def test_what_differs_from_its_encoding_is_no_declaration(payload: str) -> None:
    with pytest.raises(DeclarationError):
        read_declared(payload.encode())


@given(st.lists(PLACES, min_size=1, max_size=4))
def test_merging_needs_no_order_and_may_be_repeated(places: list[Place]) -> None:
    ends = {
        functools.reduce(merge_places, [*order, order[0]], None)
        for order in itertools.permutations(places)
    }
    assert ends == {max(places)}


@given(st.lists(RECORDS, min_size=1, max_size=5))
def test_encoding_and_decoding_records_are_inverse(records: list[Position | Trim]) -> None:
    assert decode_records(encode_records(records)) == records


def test_payloads_keep_to_their_limits() -> None:
    records = [Position(AUTHOR, "n" * 200, 0, f"{number:0200}", 0, 1) for number in range(2_500)]
    payloads = list(payloads_of(records))
    assert max(map(len, payloads)) <= PAYLOAD_BYTES_MAX
    assert [record for payload in payloads for record in decode_records(payload)] == records
    trims = list(payloads_of(Trim(number, 1) for number in range(2_001)))
    assert [len(decode_records(payload)) for payload in trims] == [1_000, 1_000, 1]


@pytest.mark.parametrize("payload", ["00", "0102", "010100", "02010101", "0101010100"])
def test_a_payload_that_is_wrong_in_one_place_counts_not_at_all(payload: str) -> None:
    with pytest.raises(CodecError):
        decode_records(bytes.fromhex(payload))
