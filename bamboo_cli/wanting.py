"""The flags that say what of a log is wanted: beside `follow`, and beside `--follow`."""

from dataclasses import replace
from typing import TYPE_CHECKING

from local_api import byte_size, size
from logstore import FULL, Subscription
from wire import U64_MAX

from .errors import WrongUsage
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace


def subscription_arguments(parser: Parser) -> None:
    """`--policy`, `--min-payload`, `--max-payload` and `--eager`."""
    parser.add_argument(
        "--policy",
        metavar="POLICY",
        type=Subscription.parse,
        help="what is wanted: full, sparse, metadata, latest:N or range:A..B (at first: full)",
    )
    parser.add_argument(
        "--min-payload", metavar="BYTES", type=byte_size, help="skip smaller payloads"
    )
    parser.add_argument(
        "--max-payload", metavar="BYTES", type=byte_size, help="skip larger payloads (10k, 4M, 1G)"
    )
    parser.add_argument(
        "--eager", metavar="BYTES", type=byte_size, help="larger payloads only when `fetch` asks"
    )


def subscription(args: "Namespace") -> Subscription | None:
    """What the flags say, all of them together; None if none was given. Raises WrongUsage."""
    sizes = {
        name: value
        for name, value in (
            ("min_bytes", args.min_payload),
            ("max_bytes", args.max_payload),
            ("eager_bytes", args.eager),
        )
        if value is not None
    }
    policy: Subscription | None = args.policy
    if policy is None and not sizes:
        return None
    try:
        return replace(policy or FULL, **sizes)
    except ValueError as error:
        raise WrongUsage(str(error)) from None


def described(wanted: Subscription) -> str:
    """The policy, and the limits if there are any."""
    limits = []
    if wanted.min_bytes:
        limits.append(f"from {size(wanted.min_bytes)}")
    if wanted.max_bytes < U64_MAX:
        limits.append(f"up to {size(wanted.max_bytes)}")
    if wanted.eager_bytes is not None:
        limits.append(f"eagerly up to {size(wanted.eager_bytes)}")
    return f"{wanted}, payloads {', '.join(limits)}" if limits else str(wanted)


def subscription_fields(wanted: Subscription) -> dict[str, object]:
    """The same for JSON."""
    from peer import json_number

    return {
        "policy": str(wanted),
        "min_payload": json_number(wanted.min_bytes),
        "max_payload": None if wanted.max_bytes == U64_MAX else json_number(wanted.max_bytes),
        "eager": None if wanted.eager_bytes is None else json_number(wanted.eager_bytes),
    }
