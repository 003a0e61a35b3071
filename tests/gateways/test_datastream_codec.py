"""The codec of data streams: every vector, round trips, and any bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.datastream.codec import (
    FIRST_PLACE,
    Code,
    Declaration,
    Entry,
    Header,
    OperationScanner,
    PacketReader,
    Request,
    RequestReader,
    Response,
    Result,
    decode_declaration,
    decode_entries,
    decode_entry,
    decode_header,
    decode_truncation,
    encode_declaration,
    encode_entry,
    encode_header,
    encode_request,
    encode_response,
    encode_result,
    encode_truncation,
    place,
)
from gateways.reading import CodecError

from .streams import VECTORS, Model, data_of

LOG = {group["what"].partition(" (")[0]: group["values"] for group in VECTORS["log"]}
U64 = st.integers(0, 2**64 - 1)
ENTRIES = st.builds(Entry, U64, st.integers(0, 2**32 - 2), st.binary(max_size=300))


@pytest.mark.parametrize("value", LOG["declarations"])
def test_declarations_are_those_of_the_vectors(value: dict[str, Any]) -> None:
    declared = Declaration(
        int(value["stream_type"]), int(value["system_id"]), value["file_version"], value["origin"]
    )
    payload = bytes.fromhex(value["payload"])
    assert encode_declaration(declared) == payload
    assert decode_declaration(payload) == declared


@pytest.mark.parametrize("value", LOG["operations"])
def test_operations_are_those_of_the_vectors(value: dict[str, Any]) -> None:
    entries = [
        Entry(value["first_number"] + at, entry["type"], data_of(entry))
        for at, entry in enumerate(value["entries"])
    ]
    payload = bytes.fromhex(value["payload"])
    assert b"".join(map(encode_entry, entries)) == payload
    assert list(decode_entries(payload)) == entries
    scanner = OperationScanner(value["first_number"])
    assert len(scanner.feed(payload)) == len(entries)
    scanner.finish()


@pytest.mark.parametrize("value", LOG["truncations"])
def test_truncations_are_those_of_the_vectors(value: dict[str, Any]) -> None:
    payload = bytes.fromhex(value["payload"])
    assert encode_truncation(value["n"]) == payload
    assert decode_truncation(payload, value["n"] + 1) == value["n"]
    with pytest.raises(CodecError, match="of a stream of"):
        decode_truncation(payload, value["n"])


@pytest.mark.parametrize("group", ["files", "truncations"])
def test_totals_are_those_that_upstream_reports(group: str) -> None:
    steps = 0
    for vector in VECTORS[group]:
        places: list[int] = []
        length = FIRST_PLACE
        for step in vector["steps"]:
            if "truncate" in step:
                length = places[step["truncate"]]
                del places[step["truncate"] :]
            for entry in step.get("entries", ()):
                size = 17 + len(data_of(entry))
                places.append(place(length, size))
                length = places[-1] + size
            assert (len(places), length) == (
                step["after"]["total_entries"],
                step["after"]["total_length"],
            )
            steps += 1
    assert steps > 20


@given(st.lists(st.sampled_from([0, 1, 5, 200, 524271, 700000, 1048558, 1048559]), max_size=8))
def test_places_are_the_model_s(sizes: list[int]) -> None:
    model = Model()
    length = FIRST_PLACE
    for size in sizes:
        model.add(1, b"x" * size)
        length = place(length, 17 + size) + 17 + size
    assert length == model.length


@given(ENTRIES)
def test_entries_round_trip(entry: Entry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


@given(st.builds(Header, st.integers(0, 255), U64, U64, U64, U64))
def test_headers_round_trip(header: Header) -> None:
    assert decode_header(encode_header(header)) == header


@given(st.lists(ENTRIES, max_size=6), st.lists(st.integers(1, 400), min_size=1, max_size=9))
def test_packets_come_in_any_pieces(entries: list[Entry], cuts: list[int]) -> None:
    header = Header(1, 2, 3, 4, 5)
    stream = encode_result(Code.OK) + encode_header(header) + encode_response(None)
    wanted: list[object] = [Result(0, "OK"), header, Response(None)]
    for entry in entries:
        stream += encode_entry(entry) + encode_response(entry)
        wanted += [entry, Response(entry)]
    reader, found = PacketReader(), []
    while stream:
        cut = cuts[len(stream) % len(cuts)]
        reader.feed(stream[:cut])
        stream = stream[cut:]
        while (packet := reader.next()) is not None:
            found.append(packet)
    assert found == wanted


@given(
    st.lists(
        st.one_of(
            st.builds(Request, st.sampled_from([1, 5]), st.just(7), U64, st.just(b"")),
            st.builds(
                Request, st.sampled_from([2, 3, 0, 99]), st.just(7), st.just(0), st.just(b"")
            ),
            st.builds(
                Request, st.sampled_from([4, 6]), st.just(7), st.just(0), st.binary(max_size=40)
            ),
        ),
        max_size=40,
    ),
    st.integers(1, 50),
)
def test_requests_come_in_any_pieces(requests: list[Request], cut: int) -> None:
    stream = b"".join(map(encode_request, requests))
    reader, found = RequestReader(7), []
    for at in range(0, len(stream), cut):
        reader.feed(stream[at : at + cut])
        while (request := reader.next()) is not None:
            found.append(request)
    assert found == requests
    assert reader.unread == 0


def test_a_claimed_length_allocates_nothing_and_ends_the_stream() -> None:
    reader = RequestReader(1)
    reader.feed((4).to_bytes(8, "big") + (1).to_bytes(8, "big") + b"\xff" * 4)
    with pytest.raises(CodecError, match="4294967295 bytes"):
        reader.next()


@pytest.mark.parametrize(
    "packet",
    [
        b"\x02" + b"\xff" * 4,
        b"\x02" + (16).to_bytes(4, "big"),
        b"\xff" + (8).to_bytes(4, "big"),
        b"\xff" + (4097).to_bytes(4, "big"),
        b"\x01" + (39).to_bytes(4, "big"),
        b"\xfe" + (1048577).to_bytes(4, "big"),
        b"\x00",
        b"\x03",
    ],
)
def test_a_packet_that_no_server_may_send_is_refused_at_its_head(packet: bytes) -> None:
    reader = PacketReader()
    reader.feed(packet)
    with pytest.raises(CodecError):
        reader.next()


@given(st.binary(max_size=400), st.integers(0, 3))
def test_any_bytes_give_a_value_or_one_error(data: bytes, due: int) -> None:
    def packets() -> None:
        reader = PacketReader()
        reader.feed(data)
        while reader.next() is not None:
            pass

    def requests() -> None:
        reader = RequestReader(0)
        reader.feed(data)
        while reader.next() is not None:
            pass

    def operation() -> None:
        scanner = OperationScanner(due)
        scanner.feed(data)
        scanner.finish()

    for read in (
        packets,
        requests,
        operation,
        lambda: decode_entry(data),
        lambda: decode_header(data),
        lambda: decode_declaration(data),
        lambda: decode_truncation(data, 9),
    ):
        try:
            read()
        except CodecError as error:
            assert str(error)  # noqa: PT017
