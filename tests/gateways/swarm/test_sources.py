"""Items: of streams in memory, and answers to retrievals."""

from hypothesis import given
from hypothesis import strategies as st

from gateways.swarm.sources import ANSWERS_MAX, Answers, Source

from .memory import ADDRESSES, Items

FAR = 2**64 - 1


@given(st.integers(0, 20), st.integers(1, 25), st.integers(0, 25), st.integers(1, 30))
def test_a_source_gives_what_there_is(newest: int, first: int, last: int, count: int) -> None:
    answers = Answers(lambda address: True)
    for each in ADDRESSES[:newest]:
        answers.append(each)
    sources: list[Source] = [Items(ADDRESSES[:newest]), answers]
    expected = [ADDRESSES[at - 1] for at in range(first, min(last, newest) + 1)][:count]
    for source in sources:
        assert source.newest == newest
        assert source.addresses(first, last, count) == expected
        assert source.holds(ADDRESSES[0])


def test_answers_are_not_kept_once_the_next_are_asked_for() -> None:
    answers = Answers(lambda address: False)
    for each in ADDRESSES[:5]:
        answers.append(each)
    assert answers.addresses(1, FAR, 3) == ADDRESSES[:3]
    assert answers.addresses(1, FAR, 3) == ADDRESSES[:3]
    assert answers.addresses(4, FAR, 3) == ADDRESSES[3:5]
    assert answers.addresses(6, FAR, 3) == []
    answers.append(ADDRESSES[5])
    assert answers.addresses(6, FAR, 3) == [ADDRESSES[5]]
    assert not answers.holds(ADDRESSES[5])


def test_the_oldest_answer_is_forgotten_and_no_index_lacks_an_item() -> None:
    answers = Answers(lambda address: True)
    told = [number.to_bytes(32, "big") for number in range(ANSWERS_MAX + 2)]
    for each in told:
        answers.append(each)
    assert answers.newest == ANSWERS_MAX
    assert answers.addresses(1, FAR, 2) == told[2:4]
    assert answers.addresses(answers.newest, FAR, 2) == told[-1:]
