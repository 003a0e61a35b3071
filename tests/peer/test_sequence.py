"""Sequences of pieces against a naive list of them (point2point.md 3)."""

from hypothesis import given
from hypothesis import strategies as st

from peer.protocol.sequence import METADATA, PAYLOAD, Piece, Sequence, sequence_of
from wire import U64_MAX, Propose, lower_pool, shortest_path, upper_pool

from .impolite import propose


def naive(proposal: Propose, end: int, upper_info: int) -> list[Piece]:
    """The pieces, one by one, as section 3 says."""
    start, pieces = proposal.start, []
    if proposal.lower_info is not None and not proposal.payloads_only:
        pool = sorted(lower_pool(start))
        pieces += [Piece(METADATA, n) for n in pool if proposal.lower_info <= n < start]
    body = sorted(shortest_path(end, start)) if proposal.sparse else range(start, end + 1)
    for seq in body:
        if not proposal.payloads_only and not (seq == start and proposal.offset is not None):
            pieces.append(Piece(METADATA, seq))
        pieces.append(Piece(PAYLOAD, seq))
    if not proposal.payloads_only:
        pieces += [Piece(METADATA, n) for n in sorted(upper_pool(end)) if end < n <= upper_info]
    return pieces


@st.composite
def ranges(draw: st.DrawFn) -> tuple[Propose, int, int]:
    start = draw(st.integers(1, 60))
    end = start + draw(st.integers(0, 60))
    inside = draw(st.booleans())
    proposal = propose(
        0,
        start,
        lower_info=None if inside else draw(st.sampled_from(lower_pool(start))),
        offset=0 if inside else None,
        payloads_only=draw(st.booleans()),
        sparse=draw(st.booleans()),
    )
    return proposal, end, draw(st.sampled_from(upper_pool(end)))


@given(ranges())
def test_a_sequence_is_the_list_that_section_3_describes(made: tuple[Propose, int, int]) -> None:
    pieces = naive(*made)
    sequence = sequence_of(*made)
    assert sequence.length == sequence.reach == len(pieces)
    assert [sequence.piece(position) for position in range(len(pieces))] == pieces


@given(ranges())
def test_positions_up_to_a_seqnum_are_those_of_the_body(made: tuple[Propose, int, int]) -> None:
    proposal, end, _ = made
    pieces, sequence = naive(*made), sequence_of(*made)
    for seq in range(end + 2):
        expected = [
            position
            for position, piece in enumerate(pieces)
            if position < len(sequence.lower) or proposal.start <= piece.seq <= min(seq, end)
        ]
        assert sequence.positions_up_to(seq) == len(expected)


@given(ranges())
def test_the_metadata_of_the_backlink_is_found_if_it_is_any_piece_before(
    made: tuple[Propose, int, int],
) -> None:
    pieces, sequence = naive(*made), sequence_of(*made)
    for position, piece in enumerate(pieces):
        if piece.kind is METADATA:
            before = [
                index
                for index, other in enumerate(pieces[:position])
                if other == Piece(METADATA, piece.seq - 1)
            ]
            assert sequence.metadata_before(position) == (before[-1] if before else None)


@given(st.integers(1, 60), st.booleans())
def test_an_open_sequence_is_a_long_finite_one(start: int, inside: bool) -> None:
    proposal = propose(0, start, offset=0 if inside else None)
    endless = sequence_of(proposal, None, None)
    finite = sequence_of(proposal, start + 50, start + 50)
    assert endless.length is None
    assert [endless.piece(n) for n in range(100)] == [finite.piece(n) for n in range(100)]


def last_piece(sequence: Sequence) -> Piece:
    return sequence.piece(sequence.reach - 1)


def test_seqnums_up_to_2_64_minus_1_are_arithmetic() -> None:
    endless = sequence_of(propose(0, 1), None, None)
    assert endless.reach == 2 * U64_MAX
    assert last_piece(endless) == Piece(PAYLOAD, U64_MAX)
    sparse = sequence_of(propose(0, 1, sparse=True), U64_MAX, U64_MAX)
    assert last_piece(sparse) == Piece(PAYLOAD, U64_MAX)
    assert sparse.reach < 400
