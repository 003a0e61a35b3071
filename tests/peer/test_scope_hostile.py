"""Whoever may not read a log gets nothing of it by anything legal that it may ask or confirm.

doors.md 3. A script stands against one engine: it asks in every way that there is, confirms what
the engine asks for with the largest appetite, and sends no data where it should.
"""

from collections.abc import Callable, Iterator

import pytest

from logstore import WriteScope
from peer import Scope
from peer.protocol.commands import LookUp
from peer.protocol.config import SessionConfig
from peer.protocol.events import Interests, InterestsChanged, LogView
from tests.records import replace
from wire import (
    Adjust,
    Cancel,
    CancelReason,
    ControlMessage,
    Eagerness,
    Grant,
    LogKey,
    Propose,
    RequestCancelled,
    Switch,
    decode_entry,
    decode_varu64,
    encode_control,
    encode_request_cancelled,
    lipmaa,
)

from .impolite import AUTHOR, LOG, REFERENCE, SMALL, Impolite, cancel, log_of, propose
from .rig import Held

PEER = b"p" * 32
READS_NONE: frozenset[bytes | LogKey] = frozenset()
ASKED_FOR = Scope(READS_NONE, WriteScope.FOLLOWED, PEER)
"""Of a log that is followed here: the other side may only write."""
NOTHING = Scope(READS_NONE, WriteScope.NONE, PEER)
COUNT = 20
U64 = (1 << 64) - 1


def payload(seq: int) -> bytes:
    """Every fourth one is read in parts."""
    return b"marker %d " % seq * (40 if seq % 4 == 0 else 3)


HELD = log_of(COUNT, payload)


def engine_with(
    scope: Scope | None, *, proactive: bool, state: str = "plain", config: SessionConfig = SMALL
) -> Impolite:
    """It follows the log, and holds 20 entries of it."""
    peer = Impolite(dict(HELD), proactive=proactive, config=config)
    if state == "forked":
        common = {seq: HELD[seq] for seq in range(1, 10)}
        encoded = AUTHOR.entry(common, 0, b"another")[1].encoded
        peer.store.record_fork(LOG, 10, (HELD[10].encoded, encoded))
    elif state == "ended":
        peer.store.append(AUTHOR, 0, b"the end", is_end=True)
    peer.host.todo.clear()
    allow(peer, scope)
    peer.run()
    return peer


def allow(peer: Impolite, scope: Scope | None) -> None:
    peer.host.todo.append(InterestsChanged(Interests(logs=frozenset((LOG,)), scope=scope), (LOG,)))


def packets(data: bytes) -> Iterator[Switch | RequestCancelled]:
    """Of data that consists of these two alone: AssertionError if there is anything else."""
    offset = 0
    while offset < len(data):
        kind = data[offset]
        assert kind in (0, 32), f"packet {kind} of a log that may not be read"
        number, offset = decode_varu64(data, offset + 1)
        yield Switch(number) if kind == 0 else RequestCancelled(number)


def sends_nothing(peer: Impolite) -> bool:
    """Whether its data names requests and their ends, and nothing else."""
    return all(True for _ in packets(peer.sent()))


def hash_of(seq: int, held: dict[int, Held] = HELD) -> bytes | None:
    return held[seq].hash if seq else None


def ways_to_ask(number: int) -> dict[str, Propose]:
    """Every kind of proposal, for what the engine holds and for what it does not."""
    everything = [
        ("all of it", {"start": 1}),
        ("a range", {"start": 3, "end": 9}),
        ("one entry", {"start": COUNT, "end": COUNT}),
        ("metadata", {"start": 1, "eagerness": Eagerness.LIMITED, "eager_bytes": 0}),
        ("one entry's metadata", {"start": 5, "end": 5, "eagerness": Eagerness.LIMITED}),
        ("news", {"start": 1, "eagerness": Eagerness.NOTIFY}),
        ("news from the middle", {"start": 12, "eagerness": Eagerness.NOTIFY}),
        ("what follows", {"start": COUNT + 1}),
        ("behind the next", {"start": COUNT + 5}),
        ("the last there can be", {"start": U64}),
        ("the newest", {"start": 1, "sparse": True, "eagerness": Eagerness.NOTIFY}),
        ("a path", {"start": 1, "sparse": True}),
        ("a path to one", {"start": 1, "end": 13, "sparse": True}),
        ("payloads", {"start": 2, "end": 9, "payloads_only": True}),
        ("small payloads", {"start": 2, "end": 9, "payloads_only": True, "max_bytes": 50}),
        ("all payloads", {"start": 1, "payloads_only": True}),
        ("the rest of a payload", {"start": 8, "end": 8, "offset": 100}),
        ("from inside a payload", {"start": 8, "offset": 100}),
        ("behind a payload", {"start": 8, "end": 8, "offset": 1 << 40}),
        ("mandatory", {"start": 1, "mandatory": True}),
        ("a path from what is not there", {"start": COUNT + 5, "sparse": True}),
        ("payloads of what is not there", {"start": 25, "end": 30, "payloads_only": True}),
        ("inside what is not there", {"start": 25, "offset": 5}),
        ("an offer", {"start": 1, "end": COUNT, "eagerness": Eagerness.NOTIFY}),
        ("an offer of more", {"start": COUNT + 1, "end": 30, "eagerness": Eagerness.NOTIFY}),
        (
            "an offer of payloads",
            {"start": 4, "end": 9, "payloads_only": True, "eagerness": Eagerness.NOTIFY},
        ),
    ]
    found = {}
    for name, fields in everything:
        start = int(str(fields["start"]))
        target = start if "offset" in fields else lipmaa(start)
        known = hash_of(target) if target <= COUNT else REFERENCE[1].hash
        limited = fields.get("eagerness") is Eagerness.LIMITED
        more = {"eager_bytes": 0} if limited else {}
        found[name] = propose(number, **{"starting_hash": known, **fields, **more})  # type: ignore[arg-type]
        if target and name != "news from the middle":
            found[f"{name}, of another history"] = replace(
                found[name], starting_hash=REFERENCE[7].hash
            )
    return found


NAMES = list(ways_to_ask(0))
STATES = ["plain", "forked", "ended"]


def judge(messages: list[ControlMessage], number: int) -> str:
    """What it said to a proposal: the answer. Nothing may show what is held."""
    said = "nothing"
    for message in messages:
        if isinstance(message, Cancel):
            assert not message.entries
            assert message.seq is None
        if isinstance(message, Adjust | Cancel) and message.request == number:
            said = "confirmed" if isinstance(message, Adjust) else str(int(message.reason))
    return said


@pytest.mark.parametrize("proactive", [False, True], ids=["reactive", "proactive"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_got_by_asking(name: str, state: str, *, proactive: bool) -> None:
    for scope in (ASKED_FOR, NOTHING):
        peer = engine_with(scope, proactive=proactive, state=state)
        number = peer.number
        peer.control(ways_to_ask(number)[name])
        said = judge(peer.messages(), number)
        assert sends_nothing(peer)
        if scope is NOTHING:
            assert said == "128"
        elif said == "confirmed":
            assert name.startswith(("an offer", "what follows"))
            # It asks to be shown what there is, and the engine comes to hold more.
            peer.control(Adjust(number, allow_skip=True))
        else:
            assert said == "128"
        if state != "ended":
            peer.store.append(AUTHOR, 0, b"marker new")
        peer.run()
        for _ in range(4):
            peer.wait(10.0)
            assert sends_nothing(peer)
            judge(peer.messages(), number)


@pytest.mark.parametrize("proactive", [False, True], ids=["reactive", "proactive"])
def test_nothing_is_looked_up_of_a_log_that_is_kept_quiet(*, proactive: bool) -> None:
    """The time that an answer takes would tell whether something is held."""
    looked: list[LogKey] = []
    for log in (LOG, LogKey(b"o" * 32, 0)):
        peer = engine_with(NOTHING, proactive=proactive)
        view = peer.host.view

        def noted(item: LookUp, view: Callable[[LookUp], LogView] = view) -> LogView:
            looked.append(item.log)
            return view(item)

        peer.host.view = noted  # type: ignore[method-assign]
        for count, proposal in enumerate(ways_to_ask(0).values()):
            number = peer.number + 2 * count
            peer.control(replace(proposal, request=number, log=log))
            said = [message for message in peer.messages() if isinstance(message, Cancel)]
            assert said == [Cancel(number, CancelReason.NOT_WANTED)]
            peer.control(cancel(number))
            peer.data(encode_request_cancelled(number))
    assert looked == []


def test_who_asks_all_the_time_is_refused_like_who_asks_once() -> None:
    """More proposals than one log may have are out of resources, but that would be an answer."""
    peer = engine_with(NOTHING, proactive=False, config=replace(SMALL, requests_per_log_max=3))
    for count in range(6):
        peer.control(propose(2 * count, 1))
        assert judge(peer.messages(), 2 * count) == "128"


@pytest.mark.parametrize("proactive", [False, True], ids=["reactive", "proactive"])
@pytest.mark.parametrize("eagerness", [Eagerness.ALL, Eagerness.LIMITED, Eagerness.NOTIFY])
def test_nothing_is_got_by_confirming(eagerness: Eagerness, *, proactive: bool) -> None:
    """What the engine asks for is confirmed with any appetite, and nothing is sent in it."""
    peer = engine_with(ASKED_FOR, proactive=proactive)
    peer.control(Grant(50))
    asked = [message for message in peer.messages() if isinstance(message, Propose)]
    assert [each.start for each in asked] == [COUNT + 1]
    size = 1000 if eagerness is Eagerness.LIMITED else None
    peer.control(Adjust(asked[0].request, eagerness=eagerness, eager_bytes=size, allow_skip=True))
    for count in range(3):
        peer.store.append(AUTHOR, 0, b"marker new %d" % count)
        peer.run()
        assert sends_nothing(peer)
        peer.wait(10.0)
        judge(peer.messages(), -1)
    peer.control(Adjust(asked[0].request, end=COUNT + 2))
    peer.wait(20.0)
    assert sends_nothing(peer)
    judge(peer.messages(), -1)


@pytest.mark.parametrize("proactive", [False, True], ids=["reactive", "proactive"])
@pytest.mark.parametrize("scope", [ASKED_FOR, NOTHING])
def test_a_request_in_force_ends_at_once_inside_a_payload(scope: Scope, *, proactive: bool) -> None:
    """Also where the log is merely held, so that nothing is known of it but the request."""
    for logs in (frozenset((LOG,)), frozenset[LogKey]()):
        peer = Impolite(dict(HELD), proactive=proactive)
        peer.host.todo.clear()
        offers = tuple(logs)
        peer.host.todo.append(InterestsChanged(Interests(logs=logs), offers))
        number = peer.open_request(4, end=COUNT, starting_hash=hash_of(lipmaa(4)))
        while b"marker 4" not in b"".join(peer.engine.data_to_send(60)):
            peer.run()
        backlog = peer.engine._outbound._out_bytes
        peer.host.todo.append(InterestsChanged(Interests(logs=logs, scope=scope), offers))
        peer.run()
        assert Cancel(number, CancelReason.NOT_WANTED) in peer.messages()
        peer.engine.data_to_send(backlog)
        rest = peer.sent()
        assert list(packets(rest)) == [RequestCancelled(number)]


def test_a_request_that_is_covered_goes_on() -> None:
    """A narrower scope that still names the log changes nothing for it."""
    peer = engine_with(None, proactive=False)
    number = peer.open_request(1, starting_hash=None)
    peer.host.todo.append(
        InterestsChanged(
            Interests(
                logs=frozenset((LOG,)), scope=Scope(frozenset((LOG,)), WriteScope.FOLLOWED, PEER)
            ),
            (LOG,),
        )
    )
    peer.run()
    assert not [message for message in peer.messages() if isinstance(message, Cancel)]
    assert b"marker 20" in peer.sent()
    assert peer.engine._table.get(number) is not None


def test_a_proof_is_told_to_who_may_read_and_to_nobody_else() -> None:
    for scope, told in ((None, True), (ASKED_FOR, False), (NOTHING, False)):
        peer = engine_with(scope, proactive=False, state="forked")
        peer.control(Grant(50))
        peer.wait(5.0)
        said = peer.messages()
        assert any(isinstance(m, Propose) and m.start == 10 for m in said) is told
        proofs = [m for m in said if isinstance(m, Cancel) and m.entries]
        assert bool(proofs) is told
        assert all(decode_entry(each).seq == 10 for m in proofs for each in m.entries)


def other_version(seq: int) -> bytes:
    """Another entry of the author's with the number of a held one."""
    common = {n: HELD[n] for n in range(1, seq)}
    return AUTHOR.entry(common, 0, b"another")[1].encoded


@pytest.mark.parametrize("scope", [None, NOTHING])
def test_where_histories_part_is_not_looked_for_any_more(scope: Scope | None) -> None:
    """The store is being asked what to name in the next question when the scope changes."""
    peer = engine_with(None, proactive=True)
    peer.control(Grant(50))
    asked = [message for message in peer.messages() if isinstance(message, Propose)]
    differs = Cancel(asked[0].request, CancelReason.HASH_MISMATCH, entries=(other_version(COUNT),))
    peer.engine.receive_control(encode_control(differs))
    interests = Interests(logs=frozenset((LOG,)), scope=scope)
    peer.engine.handle(InterestsChanged(interests, (LOG,)))
    searched = [message for message in peer.messages() if isinstance(message, Propose)]
    assert bool(searched) is (scope is None)


@pytest.mark.parametrize("scope", [None, NOTHING])
def test_a_log_in_line_is_not_asked_of_any_more(scope: Scope | None) -> None:
    """It waits for credit when the scope changes; a sync would ask for its newest entry first."""
    peer = Impolite(dict(HELD), config=replace(SMALL, policy="sync"))
    peer.run()
    allow(peer, scope)
    peer.run()
    peer.control(Grant(50))
    asked = [message for message in peer.messages() if isinstance(message, Propose)]
    assert bool(asked) is (scope is None)


def test_nothing_is_offered_while_a_log_rests() -> None:
    """The other side had no resources for what it was asked, and then asks for all of it."""
    peer = engine_with(ASKED_FOR, proactive=True)
    peer.control(Grant(50))
    asked = [message for message in peer.messages() if isinstance(message, Propose)]
    peer.control(Cancel(asked[0].request, CancelReason.NO_RESOURCES))
    peer.control(propose(peer.number, 1))
    peer.wait(0.5)
    proposed = [message for message in peer.messages() if isinstance(message, Propose)]
    assert not [message for message in proposed if message.start <= COUNT]
