"""More than a node has room for: refused by the size that is declared."""

from typing import Final

from siege.attack import Attack, Judge, Seen
from siege.hostile import Hostile, log_of
from siege.line import Line, offer
from wire import encode_payload_header

from .bombs import claim, stores_little

QUOTA: Final = 1 << 20
LARGE: Final = 4 << 20
SMALLER: Final = 400 * 1024
"""Two of these fit into the quota, a third one does not."""
SENT: Final = 128 * 1024
"""Of each payload, so that a node that took it in would have it."""


async def _author(hostile: Hostile) -> None:
    """Payloads that are each more than an author may have, of an author that is not followed."""
    await _declares(hostile, LARGE)


async def _peer(hostile: Hostile) -> None:
    """Payloads that an author may have, of so many that their peer may not bring them."""
    await _declares(hostile, SMALLER)


async def _declares(hostile: Hostile, size: int) -> None:
    async def play(line: Line, _: int) -> None:
        await line.begin()
        while True:
            key = hostile.stranger()
            await line.open(offer(log_of(key)))
            await line.data(claim(key, size) + encode_payload_header(SENT) + bytes(SENT))
            line.counts["declared"] += 1

    await hostile.crowd(play)


def _keeps(key: str) -> Judge:
    def judge(seen: Seen) -> list[str]:
        found = stores_little(seen)
        if key not in seen.limits:
            found.append(f"no event `limit` of {key}, but of {', '.join(seen.limits) or 'none'}")
        return found

    return judge


ATTACKS: Final = (
    Attack(
        "author-quota",
        "authors beyond author-bytes",
        _author,
        connections=4,
        serve=("--follow-all", "--limit", f"author-bytes={QUOTA}"),
        share=0.5,
        needs={"declared": 8, "heard cancel 129": 8},
        node_reads=100_000,
        judge=_keeps("author-bytes"),
    ),
    Attack(
        "peer-quota",
        "a peer beyond peer-bytes, of many authors",
        _peer,
        connections=4,
        serve=("--follow-all", "--limit", f"peer-bytes={QUOTA}"),
        share=0.5,
        needs={"declared": 8, "heard cancel 129": 8},
        node_reads=100_000,
        judge=_keeps("peer-bytes"),
    ),
)
