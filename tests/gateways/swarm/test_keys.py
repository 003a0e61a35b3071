"""Keys of nodes: upstream's, signatures, and addresses."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.reading import CodecError
from gateways.swarm.keccak import keccak
from gateways.swarm.keys import Enode, Key, is_secret, overlay_of, read_enode, recover

from .vectors import VECTORS

VECTOR = VECTORS["key"]
KEY = Key(bytes.fromhex(VECTOR["secret"]))
OTHER = Key(b"\x01" * 32)
ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141


def test_upstream_s_key() -> None:
    assert (b"\x04" + KEY.public).hex() == VECTOR["public"]
    assert overlay_of(KEY.public).hex() == VECTOR["overlay"]
    assert keccak(KEY.public)[-20:].hex() == VECTOR["user"][2:].lower()


@pytest.mark.parametrize(
    "secret",
    [b"", bytes(32), bytes(31), b"\x01" * 33, ORDER.to_bytes(32, "big"), b"\xff" * 32],
)
def test_what_is_no_key(secret: bytes) -> None:
    assert not is_secret(secret)
    with pytest.raises(ValueError, match="no secret key"):
        Key(secret)


def test_the_largest_key_is_one() -> None:
    assert len(Key((ORDER - 1).to_bytes(32, "big")).public) == 64


def test_both_sides_form_the_same_product() -> None:
    assert KEY.dh(OTHER.public) == OTHER.dh(KEY.public)
    # A key times one is the key.
    assert Key((1).to_bytes(32, "big")).dh(KEY.public) == KEY.public[:32]


@pytest.mark.parametrize("public", [b"", bytes(64), b"\xff" * 64, KEY.public[:63], bytes(65)])
def test_what_is_no_point(public: bytes) -> None:
    with pytest.raises(CodecError, match="no point"):
        KEY.dh(public)


@given(st.binary(min_size=32, max_size=32))
def test_who_has_signed_is_found_from_the_signature(digest: bytes) -> None:
    signature = KEY.sign(digest)
    assert len(signature) == 65
    assert signature[64] in (0, 1)
    assert int.from_bytes(signature[32:64], "big") <= ORDER // 2
    assert signature == KEY.sign(digest)
    assert recover(digest, signature) == KEY.public


@pytest.mark.parametrize(
    "signature",
    [b"", bytes(64), bytes(65), b"\xff" * 64 + b"\x00", KEY.sign(bytes(32))[:64] + b"\x02"],
)
def test_what_is_no_signature(signature: bytes) -> None:
    with pytest.raises(CodecError, match="a signature"):
        recover(bytes(32), signature)


@given(st.binary(min_size=65, max_size=65), st.binary(min_size=32, max_size=32))
def test_any_bytes_are_a_signature_or_an_error(signature: bytes, digest: bytes) -> None:
    with suppress(CodecError):
        assert len(recover(digest, signature[:64] + bytes((signature[64] & 3,)))) == 64


@pytest.mark.parametrize("host", ["127.0.0.1", "a.example", "::1"])
def test_addresses(host: str) -> None:
    enode = Enode(KEY.public, host, 7017)
    assert read_enode(str(enode)) == enode
    assert read_enode(f"{enode}?discport=0") == enode
    assert read_enode(f"{enode}?discport=30301") == enode


NAME = KEY.public.hex()


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"enode://{NAME}",
        f"enode://{NAME}@a",
        f"enode://{NAME}@a:0",
        f"enode://{NAME}@a:65536",
        f"enode://{NAME}@:1",
        f"enode://{NAME}@::1:1",
        f"enode://{NAME[1:]}@a:1",
        f"enode://{NAME}@a:1?other=1",
        f"enode://{NAME}@a:1\n",
        f"enodes://{NAME}@a:1",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(CodecError, match="is no enode"):
        read_enode(text)
