"""What beside the planner may speak of a log obeys the scope too, and what is covered goes on."""

import pytest

from logstore import PolicyKind, Subscription, WriteScope
from peer import Scope
from peer.protocol.events import Interests, InterestsChanged, SourceChanged
from tests.records import replace
from wire import CancelReason, LogKey

from .partial import wanted_of
from .rig import Store
from .scoped import HERE, THERE, THIRD, ScopedPair, history, kept, shows

LOG, OWN = LogKey(THIRD.id, 0), LogKey(HERE.id, 0)
COUNT = 9
THERE_WANTS = Interests(logs=frozenset({LOG, OWN}), author=THERE.id)
FOLLOWS = Interests(logs=frozenset({LOG}), author=HERE.id)
LIVE = ("follow", "follow")
READS_NONE: frozenset[bytes | LogKey] = frozenset()
MAY_WRITE = Scope(READS_NONE, WriteScope.FOLLOWED, THERE.id)
MAY_READ = Scope(None, WriteScope.NONE, THERE.id)
MAY_NOTHING = Scope(READS_NONE, WriteScope.NONE, THERE.id)

sides = pytest.mark.parametrize("here", [0, 1], ids=["proactive", "reactive"])


def pair_of(here: int, counts: tuple[int, int], log: LogKey = LOG) -> ScopedPair:
    """Here and there hold so many entries of a log."""
    author = HERE if log == OWN else THIRD
    stores = (Store(), Store())
    for store, count in zip(stores, counts, strict=True):
        store.logs[log].update(kept(history(author, 0, COUNT), range(1, count + 1)))
    return ScopedPair(here, stores)


def holds(pair: ScopedPair, side: int, log: LogKey = LOG) -> set[int]:
    """The entries that a side holds with their payloads."""
    held = pair.hosts[side].store.logs[log]
    return {seq for seq in held if held[seq].payload is not None}


@sides
def test_what_comes_goes_on_where_only_reading_ends(here: int) -> None:
    """In the middle of a payload, in the request that it began in."""
    pair = pair_of(here, (0, COUNT))
    pair.meet(FOLLOWS, THERE_WANTS, policies=LIVE)
    sinks = pair.hosts[here].sinks
    for _ in range(200):
        if any(0 < len(sink.data) < 400 for sink in sinks.values()):
            break
        for side in (0, 1):
            pair.hosts[side].step()
            pair.pump(side, data_max=50)
            pair.deliver_control(side, 1000)
            pair.deliver_data(side, 1000)
    assert sinks
    since = len(pair.records)
    pair.change(replace(FOLLOWS, scope=MAY_WRITE))
    pair.settle()
    assert holds(pair, here) == set(range(1, COUNT + 1))
    said = pair.crossed(LOG, from_here=True, since=since).controls
    assert not [each for each in said if each["message"] == "cancel"]


@sides
@pytest.mark.parametrize("size", [1, 90, 230, 400])
def test_a_request_in_which_an_entry_leaves_in_part_ends(here: int, size: int) -> None:
    """The other side would wait for the rest of it, and send nothing that it has behind it.

    Its metadata is sent, or some of its payload too, by how many bytes are taken at a time.
    """
    whole = history(THIRD, 0, COUNT)
    pair = pair_of(here, (5, 5))
    pair.meet(FOLLOWS, THERE_WANTS, policies=LIVE)
    pair.settle()
    mine, theirs = (pair.hosts[side].store for side in (here, 1 - here))
    mine.logs[LOG][6] = whole[6]
    mine.changed(LOG)
    while not pair.sent:
        pair.hosts[here].step()
        pair.pump(here, data_max=size)
    pair.change(replace(FOLLOWS, scope=MAY_WRITE))
    pair.settle()
    theirs.logs[LOG].setdefault(6, replace(whole[6], payload=None))
    theirs.logs[LOG][7] = whole[7]
    theirs.changed(LOG)
    pair.settle()
    assert holds(pair, here) == set(range(1, 8))


@sides
@pytest.mark.parametrize("counts", [(3, 7), (7, 7), (0, 5)])
def test_what_comes_from_elsewhere_is_not_passed_on(here: int, counts: tuple[int, int]) -> None:
    """Nor what has come in the same request, which is told of when something follows it."""
    pair = pair_of(here, counts)
    pair.meet(replace(FOLLOWS, scope=MAY_WRITE), THERE_WANTS, policies=LIVE)
    pair.settle()
    store = pair.hosts[here].store
    for seq in range(counts[1] + 1, COUNT + 1):
        store.logs[LOG][seq] = history(THIRD, 0, COUNT)[seq]
        store.changed(LOG)
        pair.settle(2)
    assert holds(pair, here) == set(range(1, COUNT + 1))
    assert holds(pair, 1 - here) == set(range(1, counts[1] + 1))
    assert pair.crossed(LOG, from_here=True).is_nothing
    pair.change(FOLLOWS)
    pair.settle(2)
    assert holds(pair, 1 - here) == set(range(1, COUNT + 1))


@sides
def test_what_comes_stops_where_writing_ends_and_is_told_of(here: int) -> None:
    pair = pair_of(here, (0, COUNT))
    pair.meet(FOLLOWS, THERE_WANTS, policies=LIVE)
    while not holds(pair, here):
        pair.one_round()
    while pair.hosts[here].step():
        pass
    held = holds(pair, here)
    pair.change(replace(FOLLOWS, scope=MAY_READ))
    since = len(pair.records)
    pair.settle()
    assert holds(pair, here) <= held | {max(held) + 1}
    assert set(pair.crossed(LOG, from_here=False, since=since).notified) <= set(range(1, COUNT + 1))
    assert COUNT in pair.crossed(LOG, from_here=False, since=since).notified
    pair.change(FOLLOWS)
    pair.settle()
    assert holds(pair, here) == set(range(1, COUNT + 1))


@sides
@pytest.mark.parametrize("left_before", [True, False])
@pytest.mark.parametrize("there_first", [True, False])
def test_what_is_under_way_when_writing_ends_is_not_taken_in(
    here: int, *, left_before: bool, there_first: bool
) -> None:
    """Who sends it knows neither of that, nor that notifications alone were wanted before it."""
    there = 1 - here
    pair = pair_of(here, (0, COUNT))
    pair.meet(FOLLOWS, THERE_WANTS, policies=LIVE, first=there if there_first else here)
    for _ in range(50):
        if shows(bytes(pair.data[there]), history(THIRD, 0, COUNT)):
            break
        for side in (0, 1):
            while pair.hosts[side].step():
                pass
            pair.pump(side)
            pair.deliver_control(side, len(pair.control[side]))
    assert pair.data[there]
    if left_before:
        pair.engine(here).handle(SourceChanged(LOG, fetch=False))
    pair.change(replace(FOLLOWS, scope=MAY_READ))
    pair.settle()
    assert pair.hosts[here].store.height(LOG) == 0
    pair.change(FOLLOWS)
    if left_before:
        pair.engine(here).handle(SourceChanged(LOG, fetch=True))
    pair.settle(2)
    assert holds(pair, here) == set(range(1, COUNT + 1))


@sides
def test_what_is_offered_while_it_may_not_be_taken_is_asked_for_later(here: int) -> None:
    """It was refused before, and is offered once: there may be no later proposal to wait for."""
    pair, there = pair_of(here, (0, COUNT)), 1 - here
    closed = Scope(READS_NONE, WriteScope.FOLLOWED, HERE.id)
    pair.meet(replace(FOLLOWS, scope=MAY_WRITE), replace(THERE_WANTS, scope=closed), policies=LIVE)
    pair.settle()
    pair.change(replace(FOLLOWS, scope=MAY_NOTHING))
    pair.engine(there).handle(InterestsChanged(THERE_WANTS, pair.offers(there, THERE_WANTS)))
    pair.settle()
    assert holds(pair, here) == set()
    pair.change(FOLLOWS)
    pair.settle(2)
    assert holds(pair, here) == set(range(1, COUNT + 1))


@sides
def test_a_path_that_was_refused_is_asked_for_once_it_is_offered(here: int) -> None:
    """Nothing else tells of it: the path to an entry, and that itself, were refused before."""
    pair, there = pair_of(here, (COUNT, 0)), 1 - here
    sparse = replace(THERE_WANTS, subscriptions={LOG: Subscription(PolicyKind.SPARSE)})
    pair.meet(replace(FOLLOWS, scope=MAY_WRITE), sparse, policies=LIVE)
    pair.settle(20)
    assert holds(pair, there) == set()
    pair.change(FOLLOWS)
    pair.settle(60)
    assert holds(pair, there) == wanted_of(Subscription(PolicyKind.SPARSE), COUNT)


@sides
@pytest.mark.parametrize("followed", [True, False])
@pytest.mark.parametrize("scope", [MAY_WRITE, MAY_NOTHING])
def test_what_was_asked_for_in_vain_is_told_once_it_may_be_read(
    here: int, scope: Scope, *, followed: bool
) -> None:
    """Also of a log that is merely held, which is offered to nobody."""
    interests = FOLLOWS if followed else Interests(author=HERE.id)
    pair = pair_of(here, (COUNT, 2))
    pair.meet(replace(interests, scope=scope), THERE_WANTS, policies=LIVE)
    pair.settle()
    assert holds(pair, 1 - here) == {1, 2}
    pair.change(replace(interests, scope=MAY_READ))
    pair.settle(2)
    assert holds(pair, 1 - here) == set(range(1, COUNT + 1))


@sides
@pytest.mark.parametrize("detour", [MAY_READ, MAY_WRITE, MAY_NOTHING])
def test_what_is_being_given_comes_whole_though_its_request_ends(here: int, detour: Scope) -> None:
    """A request that carries both ways ends where one of them does; the other way is told anew."""
    for rounds in range(2, 14):
        pair = pair_of(here, (COUNT, 2))
        pair.meet(FOLLOWS, THERE_WANTS, policies=LIVE)
        for _ in range(rounds):
            for side in (0, 1):
                pair.hosts[side].step()
                pair.pump(side, data_max=200)
                pair.deliver_control(side, 1000)
                pair.deliver_data(side, 1000)
        pair.change(replace(FOLLOWS, scope=detour))
        if detour is not MAY_READ:
            pair.run()
            pair.change(FOLLOWS)
        pair.settle(3)
        assert holds(pair, 1 - here) == set(range(1, COUNT + 1))


@sides
def test_a_payload_that_was_refused_is_asked_for_again_once_it_may_be_read(here: int) -> None:
    """What is held comes with a request that is open, so that there is nothing to ask or offer."""
    pair = pair_of(here, (2, 2))
    held = pair.hosts[1 - here].store.logs[LOG]
    held[2] = replace(held[2], payload=None)
    pair.meet(replace(FOLLOWS, scope=MAY_WRITE), THERE_WANTS, policies=LIVE)
    pair.settle(25)
    assert holds(pair, 1 - here) == {1}
    pair.change(FOLLOWS)
    pair.settle(25)
    assert holds(pair, 1 - here) == {1, 2}


@sides
def test_what_nobody_has_asked_for_is_asked_for_once_it_may_be_written(here: int) -> None:
    """The other side merely holds it, and proposes nothing by itself."""
    for scope in (MAY_READ, MAY_NOTHING):
        pair = pair_of(here, (0, COUNT))
        pair.meet(replace(FOLLOWS, scope=scope), Interests(author=THERE.id), policies=LIVE)
        pair.settle()
        assert holds(pair, here) == set()
        pair.change(FOLLOWS)
        pair.settle(2)
        assert holds(pair, here) == set(range(1, COUNT + 1))


@sides
def test_a_payload_that_came_late_is_offered_to_who_may_read_it(here: int) -> None:
    """The other side was told that it is not held, and may not be told any more that it is."""
    pair = pair_of(here, (COUNT, 0))
    held = pair.hosts[here].store.logs[LOG]
    payload = held[6].payload
    held[6] = replace(held[6], payload=None)
    pair.meet(FOLLOWS, THERE_WANTS, policies=LIVE)
    pair.settle()
    assert 6 in pair.crossed(LOG, from_here=True).skipped
    pair.change(replace(FOLLOWS, scope=MAY_WRITE))
    pair.settle(2)
    since, sent = len(pair.records), len(pair.sent)
    held[6] = replace(held[6], payload=payload)
    pair.hosts[here].store.changed(LOG)
    pair.settle()
    said = pair.crossed(LOG, from_here=True, since=since)
    assert said.is_nothing
    assert not [each for each in said.controls if "payloads_only" in each or "offset" in each]
    assert not shows(bytes(pair.sent[sent:]), history(THIRD, 0, COUNT))
    pair.change(FOLLOWS)
    pair.settle(30)
    assert 6 in holds(pair, 1 - here)


WITHHELD = Interests(own=frozenset({OWN}), author=HERE.id, shared={OWN: 2}, asked=frozenset({OWN}))
"""An own log of which others have two entries, and of which every peer is asked."""


@sides
@pytest.mark.parametrize("policies", [LIVE, ("sync", "follow")])
def test_nobody_is_asked_of_an_own_log_that_it_may_not_read(
    here: int, policies: tuple[str, str]
) -> None:
    """A question names the log; and nothing waits for an answer that will not come."""
    pair = pair_of(here, (COUNT, 2), OWN)
    pair.meet(replace(WITHHELD, scope=MAY_NOTHING), THERE_WANTS, policies=policies)
    pair.settle(3)
    said = pair.crossed(OWN, from_here=True)
    assert said.is_nothing
    assert {each["message"] for each in said.controls} <= {"cancel"}
    assert not pair.engine(here)._withholding.is_asking
    assert pair.finished(here) is (policies[0] == "sync")


@sides
def test_a_question_that_a_scope_ended_is_asked_again(here: int) -> None:
    """Its silence shows nothing: what the other side holds may contradict the rest."""
    pair = pair_of(here, (COUNT, 3), OWN)
    pair.meet(WITHHELD, THERE_WANTS, policies=LIVE)
    pair.hosts[1 - here].todo.clear()
    pair.pump(here)
    pair.change(replace(WITHHELD, scope=MAY_NOTHING))
    pair.run()
    assert not pair.engine(here)._withholding.is_asking
    pair.settle(5)
    assert pair.crossed(OWN, from_here=True).is_nothing
    pair.change(WITHHELD)
    assert pair.engine(here)._withholding.limit(OWN) == WITHHELD.shared[OWN]
    pair.settle()
    assert holds(pair, 1 - here, OWN) == set(range(1, COUNT + 1))


@sides
def test_only_refusals_name_a_log_after_it_may_not_be_known(here: int) -> None:
    """Whatever is under way, proposed and not answered, or merely served."""
    for rounds in range(12):
        pair = pair_of(here, (COUNT, COUNT - 3))
        pair.meet(FOLLOWS, THERE_WANTS, policies=LIVE)
        for _ in range(rounds):
            pair.hosts[here].step()
            pair.hosts[1 - here].step()
            pair.pump(here)
            pair.deliver_control(here, 1000)
            pair.pump(1 - here, data_max=100)
            pair.deliver_control(1 - here, 1000)
        pair.pump(here)
        pair.deliver_control(here, 1000)
        pair.deliver_data(here, 100_000)
        since, sent = len(pair.records), len(pair.sent)
        backlog = pair.engine(here)._outbound._out_bytes
        pair.change(replace(FOLLOWS, scope=MAY_NOTHING))
        for count in range(3):
            pair.settle(2)
            pair.hosts[here].store.append(THIRD, 0, b"new %d" % count)
        pair.settle()
        said = pair.crossed(LOG, from_here=True, since=since)
        assert {each["message"] for each in said.controls} <= {"cancel"}
        assert {each["reason"] for each in said.controls} <= {
            int(CancelReason.NOT_WANTED),
            int(CancelReason.YOU_CANCELLED),
        }
        left = bytes(pair.sent[sent + backlog :])
        assert not shows(left, history(THIRD, 0, COUNT))
        assert pair.engine(here).requests == 0


@sides
def test_a_confirmation_that_crosses_a_scope_makes_nobody_ask(here: int) -> None:
    """It says that the other side has what nobody had seen, which is asked about if it may be."""
    pair, there = pair_of(here, (COUNT, COUNT), OWN), 1 - here
    interests = Interests(own=frozenset({OWN}), author=HERE.id, shared={OWN: 2})
    pair.meet(interests, THERE_WANTS, policies=LIVE, first=there)
    for side in (here, there):
        while pair.hosts[side].step():
            pass
        pair.pump(side)
        pair.deliver_control(here, len(pair.control[here]))
    while pair.hosts[there].step():
        pass
    since = len(pair.records)
    pair.change(replace(interests, scope=MAY_NOTHING))
    pair.settle()
    said = pair.crossed(OWN, from_here=True, since=since).controls
    assert not [each for each in said if each["message"] == "propose"]


@sides
def test_what_may_be_read_for_a_moment_only_is_not_offered_afterwards(here: int) -> None:
    pair = pair_of(here, (2, COUNT))
    only_holds = Interests(author=THERE.id)
    pair.meet(replace(FOLLOWS, scope=MAY_WRITE), only_holds, policies=LIVE)
    pair.settle()
    assert holds(pair, here) == set(range(1, COUNT + 1))
    since = len(pair.records)
    pair.change(FOLLOWS)
    pair.change(replace(FOLLOWS, scope=MAY_WRITE))
    pair.settle()
    said = pair.crossed(LOG, from_here=True, since=since).controls
    assert not [each for each in said if "end" in each]


@sides
def test_an_ended_log_that_is_only_listened_to_is_told_of(here: int) -> None:
    """Nothing more of it is waited for, and the other side cannot name it: it follows an author."""
    log = LogKey(THIRD.id, 1)
    stores = (Store(), Store())
    stores[0].logs[log].update(history(THIRD, 1, COUNT, ends=True))
    pair = ScopedPair(here, stores)
    author = frozenset({THIRD.id})
    here_wants = Interests(authors=author, author=HERE.id, scope=MAY_READ)
    pair.meet(here_wants, Interests(authors=author, author=THERE.id), policies=LIVE)
    pair.settle(2)
    assert holds(pair, 1 - here, log) == set(range(1, COUNT + 1))


@sides
def test_what_comes_up_may_be_listened_to_where_it_may_not_be_taken(here: int) -> None:
    """Notifications alone are asked for of a log that only the other side could name."""
    log = LogKey(THIRD.id, 1)
    stores = (Store(), Store())
    stores[1].logs[log].update(history(THIRD, 1, COUNT))
    pair = ScopedPair(here, stores)
    author = frozenset({THIRD.id})
    here_wants = Interests(authors=author, author=HERE.id, scope=MAY_READ)
    pair.meet(here_wants, Interests(authors=author, author=THERE.id), policies=LIVE)
    pair.settle(2)
    assert pair.crossed(log, from_here=True).asked == {"notify"}
    assert pair.crossed(log, from_here=False).notified == set(range(1, COUNT + 1))


@sides
def test_what_comes_from_elsewhere_is_told_to_who_has_asked_for_it_in_vain(here: int) -> None:
    """Here it is neither followed nor was it held when the other side asked."""
    pair = pair_of(here, (0, 0))
    pair.meet(Interests(author=HERE.id), THERE_WANTS, policies=LIVE)
    pair.settle()
    store = pair.hosts[here].store
    store.logs[LOG].update(history(THIRD, 0, COUNT))
    store.changed(LOG)
    pair.settle()
    assert holds(pair, 1 - here) == set(range(1, COUNT + 1))
