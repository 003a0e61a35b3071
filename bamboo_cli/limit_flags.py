"""What a node may spend on others: `--max-rate`, `--max-rate-per-peer` and `--limit KEY=VALUE`.

The names of limits, and what they are about, are peer/node/links/limits.py's.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from local_api import byte_size

from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from peer.node import Limit, Limits


def limit_arguments(parser: Parser) -> None:
    """The flags."""
    parser.add_argument(
        "--max-rate",
        metavar="BYTES",
        type=_rate,
        help="a second, that all connections together send, and as many that they receive, like"
        " 500k or 2M (default: no limit)",
    )
    parser.add_argument(
        "--max-rate-per-peer",
        metavar="BYTES",
        type=_rate,
        help="the same for each connection by itself (default: no limit)",
    )
    parser.add_argument(
        "--limit",
        metavar="KEY=VALUE",
        action="append",
        type=limit,
        default=[],
        merges=True,
        help="sets a limit, like author-bytes=8M; docs/limits.md has them all; repeatable",
    )


def limits(args: "Namespace") -> "Limits":
    """What the flags make of a node's limits."""
    from peer.node import Limits

    rates = Limits(bytes_per_s_max=args.max_rate, peer_bytes_per_s_max=args.max_rate_per_peer)
    named: dict[str, Any] = dict(args.limit)
    return replace(rates, **named)


def limit(text: str) -> tuple[str, float | None]:
    """A field of `Limits` and its value, from `KEY=VALUE`. Raises ValueError."""
    from peer.node import limit_table  # loads Trio, which `--help` can do without

    key, equals, value = text.partition("=")
    known = {each.key: each for each in limit_table()}
    found = known.get(key.strip())
    if found is None:
        raise ValueError(f"{key[:40]!r} is no limit: there are {', '.join(known)}")
    if not equals:
        raise ValueError(f"{key} lacks its value: write {key}={_written(found)}")
    return found.field, _value(found, value.strip())


def _value(limit: "Limit", text: str) -> float | None:
    if text == "none" and limit.optional:
        return None
    if limit.unit == "bytes":
        return byte_size(text)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    is_whole = value == int(value) if abs(value) < 1e12 else False
    least = 1 if limit.key == "turn-packets" else 0
    is_one = math.isfinite(value) and value >= least
    if not is_one or not (is_whole or isinstance(limit.default, float)):
        raise ValueError(f"{text[:40]!r} is no {limit.key}, like {_written(limit)}")
    return value if isinstance(limit.default, float) else int(value)


def _written(limit: "Limit") -> str:
    """Its default, or else something that it could be."""
    if limit.unit == "bytes":
        return "8M"
    return f"{cast('float', limit.default):.0f}"


def _rate(text: str) -> int:
    """A number of bytes above 0. Raises ValueError."""
    rate = byte_size(text)
    if rate == 0:
        raise ValueError("a rate of 0 would move nothing; leave the flag out for no limit")
    return rate
