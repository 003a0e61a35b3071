"""Few bytes that claim to be many: LZFoo, and sizes of payloads."""

from collections.abc import Awaitable, Callable
from typing import Final

from nacl.signing import SigningKey

from siege.attack import Attack, Scope, Seen
from siege.hostile import Hostile, log_of
from siege.line import Line, RefusedError, offer
from wire import (
    U64_MAX,
    encode_compressed,
    encode_metadata_packet,
    encode_payload_header,
    sign_entry,
    yamf_hash,
)

HUGE: Final = 1 << 40
FITS: Final = 48 << 20
"""Bytes of a payload that the quota of one author takes, here."""
AUTHOR_BYTES: Final = 64 << 20
PEER_BYTES: Final = 256 << 20
STORED_MAX: Final = 64 << 20
"""What a store may grow by where no payload is to be kept: entries, and SQLite's WAL."""


def claim(key: SigningKey, size: int) -> bytes:
    """Metadata of entry 1, rightly signed, of a payload of so many bytes that nobody has."""
    encoded = sign_entry(
        key,
        log_id=0,
        seq=1,
        is_end=False,
        lipmaalink=None,
        backlink=None,
        payload_bytes=size,
        payload_hash=yamf_hash(b"what it claims to be"),
    )
    return encode_metadata_packet(encoded, 0, 1, with_backlink=False)


def bomb(size: int) -> bytes:
    """A compressed packet of so many bytes: one `a`, and a copy of it to the end."""
    copy = bytes((0x80 | 127,)) + (size - 1).to_bytes(8, "big") + b"\x01"
    return encode_compressed(size, b"\x01a" + copy)


def _drop(size: int, *, again: bool, own: bool) -> Callable[[Hostile], Awaitable[None]]:
    async def run(hostile: Hostile) -> None:
        async def play(line: Line, _: int) -> None:
            key = hostile.key if own else hostile.stranger()
            await line.begin()
            await line.open(offer(log_of(key)))
            raw = claim(key, size) + bomb(size)
            await line.data(raw)
            line.counts["bombs"] += 1
            line.counts["bomb_bytes"] += len(raw)
            line.counts["claimed_bytes"] += size
            if again:
                # It is decompressed, or the request is cancelled, and then the next one comes.
                await line.until(lambda: bool(line.inbox))
                raise RefusedError("its answer")
            await line.until(lambda: False)

        await hostile.crowd(play, again=again)

    return run


async def _claims(hostile: Hostile) -> None:
    async def play(line: Line, _: int) -> None:
        await line.begin()
        while True:
            key = hostile.stranger()
            await line.open(offer(log_of(key)))
            await line.data(claim(key, U64_MAX) + encode_payload_header(1) + b"a")
            line.counts["claims"] += 1

    await hostile.crowd(play)


def stores_little(seen: Seen) -> list[str]:
    found = []
    if seen.disk_bytes > STORED_MAX:
        found.append(f"the store grew by {seen.disk_bytes >> 20} MiB")
    if seen.payloads_stored:
        found.append(f"{seen.payloads_stored} payloads are kept")
    return found


def _stays_within_quota(seen: Seen) -> list[str]:
    most = PEER_BYTES + STORED_MAX
    return [f"the store grew by {seen.disk_bytes >> 20} MiB"] if seen.disk_bytes > most else []


ATTACKS: Final = (
    Attack(
        "bomb",
        "160 bytes that claim an output of 2^40, of an author who is followed by name",
        _drop(HUGE, again=False, own=True),
        follows_hostile=True,
        share=0.5,
        needs={"bombs": 1},
        node_reads=100,
        judge=stores_little,
    ),
    Attack(
        "bombs",
        "the same from 20 connections, of new authors, again and again",
        _drop(HUGE, again=True, own=False),
        connections=20,
        tls=True,
        scope=Scope(),
        serve=("--follow-all",),
        needs={"bombs": 20},
        judge=stores_little,
    ),
    Attack(
        "bombs-that-fit",
        f"160 bytes that become {FITS >> 20} MiB, within the quota of each new author",
        _drop(FITS, again=True, own=False),
        connections=20,
        tls=True,
        scope=Scope(),
        serve=(
            "--follow-all",
            "--limit",
            f"author-bytes={AUTHOR_BYTES}",
            "--limit",
            f"peer-bytes={PEER_BYTES}",
        ),
        needs={"bombs": 20},
        judge=_stays_within_quota,
    ),
    Attack(
        "claims",
        "payloads that claim 2^64 - 1 bytes, of new authors",
        _claims,
        connections=20,
        tls=True,
        scope=Scope(),
        serve=("--follow-all",),
        needs={"claims": 20},
        judge=stores_little,
    ),
)
