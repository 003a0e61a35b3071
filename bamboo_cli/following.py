"""`follow`, `unfollow` and `follows`: what is taken in. It is remembered in the store."""

from typing import TYPE_CHECKING

from local_api import target_fields, target_name
from logstore import ALL, FULL, Follow, Subscription

from .errors import DONE, Problem, WrongUsage
from .naming import follow_target
from .opening import opened_store
from .registry import Definition
from .settings import Parser
from .wanting import described, subscription, subscription_arguments, subscription_fields

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal


def _target_arguments(parser: Parser) -> None:
    parser.add_argument(
        "targets",
        metavar="TARGET",
        nargs="*",
        type=follow_target,
        help="AUTHOR/LOGID: this log; AUTHOR: this author's log 0, and every log that is offered",
    )
    parser.add_argument("--all", action="store_true", help="every log that anybody offers")


def _follow_arguments(parser: Parser) -> None:
    _target_arguments(parser)
    subscription_arguments(parser)


def _check_targets(args: "Namespace", command: str) -> None:
    if not args.targets and not args.all:
        raise WrongUsage(f"{command}: name a LOG or an AUTHOR, or say --all")


def _targets(args: "Namespace") -> list[Follow]:
    """What is meant, once the store is open and has said so."""
    return [*args.targets, *([ALL] if args.all else [])]


def _follow(args: "Namespace", terminal: "Terminal") -> int:
    _check_targets(args, "follow")
    wanted = subscription(args)
    with opened_store(args) as store:
        targets = _targets(args)
        before = store.subscriptions()
        for target in targets:
            store.follow(target, wanted)
            _note_policy(terminal, target, before.get(target), wanted)
    return DONE


def _note_policy(
    terminal: "Terminal", target: Follow, was: Subscription | None, wanted: Subscription | None
) -> None:
    """Says what may be a surprise: that less is wanted than before, or still no more."""
    if was is None or was == wanted:
        return
    name = target_name(target)
    if wanted is not None:
        terminal.note(f"{name}: {described(wanted)} from now on, no longer {described(was)}")
    elif was != FULL:
        terminal.note(f"{name}: {described(was)}, as before (`--policy full` takes in all of it)")


def _unfollow(args: "Namespace", _: "Terminal") -> int:
    _check_targets(args, "unfollow")
    with opened_store(args) as store:
        targets = _targets(args)
        followed = set(store.follows())
        for target in targets:
            if target not in followed:
                raise Problem(f"{target_name(target)} is not followed (`follows` lists what is)")
        for target in targets:
            store.unfollow(target)
    return DONE


def _no_arguments(_: Parser) -> None:
    """Nothing but the flags of every command."""


def _follows(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args, readonly=True) as store:
        for target, wanted in store.subscriptions().items():
            name = "all" if target is ALL else terminal.called(target)
            terminal.result(
                target_fields(target) | subscription_fields(wanted),
                name if wanted == FULL else f"{name}  {described(wanted)}",
            )
    return DONE


COMMANDS = {
    "follow": Definition(arguments=_follow_arguments, run=_follow),
    "unfollow": Definition(arguments=_target_arguments, run=_unfollow),
    "follows": Definition(arguments=_no_arguments, run=_follows),
}
