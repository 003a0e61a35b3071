"""The sequence of pieces that a request transmits (point2point.md 3).

A piece is an entry's metadata or an entry's payload. A sequence has three parts: metadata of the
lower pool, the body, metadata of the upper pool. Cursors are positions in it, counted from 0. Every
kind of request (full, sparse, closed, open, payloads only, starting inside a payload) is one of
these, so that cursors, judging and sending know nothing of kinds.

Pools and sparse paths are short (their length grows with the logarithm of the seqnums) and are kept
as tuples. A full body may be 2^64 entries long and is arithmetic.
"""

from bisect import bisect_right
from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

from wire import U64_MAX, Propose, lower_pool, shortest_path, upper_pool


class PieceKind(IntEnum):
    METADATA = 0
    PAYLOAD = 1


class Piece(NamedTuple):
    kind: PieceKind
    seq: int


METADATA = PieceKind.METADATA
PAYLOAD = PieceKind.PAYLOAD


class Sequence(Struct, frozen=True):
    """What is transmitted for one request, and in which order.

    `path` is the ascending sparse body, or None for a full one. `skip` is 1 if the body begins with
    a payload whose metadata is not part of it. `per_entry` is how many pieces an entry of the body
    has. `end` is None for an open range. `body` and `reach` are how many pieces there can be in the
    body and in the whole: seqnums end at 2^64 - 1 in an open range too. `length` is the same as
    `reach`, None if there is no end.
    """

    start: int
    end: int | None
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    path: tuple[int, ...] | None
    per_entry: int
    skip: int
    offset: int
    body: int
    length: int | None
    reach: int

    def piece(self, position: int) -> Piece:
        """The piece at a position, which must lie inside the sequence."""
        lower = len(self.lower)
        if position < lower:
            return Piece(METADATA, self.lower[position])
        index = position - lower
        if index >= self.body:
            return Piece(METADATA, self.upper[index - self.body])
        index += self.skip
        entry = index // self.per_entry
        kind = PAYLOAD if self.per_entry == 1 or index % 2 else METADATA
        return Piece(kind, self.start + entry if self.path is None else self.path[entry])

    def positions_up_to(self, seq: int) -> int:
        """The position just behind the body's last piece of an entry not above `seq`."""
        if seq < self.start:
            return len(self.lower)
        if self.end is not None:
            seq = min(seq, self.end)
        entries = seq - self.start + 1 if self.path is None else bisect_right(self.path, seq)
        return len(self.lower) + entries * self.per_entry - self.skip

    def metadata_before(self, position: int) -> int | None:
        """The position of the metadata of the entry just before the one at `position`.

        None if that is no piece before it. Where it is one, it is the last metadata before it: what
        lies between two neighbours in a pool or on a path are links over numbers that are no piece.
        """
        seq = self.piece(position).seq
        for before in (position - 1, position - 2):
            if before < 0:
                return None
            piece = self.piece(before)
            if piece.kind is METADATA:
                return before if piece.seq == seq - 1 else None
        return None

    @property
    def is_full(self) -> bool:
        """Whether the body holds metadata and payload of consecutive entries."""
        return self.path is None and self.per_entry == 2


def sequence_of(proposal: Propose, end: int | None, upper_info: int | None) -> Sequence:
    """The base sequence of a proposal whose confirmation chose `end` and `upper_info`.

    Every number must have been judged before (point2point.md 5). A sparse sequence needs an end.
    """
    start = proposal.start
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    if not proposal.payloads_only:
        if proposal.lower_info is not None and proposal.lower_info < start:
            pool = lower_pool(start)
            lower = tuple(n for n in reversed(pool) if proposal.lower_info <= n < start)
        if end is not None and upper_info is not None and upper_info > end:
            upper = tuple(n for n in reversed(upper_pool(end)) if end < n <= upper_info)
    path = None
    if proposal.sparse:
        if end is None:
            raise ValueError("a sparse sequence has an end")
        path = tuple(reversed(shortest_path(end, start)))
    starts_inside = proposal.offset is not None and not proposal.payloads_only
    per_entry = 1 if proposal.payloads_only else 2
    skip = 1 if starts_inside else 0
    last = U64_MAX if end is None else end
    entries = last - start + 1 if path is None else len(path)
    # Asked with each piece, and so found out once.
    body = entries * per_entry - skip
    reach = len(lower) + body + len(upper)
    return Sequence(
        start=start,
        end=end,
        lower=lower,
        upper=upper,
        path=path,
        per_entry=per_entry,
        skip=skip,
        offset=proposal.offset or 0,
        body=body,
        length=None if end is None else reach,
        reach=reach,
    )
