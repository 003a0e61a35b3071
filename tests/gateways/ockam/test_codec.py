"""Vectors decode to their fields and back; any bytes give a value or the one error."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import harness, ockam_codec
from gateways.ockam import codec
from gateways.ockam.bare import Reader, encode_data, encode_uint
from gateways.ockam.codec import Address, Content, Form, Message
from gateways.reading import CodecError

VECTORS: dict[str, Any] = json.loads(Path(__file__).with_name("vectors.json").read_text())
U64 = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ROUTES = st.lists(
    st.builds(Address, st.integers(0, 255), st.binary(max_size=255)), max_size=16
).map(tuple)
PARTITION = st.none() | U64
PROTOCOLS = st.sampled_from(["stream_create_partitioned", "stream_create_partitions"])
REQUESTS = st.one_of(
    st.builds(codec.Create, st.none() | TEXT, st.none(), st.just("stream_create")),
    st.builds(codec.Create, st.none() | TEXT, U64, PROTOCOLS),
    st.builds(codec.Push, U64, st.binary(max_size=300)),
    st.builds(codec.Pull, U64, U64, U64),
    st.builds(codec.GetIndex, TEXT, TEXT, PARTITION),
    st.builds(codec.SaveIndex, TEXT, TEXT, U64, PARTITION),
)
RESPONSES = st.one_of(
    st.builds(codec.Created, TEXT, st.none(), st.just("stream_create")),
    st.builds(codec.Created, TEXT, U64, PROTOCOLS),
    st.builds(codec.Pushed, U64, st.booleans(), U64),
    st.builds(
        codec.Pulled, U64, st.lists(st.tuples(U64, st.binary(max_size=50)), max_size=9).map(tuple)
    ),
    st.builds(codec.Index, TEXT, TEXT, st.none() | U64, PARTITION),
    st.builds(codec.Failure, TEXT),
)


@pytest.mark.parametrize("case", VECTORS["primitives"], ids=lambda case: case["uint"])
def test_numbers_of_the_vectors(case: dict[str, str]) -> None:
    data = bytes.fromhex(case["hex"])
    assert encode_uint(int(case["uint"])) == data
    reader = Reader(data)
    assert reader.uint() == int(case["uint"])
    reader.end()


def fields_of(value: object) -> dict[str, object]:
    """A decoded value as the vectors name its fields."""
    match value:
        case codec.Create(name):
            return {"stream_name": name}
        case codec.Created(name):
            return {"stream_name": name}
        case codec.Push(number, data):
            return {"request_id": number, "data": data.hex()}
        case codec.Pushed(number, is_stored, index):
            return {"request_id": number, "status": 0 if is_stored else 1, "index": index}
        case codec.Pull(number, index, limit):
            return {"request_id": number, "index": index, "limit": limit}
        case codec.Pulled(number, messages):
            listed = [{"index": index, "data": data.hex()} for index, data in messages]
            return {"request_id": number, "messages": listed}
        case codec.GetIndex(client, name):
            return {"op": "get", "client_id": client, "stream_name": name}
        case codec.SaveIndex(client, name, index):
            return {"op": "save", "client_id": client, "stream_name": name, "index": index}
        case codec.Index(client, name, saved):
            return {"client_id": client, "stream_name": name, "index": saved}
        case _:
            raise AssertionError(value)


EXCHANGE = next(value for key, value in VECTORS.items() if key.startswith("exchange"))


@pytest.mark.parametrize("step", EXCHANGE, ids=range(len(EXCHANGE)))
def test_a_captured_exchange_decodes_to_its_fields_and_back(step: dict[str, Any]) -> None:
    frame = bytes.fromhex(step["frame"])
    decoder = codec.FrameDecoder()
    decoder.feed(frame)
    taken = decoder.next_frame()
    assert taken is not None
    assert decoder.buffered == 0
    message = codec.decode_message(taken)
    assert [[type_, value.decode()] for type_, value in message.onward] == step["onward"]
    assert [[type_, value.decode()] for type_, value in message.back] == step["return"]
    protocol, inner = codec.decode_payload(message.payload)
    assert protocol == step["protocol"]
    if "request" in step:
        request = codec.decode_request(protocol, inner)
        assert fields_of(request) == step["request"]
        payload = codec.encode_request(request)
    else:
        response = codec.decode_response(protocol, inner)
        assert fields_of(response) == step["response"]
        payload = codec.encode_response(response)
    encoded = codec.encode_message(message.onward, message.back, payload)
    assert codec.encode_frame(encoded) == frame


CONSTRUCTED: dict[str, codec.Request | codec.Response] = {
    "create anonymous": codec.Create(None),
    "create partitioned request": codec.Create("orders", 3, "stream_create_partitioned"),
    "create partitioned response": codec.Created("orders", 2, "stream_create_partitioned"),
    "push OK": codec.Pushed(300, True, 10),
    "push ERROR": codec.Pushed(300, False, 0),
    "pull response two messages": codec.Pulled(7, ((10, b"hello"), (12, b""))),
    "index partitioned get": codec.GetIndex("c1", "orders", 2),
    "index partitioned save": codec.SaveIndex("c1", "orders", 10, 2),
    "index partitioned response": codec.Index("c1", "orders", 10, 2),
    "index partitioned response none": codec.Index("c1", "orders", None, 2),
    "error": codec.Failure("Invalid request"),
}


@pytest.mark.parametrize(("name", "value"), CONSTRUCTED.items(), ids=CONSTRUCTED)
def test_constructed_payloads(name: str, value: codec.Request | codec.Response) -> None:
    [case] = [each for each in VECTORS["constructed"] if each["name"] == name]
    payload = bytes.fromhex(case["payload"])
    protocol, inner = codec.decode_payload(payload)
    if isinstance(value, codec.Request):
        assert codec.encode_request(value) == payload
        assert codec.decode_request(protocol, inner) == value
    else:
        assert codec.encode_response(value) == payload
        assert codec.decode_response(protocol, inner) == value


def test_both_forms_of_data() -> None:
    [envelope] = [each for each in VECTORS["constructed"] if "data" in each]
    data = bytes.fromhex(envelope["data"])
    found = codec.decode_content(data)
    assert (found.form, found.return_stream) == (Form.BIDIRECTIONAL, "pings")
    assert codec.encode_content(found) == data
    data = bytes.fromhex(VECTORS["rust data"]["data"])
    found = codec.decode_content(data)
    back = (codec.local("app"),)
    assert found == Content(Form.ROUTING, Message((codec.local("echoer"),), back, b"\x05msg-0"))
    assert codec.encode_content(found) == data
    assert codec.decode_content(data + b"\x00") == Content(Form.DATA)
    assert codec.decode_content(codec.wrap_for("w", b"x")).message == Message(
        (codec.local("w"),), (), b"x"
    )


@given(REQUESTS)
def test_encoding_and_decoding_a_request_are_inverse(request: codec.Request) -> None:
    assert codec.decode_request(*codec.decode_payload(codec.encode_request(request))) == request


@given(RESPONSES)
def test_encoding_and_decoding_a_response_are_inverse(response: codec.Response) -> None:
    payload = codec.encode_response(response)
    assert codec.decode_response(*codec.decode_payload(payload)) == response


@given(ROUTES, ROUTES, st.binary(max_size=300))
def test_encoding_and_decoding_a_message_are_inverse(
    onward: codec.Route, back: codec.Route, payload: bytes
) -> None:
    encoded = codec.encode_message(onward, back, payload)
    assert codec.decode_message(encoded) == Message(onward, back, payload)


@given(U64)
def test_encoding_and_decoding_a_number_are_inverse(number: int) -> None:
    assert Reader(encode_uint(number)).uint() == number


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ("8000", "longer than needed"),
        ("80808080808080808080", "behind its tenth byte"),
        ("ffffffffffffffffff02", "2^64"),
        ("ff", "cut off"),
        ("", "missing"),
    ],
)
def test_a_number_has_one_encoding(data: str, what: str) -> None:
    with pytest.raises(CodecError, match=what.replace("^", r"\^")):
        Reader(bytes.fromhex(data)).uint()


def test_nothing_is_made_of_what_is_only_claimed() -> None:
    with pytest.raises(CodecError, match="are claimed"):
        Reader(encode_uint(2**60) + b"ab").data()
    with pytest.raises(CodecError, match="2 elements at byte 0: so many are claimed in 3 bytes"):
        Reader(encode_uint(2) + b"abc").count()
    with pytest.raises(CodecError, match="elements at byte 1: so many are claimed"):
        codec.decode_response("stream_pull", b"\x01" + encode_uint(2**62) + b"\x00\x00")
    with pytest.raises(CodecError, match="no UTF-8"):
        Reader(encode_data(b"\xff")).text()


def test_a_frame_that_upstream_refuses_is_not_sent() -> None:
    assert len(codec.encode_frame(bytes(65_000))) == 65_002
    with pytest.raises(ValueError, match="too many"):
        codec.encode_frame(bytes(65_001))


def test_the_fuzz_target_holds() -> None:
    harness.run_seeded(ockam_codec.check, ockam_codec.CORPUS, runs=400, seed=1)


@pytest.mark.long
def test_the_fuzz_target_holds_for_100_000_mutations() -> None:
    harness.run_seeded(ockam_codec.check, ockam_codec.CORPUS, runs=100_000, seed=2)
