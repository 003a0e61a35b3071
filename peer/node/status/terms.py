"""What is in force on a connection, and what it waits for: as fields of JSON, and as sentences.

The sentences are made of the fields, which may be those of another process.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from peer.node.links.records import Pace, Terms

Fields = Mapping[str, Any]


def terms_fields(terms: Terms | None) -> dict[str, object] | None:
    """The fields; None before there are terms."""
    if terms is None:
        return None
    allowed = terms.allowances
    return {
        "send_greedily": terms.send_greedily,
        "accept_greedily": terms.accept_greedily,
        "greedy_sending": terms.greedy_sending,
        "greedy_receiving": terms.greedy_receiving,
        "compression_window": terms.compression_window,
        "decompression_window": terms.decompression_window,
        "requests": terms.requests,
        "requests_left": allowed.proposals_left,
        "peer_requests": terms.peer_requests,
        "peer_requests_max": terms.peer_requests_max,
        "in_flight_received": allowed.incoming_bytes,
        "in_flight_received_max": allowed.incoming_bytes_max,
        "in_flight_sent": allowed.outgoing_bytes,
        "in_flight_sent_max": allowed.outgoing_bytes_max,
        "rate_sent": _rate(terms.sending),
        "rate_received": _rate(terms.receiving),
        "waits_for": list(_waits_for(terms)),
        "peer_waits_for": list(_peer_waits_for(terms)),
    }


def _rate(pace: Pace | None) -> int | None:
    return None if pace is None else pace.bytes_per_s


def _waits_for(terms: Terms) -> Iterator[str]:
    if terms.allowances.proposals_left == 0:
        yield "requests"
    if terms.allowances.outgoing_waits:
        yield "in flight"
    if terms.sending is not None and terms.sending.waits:
        yield "rate"


def _peer_waits_for(terms: Terms) -> Iterator[str]:
    if terms.peer_requests >= terms.peer_requests_max:
        yield "requests"
    if terms.allowances.incoming_bytes >= terms.allowances.incoming_bytes_max:
        yield "in flight"
    if terms.receiving is not None and terms.receiving.waits:
        yield "rate"


def greedy_words(fields: Fields) -> str:
    """Which directions pass payloads before they are verified, in few words."""
    ways = {
        (True, True): "greedy both ways",
        (True, False): "greedy out, safe in",
        (False, True): "safe out, greedy in",
        (False, False): "safe both ways",
    }
    return ways[bool(fields["greedy_sending"]), bool(fields["greedy_receiving"])]


def sentences(fields: Fields, state: Fields) -> Iterator[tuple[str, str | None]]:
    """About a connection: each a sentence, and what to do if there is something.

    `state`: of its node, with the rate limits.
    """
    yield f"{_greedy_sentence(fields)} ({greedy_words(fields)})", None
    yield (
        (
            f"open requests: {fields['requests']:,} of ours, and the peer takes"
            f" {fields['requests_left']:,} more now; {fields['peer_requests']:,} of the peer's, of"
            f" {fields['peer_requests_max']:,} that it may have (--max-requests)"
        ),
        None,
    )
    most = fields["in_flight_sent_max"]
    yield (
        (
            f"of the bytes that may be in flight, {fields['in_flight_received']:,} of"
            f" {fields['in_flight_received_max']:,} are taken by what came, and"
            f" {fields['in_flight_sent']:,} of {'any number' if most is None else f'{most:,}'} by"
            " what went there; they are given back in large steps, so that some stay taken at rest"
        ),
        None,
    )
    yield from _of_rates(fields, state)
    for way, side in (("waits_for", "this side waits"), ("peer_waits_for", "the peer waits")):
        for name in fields[way]:
            reason, advice = _WAITS[way, name]
            yield f"{side} {reason}", advice


_WAITS: Mapping[tuple[str, str], tuple[str, str | None]] = {
    ("waits_for", "requests"): (
        "with further requests until the peer takes some",
        "its operator allows more, as with `serve --max-requests`",
    ),
    ("waits_for", "in flight"): (
        "until the peer is done with some of what went there",
        None,
    ),
    ("waits_for", "rate"): ("for its turn to send", "raise the limit if that is too slow"),
    ("peer_waits_for", "requests"): (
        "with further requests until some of its own are over",
        "`serve --max-requests` allows more",
    ),
    ("peer_waits_for", "in flight"): (
        "until some of what it sent is stored here",
        "see whether the disk is slow; `serve --max-in-flight` allows more",
    ),
    ("peer_waits_for", "rate"): (
        "for its turn to be read from",
        "raise the limit if that is too slow",
    ),
}


def _greedy_sentence(fields: Fields) -> str:
    there = "payloads may go there before they are verified here"
    if not fields["greedy_sending"]:
        who = "the peer takes no others" if fields["send_greedily"] else "this side wants it so"
        there = f"payloads go there only once they are verified here, since {who}"
    here = "and may come before they are verified there"
    if not fields["greedy_receiving"]:
        who = "the peer sends no others" if fields["accept_greedily"] else "this side wants it so"
        here = f"and come only once they are verified there, since {who}"
    return f"{there}, {here}"


def _of_rates(fields: Fields, state: Fields) -> Iterator[tuple[str, str | None]]:
    """What holds connections back in the node, and how much of it this one takes."""
    limits = [
        f"{state[name]:,} for {whose} (--{name.replace('_', '-')})"
        for name, whose in (("max_rate_per_peer", "each"), ("max_rate", "all together"))
        if state.get(name) is not None
    ]
    if limits:
        yield (
            (
                f"in the last second {fields['rate_sent'] or 0:,} bytes went there and"
                f" {fields['rate_received'] or 0:,} came, of {' and '.join(limits)} each way"
            ),
            None,
        )
