"""The bins of a node in any history: an address has one place, and it never changes."""

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gateways.swarm import Bins
from gateways.swarm.declared import declarations
from tests.logstore.authors import AuthorLog

from .serving import Placed, Serving, check_in_log, chunks_of, spoil_middle

STEPS: st.SearchStrategy[tuple[str, list[int]]] = st.one_of(
    st.tuples(st.just("keep"), st.lists(st.integers(0, 39), max_size=8)),
    st.tuples(st.just("put"), st.lists(st.integers(0, 39), max_size=8)),
    st.tuples(st.just("foreign"), st.lists(st.integers(0, 39), max_size=8)),
    st.tuples(st.just("drop"), st.lists(st.integers(0, 39), max_size=3)),
    st.tuples(st.sampled_from(["place", "lose", "spoil", "reopen", "crash"]), st.just([])),
)
SOME = chunks_of(40, seed=99)
DECLARATION = declarations(bytes(32))[0]


@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, max_size=12))
def test_whatever_happens_an_address_has_one_place_for_ever(
    steps: list[tuple[str, list[int]]],
) -> None:
    """Against a plain model: which chunks can be read, and which place each address has had."""
    with tempfile.TemporaryDirectory() as folder:
        serving = Serving(Path(folder) / "s")
        others = [AuthorLog(number) for number in range(len(steps))]
        held: set[int] = set()
        known: Placed = {}
        for (step, numbers), other in zip(steps, others, strict=True):
            chunks = [SOME[number] for number in numbers]
            match step:
                case "keep":
                    serving.bins.keep(chunks)
                case "put":
                    # Another process, which does not look whether they are held.
                    if chunks:
                        serving.store.append(
                            [each.encoded for each in chunks], log_id=serving.node.chunk_log
                        )
                case "foreign":
                    payloads = [DECLARATION, *(each.encoded for each in chunks)]
                    entries = [other.add(seq, each) for seq, each in enumerate(payloads, 1)]
                    serving.store.put_entries(other.key, entries, source="a friend")
                case "drop":
                    serving.side.refresh()
                    for each in chunks:
                        for place in serving.side.places(each.address):
                            serving.store.drop(place.log, place.seq, place.seq)
                case "place":
                    serving.bins.place()
                    check_model(serving, held, known)
                case "lose":
                    serving.lose_table()
                case "spoil":
                    serving.side.close()
                    spoil_middle(serving.table)
                    serving.open()
                case "reopen":
                    serving.reopen()
                case _:
                    crash(serving)
            held = held - {*numbers} if step == "drop" else held | {*numbers}
        serving.bins.place()
        check_model(serving, held, known)
        check_in_log(serving, known)
        serving.close()


def crash(serving: Serving) -> None:
    """Places are signed, and the process ends before the side table has them."""
    serving.side.refresh()
    bins = Bins(serving.store, serving.side, serving.node, serving.store.append_many)
    bins.begin()

    def refresh() -> None:
        raise KeyboardInterrupt

    def sign(*batches: object, **more: object) -> object:
        signed = serving.store.append_many(*batches, **more)  # type: ignore[arg-type]
        bins._refresh = refresh  # type: ignore[method-assign]
        return signed

    bins._sign = sign  # type: ignore[assignment]
    with suppress(KeyboardInterrupt):
        bins.place()
    serving.reopen()


def check_model(serving: Serving, held: set[int], known: Placed) -> None:
    """Adds the places that are new, of those that are held; all others are what they were."""
    placed = serving.placed()
    assert placed.items() >= known.items()
    assert {*placed} >= {SOME[number].address for number in held}
    assert {*placed} <= {each.address for each in SOME}
    known.update(placed)
    for number, chunk in enumerate(SOME):
        assert serving.bins.holds(chunk.address) == (number in held)
        [found] = serving.bins.read([chunk.address])
        assert found == (chunk.encoded if number in held else None)
