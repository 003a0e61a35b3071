"""`forget`: a log, or an author's logs, and all that is remembered only of them."""

from typing import TYPE_CHECKING

from local_api import size
from peer import counted, json_number, log_fields

from .errors import DONE
from .naming import follow_target
from .opening import opened_store
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal


def _arguments(parser: Parser) -> None:
    parser.add_argument(
        "target",
        metavar="TARGET",
        type=follow_target,
        help="a log, or an author and all of his logs; neither own nor followed",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        own_variable=True,
        help="say what would be removed, and remove nothing",
    )


def _forget(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args, readonly=args.dry_run) as store:
        done = store.plan_forgetting(args.target) if args.dry_run else store.forget(args.target)
        has_proof = {proof.key for proof in store.forks()}
        for each in done:
            entries = counted(each.entries, "entry")
            what = f"{entries}, {counted(each.payloads, 'payload')}, {size(each.bytes)}"
            verb = "would be forgotten" if args.dry_run else "forgotten"
            kept = "; the proof that it is forked stays" if each.key in has_proof else ""
            terminal.result(
                log_fields(each.key)
                | {
                    "entries": json_number(each.entries),
                    "payloads": json_number(each.payloads),
                    "bytes": json_number(each.bytes),
                    "dry_run": args.dry_run,
                },
                f"{each.key}  {what} {verb}{kept}",
            )
    if not args.dry_run:
        terminal.note("`compact` gives the room to the disk")
    return DONE


COMMANDS = {"forget": Definition(arguments=_arguments, run=_forget)}
