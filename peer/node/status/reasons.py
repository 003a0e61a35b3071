"""Why a log is not complete here, or a peer brings nothing: sentences, each with what to do.

What is held is read from the store, what peers have said from the state of the node
(`overview.Overview.state`), which may be that of another process.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from logstore import (
    FULL,
    LogInfo,
    LogState,
    PolicyKind,
    Store,
    Subscription,
    is_in_force,
    subscription_of,
    wall_clock_us,
    written_scope,
)
from peer import counted, log_fields, seq_span
from peer.node.links.records import ConnectionState
from wire import U64_MAX, CancelReason, LogKey

from .arriving import part_of_payload, parts_of
from .terms import sentences

State = Mapping[str, Any]

PEERS_TOLD = 5
"""Peers that say the same of a log are named up to here."""


class Reason(Struct, frozen=True):
    """A sentence. `wrong`: it is a reason why something is not as it should be."""

    text: str
    wrong: bool = False
    advice: str | None = None
    """What to do, where there is something to do."""

    def __str__(self) -> str:
        return self.text if self.advice is None else f"{self.text}: {self.advice}"


class Lack(Struct, frozen=True):
    """What is wanted of a log and not held, as far as what is held tells."""

    entries: bool
    """Whether entries are missing below the newest one."""
    payloads: bool


def lack_of(store: Store, log: LogKey, subscription: Subscription, newest: int = 0) -> Lack:
    """What is missing of a log that is wanted like this. `newest`: an entry known to exist."""
    info = store.log(log)
    held = 0 if info is None else info.newest
    first, last = subscription.bounds(max(newest, held))
    if info is None:
        return Lack(entries=first <= last, payloads=False)
    short = store.shortfall(log, subscription)
    beyond = held < min(last, info.servable)
    return Lack(beyond or short.entries > 0, short.payloads > 0)


def why_log(store: Store, state: State | None, log: LogKey) -> list[Reason]:
    """Why a log is as it is. `state`: of the node that serves the store, None if none does."""
    info = store.log(log)
    own = log.author == store.author
    subscription = subscription_of(store.subscriptions(), log)
    fetches = store.wants().get(log, [])
    found = [*_of_store(info, log, own=own), *_of_parts(store, state, log)]
    found += _of_fetches(state, log, fetches)
    followed = own or subscription is not None
    if not followed:
        found.append(_not_followed(log, fetches))
        if not fetches:
            return found
    over = info is not None and info.state is not LogState.LIVE and not info.missing_payloads
    if over and info is not None and info.height >= info.servable and not fetches:
        return found
    lack = lack_of(store, log, subscription or FULL)
    if info is not None and info.missing_payloads and followed:
        found.append(_of_payloads(info, subscription or FULL, wanted=lack.payloads))
    if state is None:
        text = "no node serves this store, so nothing moves"
        return [*found, Reason(text, wrong=True, advice="start one with `bamboo-peer serve`")]
    lacking = not own and (lack.entries or lack.payloads or info is None)
    lacking = lacking or bool(fetches)
    return [*found, *_of_peers(store, state, log, info, own=own, lacking=lacking)]


def _of_store(info: LogInfo | None, log: LogKey, *, own: bool) -> Iterator[Reason]:
    """What is held, and what of that ends or breaks the log."""
    if info is None:
        yield Reason("nothing of it is held here", wrong=not own)
        return
    gap = "" if info.newest == info.height else f", with gaps up to entry {info.newest}"
    whose = "it is signed here" if own else "it is held"
    if info.entries:
        yield Reason(f"{whose} up to entry {info.height}{gap}")
    else:
        yield Reason(f"no entry of it is held, only the proof that it is {info.state}")
    if info.fork_seq is not None:
        yield Reason(
            f"its author signed entry {info.fork_seq} twice, so nothing from there on is valid",
            wrong=True,
            advice=f"`bamboo-peer forks show {log}` shows the proof; ask the author for a new log",
        )
    if info.invalid_seq is not None:
        yield Reason(
            f"the payload of entry {info.invalid_seq} has another size than its author signed, so"
            " nothing from there on is valid",
            wrong=True,
            advice="ask the author for a new log",
        )
    if info.end_seq is not None and info.state is LogState.ENDED:
        yield Reason(f"its author has ended it with entry {info.end_seq}")


def _of_parts(store: Store, state: State | None, log: LogKey) -> Iterator[Reason]:
    """Payloads of which a part is on disk, and which the node does not say that it is bringing."""
    coming = parts_of(state, log)
    waiting = [seq for seq in store.partial_payloads().get(log, ()) if seq not in coming]
    for seq in waiting[:PEERS_TOLD]:
        yield Reason(f"it is in the middle of {part_of_payload(store, state, log, seq)}")


def _of_fetches(
    state: State | None, log: LogKey, ranges: list[tuple[int, int]]
) -> Iterator[Reason]:
    """What is wanted once."""
    if not ranges:
        return
    text = ", ".join(seq_span(first, last) for first, last in ranges[:PEERS_TOLD])
    more = f" and {len(ranges) - PEERS_TOLD} ranges more" if len(ranges) > PEERS_TOLD else ""
    parts = parts_of(state, log)
    comes = any(first <= seq <= last for seq in parts for first, last in ranges)
    yield Reason(
        f"a `fetch` wants {text}{more}, and not all of it has come",
        wrong=True,
        advice=None
        if comes
        else "a peer has to hold it, payloads and all: `fetch --from HOST:PORT` asks one more, and"
        " `drop` of these entries takes it back",
    )


def _not_followed(log: LogKey, fetches: list[tuple[int, int]]) -> Reason:
    if fetches:
        return Reason("it is not followed, so nothing else of it is taken in")
    text = "it is not followed, so nothing new of it is taken in"
    return Reason(text, wrong=True, advice=f"`bamboo-peer follow {log}`")


def _of_payloads(info: LogInfo, subscription: Subscription, *, wanted: bool) -> Reason:
    count = info.missing_payloads
    lacking = "the payload of 1 held entry is"
    if count > 1:
        lacking = f"the payloads of {count} held entries are"
    if wanted:
        return Reason(f"{lacking} missing", wrong=True)
    causes = " and ".join(_left_out(subscription))
    return Reason(
        f"{lacking} not here{', since ' if causes else ''}{causes}",
        advice=f"`bamboo-peer fetch {info.key} RANGE` brings payloads all the same",
    )


def _left_out(subscription: Subscription) -> Iterator[str]:
    """Why payloads of held entries are not wanted."""
    if subscription.kind is not PolicyKind.FULL:
        yield f"it is followed as {subscription}"
    if subscription.kind is PolicyKind.METADATA:
        return
    smallest, largest = subscription.payload_limits
    if smallest:
        yield f"payloads below {smallest:,} bytes are left out (--min-payload)"
    if largest < subscription.max_bytes:
        yield f"payloads above {largest:,} bytes come only by `fetch` (--eager)"
    elif largest < U64_MAX:
        yield f"payloads above {largest:,} bytes are left out (--max-payload)"


def _of_peers(
    store: Store, state: State, log: LogKey, info: LogInfo | None, *, own: bool, lacking: bool
) -> Iterator[Reason]:
    """What the connected peers have said."""
    ready = [each for each in state.get("connections", ()) if each["state"] == "established"]
    if not ready:
        yield from list(_paused(store)) or _nobody(state, own=own)
        return
    told = _told(state, log)
    peers = [] if told is None else told["peers"]
    if told is None and len(state.get("logs", ())) < int(state.get("logs_in_trouble", 0)):
        yield Reason("the node has so many logs in trouble that it says nothing of this one")
        return
    height = 0 if info is None else info.height
    behind = 0 if told is None else int(told["behind"])
    ahead = [each for each in peers if behind and int(each["newest"]) > height]
    if ahead and told is not None:
        yield from _ahead(info, told, ahead, own=own)
    asked = ahead or [each for each in peers if int(each.get("arriving", 0))]
    yield from _fetched_from(store, state, log, asked or (peers if lacking else []))
    for each in peers:
        yield from _trouble_with(each)
    if lacking or ahead:
        yield from _without_credit(ready, {each["address"] for each in peers if each["active"]})
    if own or ahead or any(each["given_up"] for each in peers):
        return
    if lacking and not any(each["active"] for each in peers):
        yield Reason(
            f"none of the {len(ready)} connected peers offers what is missing"
            if len(ready) > 1
            else f"the only connected peer, {ready[0]['address']}, does not offer what is missing",
            wrong=True,
            advice="connect to one that holds it, with `serve --connect HOST:PORT`; who is"
            " connected is asked again, once a minute at least",
        )
    elif not lacking:
        yield Reason("no connected peer is known to hold more of it")


def _without_credit(ready: list[Mapping[str, Any]], active: set[str]) -> Iterator[Reason]:
    """Peers that take no request for another log. `active`: those that have one for this log."""
    for each in ready:
        waits = (each.get("terms") or {}).get("waits_for", ())
        if "requests" in waits and each["address"] not in active:
            yield Reason(
                f"{each['address']} takes no more requests, and each log needs one",
                wrong=True,
                advice="the logs take turns, some seconds each; its operator allows more, as with"
                " `serve --max-requests`",
            )


def _told(state: State, log: LogKey) -> Mapping[str, Any] | None:
    """What the state says of a log, if it is one of those in trouble."""
    name = log_fields(log)
    for each in state.get("logs", ()):
        if all(each.get(field) == value for field, value in name.items()):
            found: Mapping[str, Any] = each
            return found
    return None


def _paused(store: Store, peer_id: bytes | None = None) -> Iterator[Reason]:
    """That there is to be no connection for now, with anybody or with a peer."""
    pauses, now_us = store.pauses(), wall_clock_us()
    if is_in_force(pauses, None, now_us):
        advice = "`bamboo-peer resume` ends that"
        yield Reason("all connections are paused", wrong=True, advice=advice)
    elif peer_id is not None and is_in_force(pauses, peer_id, now_us):
        text = peer_id.hex()
        advice = f"`bamboo-peer resume {text}` ends that"
        yield Reason(f"{text} is paused", wrong=True, advice=advice)


def _nobody(state: State, *, own: bool) -> Iterator[Reason]:
    called = [each for each in state.get("connections", ()) if each["direction"] == "outgoing"]
    if not called:
        text = "nobody is connected, and the node calls nobody"
        advice = "name a peer with `serve --connect HOST:PORT`"
        yield Reason(text, wrong=not own, advice=advice)
        return
    yield Reason("nobody is connected", wrong=not own)
    for each in called[:PEERS_TOLD]:
        yield from _called(each)


def _ahead(
    info: LogInfo | None, told: Mapping[str, Any], ahead: list[Mapping[str, Any]], *, own: bool
) -> Iterator[Reason]:
    best = max(ahead, key=lambda each: int(each["newest"]))
    if info is not None and int(best["newest"]) <= info.newest and not own:
        yield Reason(
            f"{counted(info.newest - info.entries, 'entry')} below entry {info.newest} missing:"
            f" {best['address']} holds that one too, perhaps with the same gaps",
            wrong=True,
            advice="if nothing comes, connect to one without, with `serve --connect HOST:PORT`",
        )
        return
    behind = int(told["behind"])
    text = (
        f"it is behind by {counted(behind, 'entry')}:"
        f" {best['address']} holds up to entry {best['newest']}"
    )
    if own:
        yield Reason(
            f"{text}, which this store signed and no longer has",
            wrong=True,
            advice="append nothing before they are here again, or the log forks",
        )
    else:
        yield Reason(text, wrong=True)


def _fetched_from(
    store: Store, state: State, log: LogKey, peers: list[Mapping[str, Any]]
) -> Iterator[Reason]:
    source = next((each for each in peers if each.get("fetching")), None)
    seq = 0 if source is None else int(source.get("arriving", 0))
    if source is not None and source.get("last_progress") is not None:
        inside = f", in the middle of {part_of_payload(store, state, log, seq)}" if seq else ""
        yield Reason(
            f"it is being fetched from {source['address']}; something came last at"
            f" {source['last_progress']}{inside}"
        )
    elif source is not None:
        yield Reason(f"it is asked of {source['address']}, from where nothing of it has come yet")
    others = [each for each in parts_of(state, log).items() if each[0] != seq]
    for number, part in others[:PEERS_TOLD]:
        yield Reason(f"the payload of entry {number} comes from {part.address} ({part})")


_REFUSALS: Mapping[int, tuple[str, str | None]] = {
    CancelReason.NOT_WANTED: (
        "does not give or take it",
        "its operator decides what it follows and serves",
    ),
    CancelReason.NO_RESOURCES: (
        "has nothing of it, or no resources for it now",
        "the node asks again by itself, after a minute at most",
    ),
    CancelReason.PAYLOAD_MANDATORY: ("lacks a payload that it is to send", None),
    CancelReason.HASH_MISMATCH: (
        "holds other entries of it than are held here",
        "see whether `bamboo-peer forks` names it; if not, `bamboo-peer verify` checks this side",
    ),
    CancelReason.FORKED: ("says that it is forked", "see `bamboo-peer forks`"),
}


def _trouble_with(each: Mapping[str, Any]) -> Iterator[Reason]:
    """What went wrong with one peer."""
    refused, given_up = each.get("refused"), each.get("given_up")
    if refused is not None and not each.get("active"):
        words, advice = _REFUSALS.get(int(refused["reason"]), ("refused it", None))
        yield Reason(
            f"{each['address']} {words} (cancel {refused['reason']} at {refused['at']})",
            wrong=True,
            advice=advice,
        )
    if given_up is not None:
        yield Reason(
            f"what {each['address']} sent could not be kept at {given_up['at']}:"
            f" {given_up['detail']}",
            wrong=True,
            advice="the node asks again by itself, after a minute at most",
        )


def why_peer(store: Store, state: State | None, peer: str | bytes) -> list[Reason]:
    """How it stands with a peer, by `HOST:PORT`, or a host, as connections name it, or by its id.

    `store`, `state`: as for `why_log`.
    """
    found = [] if isinstance(peer, str) else [_decision(store, peer)]
    found += _paused(store, None if isinstance(peer, str) else peer)
    if state is None:
        text = "no node serves this store, so there are no connections"
        return [*found, Reason(text, wrong=True, advice="start one with `bamboo-peer serve`")]
    decided = len(found)
    state = _less_outdated(store, state)
    for each in state.get("connections", ()):
        if _is_with(each, peer):
            found += _connection(each, state)
            found += _logs_with(state, each["address"])
            found += _terms(each, state)
    endings = [each for each in state.get("ended", ()) if _is_with(each, peer)]
    for each in endings[-PEERS_TOLD:]:
        found += _ending(each)
    if len(found) == decided:
        name = peer if isinstance(peer, str) else f"{peer.hex()}@HOST:PORT"
        text = f"the node has had no connection with {name} and does not call it"
        found.append(Reason(text, wrong=True, advice=f"call it with `serve --connect {name}`"))
    return found


def _decision(store: Store, peer_id: bytes) -> Reason:
    """What the table of peers says of one."""
    text = peer_id.hex()
    if peer_id == store.author:
        return Reason(f"{text} is this node's own id, which is always let in")
    found = [each for each in store.peers.known() if each.peer_id == peer_id]
    advice = f"`bamboo-peer peer allow {text}` lets it in"
    if not found:
        return Reason(f"{text} has never knocked, and is not allowed", wrong=True, advice=advice)
    [known] = found
    if known.rule is not None and known.rule.allowed:
        read = written_scope(known.rule.read)
        reads = read if isinstance(read, str) else ", ".join(read)
        return Reason(f"{text} is allowed; it may read: {reads}; it may write: {known.rule.write}")
    what = "is blocked" if known.rule is not None else "waits until somebody allows it"
    return Reason(f"{text} {what}", wrong=True, advice=advice)


def _less_outdated(store: Store, state: State) -> State:
    """A state without what it says of logs of which more is held by now.

    It is written once a second at most, behind what is stored: else a log could be whole, and its
    giver at once be said to hold more of it.
    """
    logs = state.get("logs", ())
    left = [each for each in logs if not _is_outdated(store, each)]
    troubles = int(state.get("logs_in_trouble", 0)) - len(logs) + len(left)
    return {**state, "logs": left, "logs_in_trouble": troubles}


def _is_outdated(store: Store, told: Mapping[str, Any]) -> bool:
    info = store.log(LogKey.parse(f"{told['author']}/{told['log_id']}"))
    return info is not None and (info.height, info.newest) > (
        int(told["height"]),
        int(told["newest"]),
    )


def _terms(each: Mapping[str, Any], state: State) -> Iterator[Reason]:
    """What is in force on a connection, and what it waits for."""
    if each.get("terms") is not None:
        for text, advice in sentences(each["terms"], state):
            yield Reason(text, advice=advice)


def _is_with(each: Mapping[str, Any], peer: str | bytes) -> bool:
    """Whether a connection is, or was, with a peer."""
    if isinstance(peer, bytes):
        return each.get("peer_id") == peer.hex()
    return _is_at(each["address"], peer)


def _is_at(known: str, asked: str) -> bool:
    host = known.rpartition(":")[0]
    return asked in {known, host, host.strip("[]")}


def _called(each: Mapping[str, Any]) -> Iterator[Reason]:
    """A peer that is called and not connected."""
    name = each["address"]
    if each["state"] == ConnectionState.PAUSED:
        yield Reason(f"{name} is paused", wrong=True, advice="`bamboo-peer resume PEER` ends that")
        return
    if each["last_error"] is None:
        yield Reason(f"{name} is being called", wrong=True, advice="wait some seconds")
        return
    reason = str(each["last_error"]).removeprefix(f"{name}: ")
    # On loopback, where the rule is another one, the error says itself what to do (doors/tls.py).
    reason, on_loopback, remedy = reason.partition("; on loopback ")
    attempts = int(each["attempts"])
    tries = f" ({attempts} attempt{'' if attempts == 1 else 's'})" if attempts else ""
    again = f", the next attempt is at {each['retry_at']}" if each.get("retry_at") else ""
    yield Reason(
        f"{name} cannot be reached: {reason}{tries}{again}",
        wrong=True,
        advice=remedy if on_loopback else _advice_for(reason),
    )


def _advice_for(reason: str) -> str:
    hints = {
        "has not allowed this node": "who runs it has to `peer allow` what `identity` says here",
        "whom this node has not allowed": "`bamboo-peer peer allow` lets it in",
        "somebody may sit between": "ask who runs it, on another way, what `identity` says there",
        "perhaps your certificate was refused": "ask there whether this node is blocked",
        "wants TLS": "call it with tls=yes, or by its id: ID@HOST:PORT",
        "does not speak TLS": "see whether it was started with --insecure; then tls=no calls it",
        "refused": "see whether a node listens there, at this port",
        "no answer": "see whether the host is up and no firewall is between",
        "not a bamboo peer": "the port belongs to another program; name another",
        "Name or service": "see whether the name is written correctly",
        "can have this name": "see whether the name is written correctly",
        "point2point": "its software breaks the protocol; `serve --trace FILE` shows how",
    }
    for part, hint in hints.items():
        if part in reason:
            return hint
    return "the node calls again by itself"


def _connection(each: Mapping[str, Any], state: State) -> Iterator[Reason]:
    name, phase = each["address"], each["state"]
    if phase in {"waiting", "paused", "connecting"}:
        yield from _called(each)
    elif phase == "setup":
        yield Reason(
            f"{name} is connected since {each['since']} and has not sent its setup yet",
            wrong=True,
            advice="wait 10 s; then it is dropped, and is no bamboo peer",
        )
    else:
        received, sent = int(each["entries_received"]), int(each["entries_sent"])
        came, went = (int(each.get(f"payload_bytes_{way}", 0)) for way in ("received", "sent"))
        yield Reason(
            f"{name} is connected ({each['direction']}) since {each['since']};"
            f" {counted(received, 'entry')} and {came:,} payload bytes came,"
            f" {sent} and {went:,} went there"
        )
        if each.get("not_kept") is not None:
            text = f"not all that came could be kept: {each['not_kept']}"
            yield Reason(text, wrong=True, advice="the node asks for it again by itself")
        if each.get("not_given") is not None:
            text = f"not all that it asked for could be read: {each['not_given']}"
            yield Reason(text, wrong=True, advice="`bamboo-peer verify` finds all that is damaged")
        logs = int(each.get("logs", 0))
        moved = received or sent or came or went
        if logs:
            yield Reason(f"both sides keep {counted(logs, 'log')} in step")
        elif moved or not int(state.get("logs_in_trouble", 0)):
            yield Reason("no request is open: nothing is left to do of what both sides follow")
        else:
            yield Reason(
                "no log is followed by both sides",
                wrong=True,
                advice="see `bamboo-peer follows` here, and what the other side follows and holds",
            )


def _logs_with(state: State, address: str) -> Iterator[Reason]:
    """Logs that this peer holds more of, refused, or sent in vain."""
    told = 0
    for log in state.get("logs", ()):
        for each in log["peers"]:
            if each["address"] != address or told >= PEERS_TOLD:
                continue
            name = f"{log['author']}/{log['log_id']}"
            for reason in _trouble_with(each):
                told += 1
                yield Reason(f"of {name}: {reason.text}", wrong=True, advice=reason.advice)
            more = min(int(each["newest"]) - int(log["height"]), int(log["behind"]))
            if more > 0:
                told += 1
                text = f"of {name} it holds {counted(more, 'entry')} more than we"
                yield Reason(text, wrong=True, advice=f"see `bamboo-peer why {name}`")


_TROUBLES: Final = frozenset(
    ("timeout", "internal error", "not a peer", "storage", "denied", "blocked", "wants tls")
)


def _ending(each: Mapping[str, Any]) -> Iterator[Reason]:
    name, kind = each["address"], each["kind"]
    text = f"a connection with {name} ended at {each['at']}: {each['reason']}"
    if kind == "violation":
        yield Reason(
            f"{name} broke a rule of the protocol at {each['at']}: {each['reason']}",
            wrong=True,
            advice="`serve --trace FILE` shows what it sends; its software needs an update",
        )
    elif kind == "closed":
        yield Reason(text)
    else:
        yield Reason(text, wrong=kind in _TROUBLES)
