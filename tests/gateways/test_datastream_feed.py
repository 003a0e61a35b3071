"""What a feed remembers of a stream that goes back again and again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways import LogHost
from gateways.datastream import feed as feed_module
from gateways.datastream.feed import Feed, WentBack
from gateways.datastream.logs import State
from logstore import Store
from wire import LogKey

KEPT = 5


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(0, 30))
def test_whoever_was_sent_what_is_gone_is_ended_and_little_is_remembered(
    cuts: list[int], number: int
) -> None:
    with Store.memory() as store, pytest.MonkeyPatch.context() as patched:
        patched.setattr(feed_module, "CUTS_KEPT", KEPT)
        feed = Feed(LogHost(store), LogKey(store.author, 0))
        for when, to in enumerate(cuts, 1):
            feed._cut(when, to)
            assert len(feed._cuts) <= KEPT
        feed.state = State(None, 0, 0, 0, "", len(cuts))
        for since in range(len(cuts) + 1):
            try:
                assert feed.check(since, number) == len(cuts)
                is_ended = False
            except WentBack:
                is_ended = True
            went_back = any(to < number for to in cuts[since:])
            # More than are remembered may be taken for lower ones; never the other way round.
            assert is_ended >= went_back
            if len(cuts) <= KEPT:
                assert is_ended == went_back
        feed.close()
