"""`ockam streams`, `lag`, `trim`, `rewind` and `end`: on a store, also beside a running hub."""

from contextlib import contextmanager
from typing import TYPE_CHECKING

from local_api import rfc3339, u64
from logstore import LogState, Store
from peer import counted, json_number, log_fields

from .asking import Asker
from .errors import DONE, Problem, WrongUsage
from .ockam_serving import ledger_id
from .opening import opened_store

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from gateways.ockam import Book, Catalog, Stream

    from .terminal import Terminal


@contextmanager
def _opened(args: "Namespace") -> "Iterator[tuple[Store, Catalog, Book]]":
    from gateways.ockam import FIRST_LOG, Book, Catalog, Side

    with opened_store(args) as store:
        side = Side(store)
        try:
            first_log = FIRST_LOG if args.first_log is None else args.first_log
            catalog = Catalog(store, side, of=args.of or (), first_log=first_log)
            catalog.refresh()
            yield store, catalog, Book(catalog, args.share or ())
        finally:
            side.close()


def _name(args: "Namespace") -> str | None:
    return args.words[0] if args.words else None


def run_streams(args: "Namespace", terminal: "Terminal") -> int:
    from gateways.ockam import next_index

    with _opened(args) as (store, catalog, _):
        for author in catalog.side.authors():
            for stream in catalog.side.streams(author, _name(args)):
                info = store.log(stream.key)
                if info is None:
                    continue
                held = info.payloads - (info.end_seq is not None and info.end_seq == info.newest)
                fields: dict[str, object] = {
                    "stream": stream.name,
                    "partition": stream.partition,
                    **log_fields(stream.key),
                    "address": stream.address,
                    "own": author == store.author,
                    "earliest": json_number(catalog.side.earliest(stream.key)),
                    "next": json_number(next_index(info)),
                    "messages": max(0, held - 1),
                    "bytes": json_number(info.bytes),
                    "state": str(info.state),
                    "newest_at": None if info.newest_at is None else rfc3339(info.newest_at),
                }
                terminal.result(fields, _stream_line(fields, is_live=info.state is LogState.LIVE))
    return DONE


def _stream_line(fields: dict[str, object], *, is_live: bool) -> str:
    whose = "" if fields["own"] else f"  of {str(fields['author'])[:8]}"
    state = "" if is_live else f"  {fields['state']}"
    messages = counted(int(str(fields["messages"])), "message")
    return (
        f"{fields['stream']}/{fields['partition']}  {fields['address']}  {messages}"
        f"  {fields['earliest']}..{fields['next']}{state}{whose}"
    )


def run_lag(args: "Namespace", terminal: "Terminal") -> int:
    wanted = _name(args)
    with _opened(args) as (_, catalog, book):
        for author in catalog.side.position_authors():
            for saved in book.positions(author):
                subject, index = saved.subject, saved.place.index
                if wanted not in (None, subject.name):
                    continue
                stream = catalog.side.stream(author, subject.name, subject.partition)
                next_ = None if stream is None else catalog.next_index(stream)
                lag = None if next_ is None else max(0, next_ - index)
                fields: dict[str, object] = {
                    "stream": subject.name,
                    "partition": subject.partition,
                    "author": author.hex(),
                    "client": subject.client,
                    "index": json_number(index),
                    "next": None if next_ is None else json_number(next_),
                    "lag": None if lag is None else json_number(lag),
                    "saved_at": rfc3339(saved.saved_at),
                    "saved_by": saved.saved_by.hex(),
                }
                where = f"{subject.name}/{subject.partition}  {subject.client}  at {index}"
                behind = " (no such stream)" if lag is None else f" of {next_}, {lag} behind"
                terminal.result(fields, where + behind)
    return DONE


def run_trim(args: "Namespace", terminal: "Terminal") -> int:
    from gateways.ockam import Keeper

    with _opened(args) as (store, catalog, book):
        stream = _own(catalog, args.words[0], args.partition or 0)
        _ask_of_ledger(store, catalog, args, terminal)
        keeper: Keeper = Keeper(catalog, book)
        trimmed = keeper.trim(stream, args.before)
    fields = {
        "stream": stream.name,
        "partition": stream.partition,
        "earliest": json_number(trimmed.earliest),
        "count": trimmed.dropped.count,
        "bytes": json_number(trimmed.dropped.bytes),
    }
    count = counted(trimmed.dropped.count, "message")
    terminal.result(
        fields, f"{stream.name}/{stream.partition} begins at {trimmed.earliest}: {count} dropped"
    )
    return DONE


def run_rewind(args: "Namespace", terminal: "Terminal") -> int:
    from gateways.ockam.ledger import Subject

    try:
        index = u64(args.to)
    except ValueError as error:
        raise WrongUsage(f"ockam rewind --to: {error}") from None
    if len(args.of or ()) > 1:
        raise WrongUsage("ockam rewind: --of names one author")
    name, partition = args.words[0], args.partition or 0
    _check_names(name, args.client)
    with _opened(args) as (store, catalog, book):
        author = args.of[0] if args.of else store.author
        _ask_of_ledger(store, catalog, args, terminal)
        record = book.rewind(Subject(author, name, partition, args.client), index)
    fields = {
        "stream": name,
        "partition": partition,
        "author": author.hex(),
        "client": args.client,
        "epoch": json_number(record.epoch),
        "index": json_number(record.index),
    }
    terminal.result(fields, f"{name}/{partition}  {args.client}  at {record.index}")
    return DONE


def _check_names(*names: str) -> None:
    from gateways.ockam.declared import is_name

    for name in names:
        if not is_name(name):
            raise WrongUsage(f"{name[:40]!r}: a name has 1 to 255 bytes")


def run_end(args: "Namespace", terminal: "Terminal") -> int:
    name = args.words[0]
    with _opened(args) as (store, catalog, _):
        if args.partition is None:
            streams = catalog.side.streams(store.author, name)
            if not streams:
                raise _no_stream(name)
        else:
            streams = [_own(catalog, name, args.partition)]
        # Those that have ended before are left out; where all have, that is what is said.
        streams = [each for each in streams if not _has_ended(store, each)] or streams
        Asker(store, [each.key.log_id for each in streams], terminal, always=None).ask()
        for stream, next_ in zip(streams, catalog.end(streams), strict=True):
            fields = {
                "stream": stream.name,
                "partition": stream.partition,
                "next": json_number(next_),
            }
            terminal.result(fields, f"{stream.name}/{stream.partition} ended before {next_}")
    return DONE


def _has_ended(store: Store, stream: "Stream") -> bool:
    info = store.log(stream.key)
    return info is not None and info.end_seq is not None


def _ask_of_ledger(
    store: Store, catalog: "Catalog", args: "Namespace", terminal: "Terminal"
) -> None:
    """Asks peers whether this store has the newest of its ledger. Raises Problem."""
    log_id = ledger_id(store, catalog.side, args.first_log)
    Asker(store, [log_id], terminal, always=None).ask()


def _own(catalog: "Catalog", name: str, partition: int) -> "Stream":
    found = catalog.side.stream(catalog.own, name, partition)
    if found is None:
        raise _no_stream(f"{name}/{partition}")
    return found


def _no_stream(name: str) -> Problem:
    return Problem(f"{name}: this store has no such stream of its own (`ockam streams` lists them)")
