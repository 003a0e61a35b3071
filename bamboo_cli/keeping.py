"""`keep` and `tidy`: which payloads are kept, and deleting the others."""

from typing import TYPE_CHECKING

from local_api import byte_size, size, span, target_fields, target_name, u64
from logstore import ALL, Follow, KeepRule, NodeLock, Store, Tidied
from peer import counted, json_number, log_fields, seq_span
from wire import LogKey

from .errors import DONE, Problem, WrongUsage
from .naming import follow_target
from .opening import opened_store
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

    from .terminal import Terminal

_LARGEST_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def _target_argument(parser: Parser) -> None:
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        type=follow_target,
        help="a log, or an author and all of his logs",
    )


def _keep_arguments(parser: Parser) -> None:
    _target_argument(parser)
    parser.add_argument("--all", action="store_true", own_variable=True, help="all logs of others")
    parser.add_argument("--last", metavar="N", type=u64, help="those of the N newest of each log")
    parser.add_argument(
        "--age", metavar="SPAN", type=span, help="those that came no longer ago (90s, 10m, 2h, 7d)"
    )
    parser.add_argument(
        "--bytes",
        metavar="BYTES",
        type=byte_size,
        help="of all logs under the rule the newest, in all no more than this (10k, 4M, 1G)",
    )
    parser.add_argument("--everything", action="store_true", help="the rule ends")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        own_variable=True,
        help="say what would be deleted, and change nothing",
    )


def _rule(args: "Namespace") -> KeepRule | None:
    limits = (args.last, args.age, args.bytes)
    has_limit = any(limit is not None for limit in limits)
    if args.everything == has_limit:
        wants = "not both" if has_limit else "or --everything, which ends a rule"
        raise WrongUsage(f"keep: say --last, --age or --bytes, {wants}")
    return KeepRule(*limits) if has_limit else None


def _keep(args: "Namespace", terminal: "Terminal") -> int:
    if args.all and args.target is not None:
        raise WrongUsage("keep: name a TARGET, or say --all")
    if not args.all and args.target is None:
        if args.everything or args.dry_run or (args.last, args.age, args.bytes) != (None,) * 3:
            raise WrongUsage("keep: name a LOG or an AUTHOR, or say --all")
        _list(args, terminal)
        return DONE
    rule = _rule(args)
    with opened_store(args, readonly=args.dry_run) as store:
        target: Follow = ALL if args.all else args.target
        rules = store.keeps()
        had = rules.pop(target, None)
        if rule is None and had is None:
            raise Problem(f"{target_name(target)}: there is no rule for it (`keep` lists them)")
        if args.dry_run:
            if rule is not None:
                rules[target] = rule
                _warn_of_own(store, target, terminal)
            _print(store.plan_tidying(rules=rules), terminal, dry_run=True)
            return DONE
        store.keep(target, rule)
        _say(store, target, had, rule, terminal)
    return DONE


def _say(
    store: Store,
    target: Follow,
    had: KeepRule | None,
    rule: KeepRule | None,
    terminal: "Terminal",
) -> None:
    name = target_name(target)
    if rule is None:
        terminal.note(f"{name}: no rule from now on; what it has deleted `fetch` brings back")
        return
    before = "" if had in (None, rule) else f", no longer {described(had)}"
    terminal.note(f"{name}: {described(rule)} from now on{before}")
    _warn_of_own(store, target, terminal)
    if store.path is not None and not NodeLock.is_held(store.path):
        terminal.note("no node serves this store: `tidy` deletes what is not to be kept")


def _warn_of_own(store: Store, target: Follow, terminal: "Terminal") -> None:
    author = target.author if isinstance(target, LogKey) else target
    if author == store.author:
        terminal.note(
            f"warning: {target_name(target)} is your own: what nobody else holds of it, and the"
            " rule deletes, is gone"
        )


def _list(args: "Namespace", terminal: "Terminal") -> None:
    with opened_store(args, readonly=True) as store:
        for target, rule in store.keeps().items():
            terminal.result(
                target_fields(target)
                | {
                    "last": None if rule.last is None else json_number(rule.last),
                    "age_s": rule.age_s,
                    "bytes": None if rule.bytes is None else json_number(rule.bytes),
                },
                f"{target_name(target)}  {described(rule)}",
            )


def described(rule: KeepRule) -> str:
    """What a rule says, for people."""
    limits = []
    if rule.last is not None:
        limits.append(f"the last {rule.last:,}")
    if rule.age_s is not None:
        limits.append(f"no older than {_written(rule.age_s)}")
    if rule.bytes is not None:
        limits.append(f"up to {size(rule.bytes)} in all")
    return f"payloads: {', '.join(limits) or 'all, since a rule of this store is damaged'}"


def _written(seconds: float) -> str:
    for unit_s, unit in _LARGEST_UNITS:
        if seconds and seconds % unit_s == 0:
            return f"{seconds / unit_s:.0f}{unit}"
    return f"{seconds:g}s"


def _tidy_arguments(parser: Parser) -> None:
    _target_argument(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        own_variable=True,
        help="say what would be deleted, and delete nothing",
    )


def _tidy(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args, readonly=args.dry_run) as store:
        done = store.plan_tidying(args.target) if args.dry_run else store.tidy(args.target)
        _print(done, terminal, dry_run=args.dry_run)
    return DONE


def _print(several: "Iterable[Tidied]", terminal: "Terminal", *, dry_run: bool) -> None:
    done = "would be deleted" if dry_run else "deleted"
    found_any = False
    for each in several:
        found_any = True
        what = f"{counted(each.count, 'payload')}, {size(each.bytes)}"
        entries = "entry" if each.oldest_seq == each.newest_seq else "entries"
        where = f"{entries} {seq_span(each.oldest_seq, each.newest_seq)}"
        terminal.result(
            log_fields(each.key)
            | {
                "count": each.count,
                "bytes": json_number(each.bytes),
                "oldest_seq": json_number(each.oldest_seq),
                "newest_seq": json_number(each.newest_seq),
                "rule": each.rule,
                "dry_run": dry_run,
            },
            f"{each.key}  {what} of {where} {done} (rule: {each.rule})",
        )
    # `tidy` itself runs by the clock, where no news is good news; who tries a rule asks.
    if dry_run and not found_any:
        terminal.note("nothing would be deleted")


COMMANDS = {
    "keep": Definition(arguments=_keep_arguments, run=_keep),
    "tidy": Definition(arguments=_tidy_arguments, run=_tidy),
}
