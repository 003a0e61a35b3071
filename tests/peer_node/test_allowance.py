"""What all connections together may have under way to us is bounded."""

from contextlib import AsyncExitStack

from hypothesis import given
from hypothesis import strategies as st

from logstore import Store
from peer import SessionConfig
from peer.node import Limits, NodeConfig, memory_link, running_node
from peer.node.links.allowance import CREDIT_BYTES_MIN, CREDIT_SHARE, Allowance
from peer.node.links.records import Direction

MIB = 1 << 20


@given(wanted=st.lists(st.integers(1, 4 * MIB), max_size=300), leave=st.data())
def test_the_sum_is_bounded_whoever_comes_and_goes(wanted: list[int], leave: st.DataObject) -> None:
    allowance = Allowance(16 * MIB, CREDIT_BYTES_MIN, CREDIT_SHARE)
    held: list[int] = []
    for bytes_wanted in wanted:
        credit = allowance.take(bytes_wanted)
        assert min(bytes_wanted, CREDIT_BYTES_MIN) <= credit <= bytes_wanted
        held.append(credit)
        assert sum(held) == allowance.taken <= 16 * MIB + len(held) * CREDIT_BYTES_MIN
        if leave.draw(st.booleans()):
            allowance.give_back(held.pop())
    for credit in held:
        allowance.give_back(credit)
    assert allowance.taken == 0


def test_few_connections_get_all_they_want_and_many_get_less() -> None:
    allowance = Allowance(64 * MIB, CREDIT_BYTES_MIN, CREDIT_SHARE)
    granted = [allowance.take(4 * MIB) for _ in range(256)]
    assert granted[0] == 4 * MIB
    assert min(granted[:20]) >= MIB
    assert granted == sorted(granted, reverse=True)
    assert granted[-1] == CREDIT_BYTES_MIN
    assert sum(granted) < 80 * MIB
    few = Allowance(64 * MIB, CREDIT_BYTES_MIN, CREDIT_SHARE)
    assert [few.take(MIB) for _ in range(48)] == [MIB] * 48


async def test_a_connection_gives_back_what_it_had_when_it_ends() -> None:
    limits = Limits(data_credit_bytes_max=16 * MIB)
    config = NodeConfig(SessionConfig(data_credit_bytes=MIB), limits, workers=0, poll_s=1e9)
    with Store.memory() as store:
        async with AsyncExitStack() as stack, running_node(store, config) as running:
            roster = running._roster
            members = []
            for number in range(12):
                here, there = memory_link()
                await stack.enter_async_context(there)
                members.append(roster.make(here, Direction.INCOMING, f"peer {number}"))
            taken = [member.data_credit_bytes for member in members]
            assert taken[0] == MIB > taken[4] > taken[-1] >= CREDIT_BYTES_MIN
            assert sum(taken) == roster.allowance.taken
            for member in members:
                member.connection.abort()
                await roster.run(member)
            assert roster.allowance.taken == 0
