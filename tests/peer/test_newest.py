"""What a proposal seems to say of the newest entry over there need not be so (section 10)."""

import pytest

from logstore import PolicyKind, Subscription
from peer.protocol.events import Interests

from .rig import Pair, Store
from .test_many_logs import AUTHOR, logs


@pytest.mark.parametrize("side", [0, 1])
def test_who_follows_a_range_that_begins_later_does_not_hold_what_is_before_it(side: int) -> None:
    """It asks for 13 and all that follows, and holds 11: the path to 12 leads nowhere."""
    giver, taker = Store(), Store()
    for number in range(11):
        giver.append(AUTHOR, 0, b"%d" % number)
    [log] = logs(0)
    wants = [
        Interests(frozenset((log,)), subscriptions={log: subscription})
        for subscription in (
            Subscription(PolicyKind.RANGE, first=13),
            Subscription(PolicyKind.SPARSE),
        )
    ]
    if side == 0:
        pair = Pair(stores=(giver, taker))
        pair.connect((wants[0], wants[1]))
    else:
        pair = Pair(stores=(taker, giver))
        pair.connect((wants[1], wants[0]))
    for _ in range(20):
        pair.run(advance_s=1.0)
    assert taker.newest(log) == 11
    proposals = sum(pair.engine(number)._table.next_number() // 2 for number in (0, 1))
    for _ in range(200):
        pair.run(advance_s=1.0)
    after = sum(pair.engine(number)._table.next_number() // 2 for number in (0, 1))
    assert after <= proposals + 12
