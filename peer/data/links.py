"""What entries link to, as a request knows it: links are left out of metadata (point2point.md 4).

Two hashes of 66 bytes would be half of what metadata takes on the wire. They are those of entries
that came before it, in the request or long ago: so they are put in again here, from what came in
the request itself, or from the store. What is put in wrongly makes a signature fail that is right:
`own_hashes` notes which were ours, so that the other side is not blamed for them.

A request may be for a million entries, and there may be thousands of requests: only hashes that a
later entry can name are kept, which are those of a pool, and fewer of a request that is not the one
that is being read.
"""

from collections.abc import Mapping

from peer.protocol.request import OpenEntry, Request
from wire import decode_entry, lipmaa, lower_pool

HASHES_KEPT_MAX = 512
"""Known links of a request above which those that no later entry can name are forgotten. To find
these takes a walk through all: not after each entry."""

HASHES_LEFT_MAX = 100
"""The same for a request that is not the current one; pools have fewer entries."""


class NeedLookUp(Exception):  # noqa: N818 - no error: something has to be looked up first
    """The store has to say these hashes, and perhaps one whole entry, before we can go on."""

    def __init__(self, seq: int, hashes_of: tuple[int, ...], entry: int | None = None) -> None:
        super().__init__(seq, hashes_of, entry)
        self.seq = seq
        self.hashes_of = hashes_of
        self.entry = entry


class CannotTakeIn(Exception):  # noqa: N818 - no error of the other side
    """We cannot take in what comes, for a reason of ours: the request ends with 129."""


def set_looked_up_entry(request: Request, seq: int, encoded: bytes, digest: bytes) -> None:
    """The store's answer to a `NeedLookUp` that named an entry."""
    entry = decode_entry(encoded)
    request.incoming.entry = OpenEntry(
        seq, encoded, digest, entry.payload_bytes, entry.payload_hash, ingested=True
    )


def remember_hash(request: Request, seq: int, entry_hash: bytes) -> None:
    """Keep a hash for later links, and forget those that no later entry can name."""
    hashes = request.incoming.hashes
    hashes[seq] = entry_hash
    if len(hashes) > HASHES_KEPT_MAX:
        forget_hashes(request)


NO_HASHES: frozenset[int] = frozenset()
"""The same one for thousands of requests."""


def add_own_hashes(request: Request, found: Mapping[int, bytes]) -> None:
    """Take over hashes that the store holds, where none came with an entry."""
    hashes, proposal = request.incoming.hashes, request.proposal
    first = proposal.start if proposal.lower_info is None else proposal.lower_info
    new = {seq: entry_hash for seq, entry_hash in found.items() if seq not in hashes}
    hashes.update(new)
    # What is before the first piece was agreed on by the expected starting hash.
    own = {*request.incoming.own_hashes, *new}
    kept = {seq for seq in own if seq >= first and seq in hashes}
    request.incoming.own_hashes = frozenset(kept) if kept else NO_HASHES


def links_are_ours(request: Request, seq: int) -> bool:
    """Whether an entry may have been built with links to entries that the other side never sent.

    Who only listens passes what it is notified of unseen. If it holds another history, what it
    sends next is right and does not verify here: the log is forked, and nobody is to blame.
    """
    unseen = seq > 1 and request.their_interest.notify_only_ever
    return unseen and not request.incoming.own_hashes.isdisjoint((lipmaa(seq), seq - 1))


def forget_hashes(request: Request) -> None:
    """Keep only what the entries behind the newest one can link to."""
    hashes = request.incoming.hashes
    if len(hashes) > HASHES_LEFT_MAX:
        seq = max(hashes)
        keep = {*lower_pool(seq + 1), seq}
        request.incoming.hashes = {n: value for n, value in hashes.items() if n in keep}


def links_of(
    request: Request, seq: int, packet_backlink: bytes | None
) -> tuple[bytes | None, bytes | None]:
    """Lipmaalink and backlink of an entry, from the packet and from what is known."""
    if seq == 1:
        return None, None
    hashes = request.incoming.hashes
    target = lipmaa(seq)
    distinct = target != seq - 1
    wanted = [target] if packet_backlink is not None or not distinct else [target, seq - 1]
    missing = [n for n in wanted if n not in hashes]
    if missing:
        # Looked up once: the lower pool may come later in the same channel (section 8), so that to
        # wait for it would be for ever.
        if request.incoming.hashes_looked_up_for == seq:
            raise CannotTakeIn(f"entry {missing[0]}, which entry {seq} links to, is not held")
        raise NeedLookUp(seq, tuple({*lower_pool(seq), seq - 1} - {seq}))
    if not distinct:
        return None, hashes[target]
    return hashes[target], packet_backlink or hashes[seq - 1]
