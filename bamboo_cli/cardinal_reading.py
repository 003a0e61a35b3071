"""`cardinal tail`, `block`, `why`, `wait`, `status` and `follow`: what consumers see of streams."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from local_api import rfc3339
from logstore import ALL, LogState, Seldom, Store, StoreError
from peer import counted, json_number, log_fields
from wire import LogKey

from .cardinal_streams import (
    hash_of,
    header_fields,
    is_stream_name,
    named_streams,
    number_of,
    weight_of,
)
from .errors import DONE, FAILED, TIMED_OUT, Problem, WrongUsage
from .naming import resolved_log
from .opening import opened_store
from .terminal import Items, Pairs

if TYPE_CHECKING:
    from argparse import Namespace

    from gateways.cardinal import BadEvent, ConflictEvent, Consuming, ReorgSaid, Side, Updated, View
    from gateways.cardinal.content import Content
    from gateways.cardinal.headers import Head, Header, TooDeep
    from gateways.cardinal.progress import Progress

    from .terminal import Terminal

_KEPT_AFTER_S: Final = 0.02
_AT_ONCE_MAX: Final = 10_000
"""Values and deletes of a block that are printed in one piece."""


@contextmanager
def _viewed(args: "Namespace", words: Sequence[str]) -> "Iterator[tuple[Store, Side, View]]":
    """The store, its side table, and the view of the streams that are named."""
    from gateways.cardinal import Side, View, check_streams, chosen_topics
    from gateways.cardinal.declared import PatternError, Router
    from gateways.cardinal.tracking import Tracking

    with opened_store(args, readonly=True) as store:
        streams = named_streams(store, words)
        declared = streams[0].declared
        topics = getattr(args, "topic", None)
        chosen_topics(streams[0], topics or ())
        router = Router(declared.patterns, declared.default)
        try:
            tracking = Tracking(router, getattr(args, "track", None) or (), topics)
        except PatternError as error:
            raise WrongUsage(f"cardinal: --track: {error}") from None
        view = View(streams, tracking)
        check_streams(view)
        side = Side(store, Seldom(time.monotonic))
        try:
            yield store, side, view
        finally:
            side.close()


# tail


def run_tail(args: "Namespace", terminal: "Terminal") -> int:
    """Prints what changes in the chain."""
    from gateways.cardinal import Consuming, read_state
    from gateways.cardinal.progress import StateError

    with _viewed(args, args.words) as (store, side, view):
        progress: Progress | None = None
        token: str | None = None
        start: Head | None = None
        state = None if args.state is None else Path(args.state)
        if state is not None and state.exists():
            try:
                progress, token = read_state(store, state.read_bytes())
            except OSError as error:
                raise Problem(f"{state}: {error.strerror}") from None
            except StateError as error:
                raise Problem(f"{state}: no state of a consumer: {error}") from None
        elif args.start is not None:
            start = _start(side, view, args.start)
        consuming = Consuming(
            store,
            side,
            view,
            start=start,
            token=token,
            progress=progress,
            threshold=args.threshold,
        )
        tail = _Tail(store, consuming, terminal, args)
        tail.catch_up()
        tail.say_ready()
        if not args.once:
            _watch(store, tail, terminal)
    return DONE


def _start(side: "Side", view: "View", text: str) -> "Head":
    """NUMBER/HASH[/WEIGHT], the weight as it is known here if none is given."""
    from gateways.cardinal.headers import Head

    number, hash_, weight = _start_words(text)
    side.bring_on(view)
    known = side.block(view, hash_)
    if known is not None and known.header is not None:
        if known.header.number != number:
            raise Problem(f"--from {text}: that block's number is {known.header.number}")
        weight = known.header.weight if weight is None else weight
    return Head(number, hash_, weight or 0)


def _start_words(text: str) -> tuple[int, bytes, int | None]:
    words = text.split("/")
    if not 2 <= len(words) <= 3:
        raise WrongUsage(f"cardinal tail: {text[:120]!r} is no NUMBER/HASH[/WEIGHT]")
    try:
        weight = weight_of(words[2]) if len(words) == 3 else None
        return number_of(words[0]), hash_of(words[1]), weight
    except ValueError as error:
        raise WrongUsage(f"cardinal tail: --from: {error}") from None


def _watch(store: Store, tail: "_Tail", terminal: "Terminal") -> None:
    from gateways import LogHost

    from .online import run_trio, while_read

    watch = partial(LogHost(store).watch, tail.catch_up)
    run_trio(partial(while_read, terminal, watch))


class _Tail:
    """What a consumer says, as lines."""

    def __init__(
        self,
        store: Store,
        consuming: "Consuming",
        terminal: "Terminal",
        args: "Namespace",
    ) -> None:
        self._store = store
        self._consuming = consuming
        self._terminal = terminal
        self._args = args
        self._state = None if args.state is None else Path(args.state)
        self._blocks = bool(args.blocks)
        self._has_values = not args.no_values
        self._followed: LogKey | None = None
        self._unkept: Progress | None = None
        """Of the last update that was printed, unless it is in the file."""
        self._keep_at = 0.0

    def catch_up(self) -> None:
        """Takes everything that there is."""
        from gateways.cardinal import Found, Updated

        self._consuming.bring_on()
        try:
            while (said := self._consuming.take()) is not None:
                for each in said:
                    match each:
                        case Updated():
                            self._say_update(each)
                        case Found(header):
                            self._say_found(header)
                        case _:
                            self._say(each)
                self._follow_channel()
                self._consuming.bring_on()
        finally:
            # Whatever ends it: what was printed was printed.
            self._keep()

    def _follow_channel(self) -> None:
        """Has the store follow the channel of a reorganisation, which is taken next."""
        channel = self._consuming.channel
        if channel is None or channel == self._followed or channel.author == self._store.author:
            return
        self._followed = channel
        if not {ALL, channel, channel.author}.isdisjoint(self._store.follows()):
            return
        try:
            with opened_store(self._args) as store:
                store.follow(channel)
        except StoreError as error:
            self._terminal.note(f"{channel}: the reorganisation's log cannot be followed: {error}")
        else:
            self._terminal.note(f"{channel}: followed now, the log of a reorganisation")

    def say_ready(self) -> None:
        """All that there was is said."""
        head = self._consuming.head
        fields = {
            "event": "ready",
            "number": None if head is None else json_number(head.number),
            "hash": None if head is None else head.hash.hex(),
        }
        self._terminal.result(
            fields, "ready" if head is None else f"ready at {head.number} {head.hash.hex()}"
        )
        self._terminal.flush()

    def _say(self, said: "ReorgSaid | TooDeep | ConflictEvent | BadEvent") -> None:
        """What is rare: to name the kinds of it takes as long as to print a block."""
        from gateways.cardinal import BadEvent, ConflictEvent, ReorgSaid
        from gateways.cardinal.headers import TooDeep

        terminal = self._terminal
        fields: dict[str, Any]
        match said:
            case ReorgSaid(number, hash_):
                fields = {"event": "reorg", "number": json_number(number), "hash": hash_.hex()}
                terminal.result(fields, f"reorganisation from {number} {hash_.hex()} on")
            case TooDeep(number, hash_):
                fields = {"event": "too_deep", "number": json_number(number), "hash": hash_.hex()}
                terminal.result(
                    fields, f"too deep: {number} {hash_.hex()} is heavier, and not followed"
                )
            case ConflictEvent(_, hash_, key, producers):
                names = [each.hex() for each in producers]
                fields = {"event": "conflict", "hash": hash_.hex(), "key": key.hex()}
                terminal.result(
                    {**fields, "producers": names},
                    f"conflict: {hash_.hex()} at key {key.hex()} of"
                    f" {' and '.join(each[:8] for each in names)}",
                )
            case BadEvent(_, log, seq, index, reason):
                fields = {**log_fields(log), "seq": json_number(seq), "index": index}
                terminal.result(
                    {"event": "bad_message", **fields, "reason": reason},
                    f"bad message: {log}/{seq}, message {index}: {reason}",
                )

    def _say_found(self, header: "Header") -> None:
        if self._blocks and self._terminal.as_json:
            self._terminal.stream({"event": "block", "block": self._block(header)})
        elif self._blocks:
            self._terminal.line(f"block {self._line(header)}")

    def _say_update(self, update: "Updated") -> None:
        terminal = self._terminal
        if terminal.as_json:
            token = self._consuming.token(update.progress)
            removed = [
                {"number": json_number(number), "hash": hash_.hex()}
                for number, hash_ in update.removed
            ]
            added = [self._block(each) for each in update.added]
            terminal.stream({"event": "update", "added": added, "removed": removed, "token": token})
        else:
            for number, hash_ in reversed(update.removed):
                terminal.line(f"- {number} {hash_.hex()}")
            for each in update.added:
                terminal.line(f"+ {self._line(each)}")
        self._unkept = update.progress
        if time.monotonic() >= self._keep_at:
            self._keep()

    def _keep(self) -> None:
        """Has what was printed with the reader, and then keeps how far that was.

        Not behind each update where thousands come at once: to replace a file takes longer than to
        print one, and whoever is ended in between is told some again either way.
        """
        self._terminal.flush()
        self._keep_at = time.monotonic() + _KEPT_AFTER_S
        path, progress, self._unkept = self._state, self._unkept, None
        if path is None or progress is None:
            return
        data = self._consuming.state(progress)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise Problem(f"{path}: {error.strerror}") from None

    def _block(self, header: "Header") -> dict[str, Any]:
        fields = header_fields(header)
        return (
            fields | _contents(self._consuming.content(header.hash)) if self._has_values else fields
        )

    def _line(self, header: "Header") -> str:
        return _block_line(
            header, self._consuming.content(header.hash) if self._has_values else None
        )


def _contents(content: "Content") -> dict[str, Any]:
    """As JSON has it; what is larger than memory is wanted to be is read while it is printed."""
    values = ((key.decode(), value.hex()) for key, value in content.values.pairs())
    deletes = (key.decode() for key, _ in content.deletes.pairs())
    is_small = len(content.values) + len(content.deletes) <= _AT_ONCE_MAX
    return {
        "values": dict(values) if is_small else Pairs(values),
        "deletes": [*deletes] if is_small else Items(deletes),
    }


def _block_line(header: "Header", content: "Content | None") -> str:
    line = f"{header.number} {header.hash.hex()}"
    if content is None:
        return line
    values = counted(len(content.values), "value")
    deletes = counted(len(content.deletes), "delete")
    return f"{line} {values}" + (f" {deletes}" if content.deletes else "")


# One block


def _words_of_block(args: "Namespace") -> tuple[list[str], str]:
    *streams, which = args.words
    if not streams or is_stream_name(which):
        raise WrongUsage("cardinal: a NUMBER or a HASH is wanted behind the streams")
    return streams, which


def _number_or_hash(text: str) -> int | bytes:
    try:
        return number_of(text) if len(text) < 20 else hash_of(text)
    except ValueError as error:
        raise WrongUsage(f"cardinal: {error}") from None


def run_block(args: "Namespace", terminal: "Terminal") -> int:
    """Prints one block."""
    from gateways.cardinal import ordered

    streams, which = _words_of_block(args)
    wanted = _number_or_hash(which)
    with _viewed(args, streams) as (store, side, view):
        consuming = ordered(store, side, view)
        if isinstance(wanted, bytes):
            header = consuming.header(wanted)
        else:
            header = next((each for each in consuming.chain() if each.number == wanted), None)
        if header is None:
            raise Problem(
                f"{which}: no such block is complete here, or none of the chain;"
                " `bamboo-peer cardinal why` says what a block waits for"
            )
        content = consuming.content(header.hash)
    if terminal.as_json:
        terminal.stream(header_fields(header) | _contents(content))
        return DONE
    terminal.listing(
        [
            ("number", header.number),
            ("hash", header.hash.hex()),
            ("parent", header.parent.hex()),
            ("weight", header.weight),
        ]
    )
    for key, value in content.values.pairs():
        terminal.line(f"{key.decode()} = {value.hex()}")
    for key, _ in content.deletes.pairs():
        terminal.line(f"{key.decode()} deleted")
    return DONE


def run_why(args: "Namespace", terminal: "Terminal") -> int:
    """Says how it stands with a block."""
    from gateways.cardinal import ordered, reasons

    *streams, which = args.words
    if not streams:
        raise WrongUsage("cardinal why: it needs STREAM... HASH")
    try:
        hash_ = hash_of(which)
    except ValueError as error:
        raise WrongUsage(f"cardinal why: {error}") from None
    with _viewed(args, streams) as (store, side, view):
        consuming = ordered(store, side, view)
        found = reasons(store, side, consuming, hash_)
    if terminal.as_json:
        terminal.record({"hash": hash_.hex(), "state": found.state, "reasons": found.sentences})
    for each in () if terminal.as_json else found.sentences:
        terminal.line(each)
    return DONE if found.state in ("chain", "side") else FAILED


def run_wait(args: "Namespace", terminal: "Terminal") -> int:
    """Waits until a block is given out."""
    from gateways.cardinal import Consuming, Updated

    streams, which = _words_of_block(args)
    wanted = _number_or_hash(which)
    with _viewed(args, streams) as (store, side, view):
        consuming = Consuming(store, side, view)

        def is_there() -> bool:
            consuming.bring_on()
            while (said := consuming.take()) is not None:
                for each in said:
                    if isinstance(each, Updated) and any(
                        wanted in (block.number, block.hash) for block in each.added
                    ):
                        return True
                consuming.bring_on()
            return False

        if _comes_within(store, is_there, 60.0 if args.timeout is None else args.timeout):
            result = "success"
        else:
            known = (
                [side.block(view, wanted)]
                if isinstance(wanted, bytes)
                else side.blocks_of(view, wanted)
            )
            is_met = any(each is not None and each.header is not None for each in known)
            result = "timeout" if is_met else "not_found"
    terminal.result({"result": result}, result)
    return DONE if result == "success" else TIMED_OUT


def run_status(args: "Namespace", terminal: "Terminal") -> int:
    """How it stands with a chain here."""
    from gateways.cardinal import ordered

    with _viewed(args, args.words) as (store, side, view):
        consuming = ordered(store, side, view)
        head, channel = consuming.head, consuming.channel
        complete, incomplete = side.counts(view)
        producers: list[dict[str, Any]] = []
        for stream in view.streams:
            infos = [info for key in stream.topics().values() if (info := store.log(key))]
            arrivals = [info.newest_at for info in infos if info.newest_at is not None]
            default = store.log(stream.key)
            producers.append(
                {
                    **log_fields(stream.key),
                    "newest_at": rfc3339(max(arrivals)) if arrivals else None,
                    "state": str(LogState.LIVE if default is None else default.state),
                }
            )
    fields = {
        "chain": view.streams[0].declared.chain,
        "number": None if head is None else json_number(head.number),
        "hash": None if head is None else head.hash.hex(),
        "complete": complete,
        "incomplete": incomplete,
        "channel": None if channel is None else json_number(channel.log_id),
        "producers": producers,
    }
    if terminal.as_json:
        terminal.record(fields)
        return DONE
    terminal.listing(
        [
            ("chain", fields["chain"]),
            ("head", "none yet" if head is None else f"{head.number} {head.hash.hex()}"),
            ("complete", counted(complete, "block")),
            ("incomplete", counted(incomplete, "block")),
            *([("takes", f"the reorganisation's log {channel}")] if channel is not None else []),
        ]
    )
    for each, stream in zip(producers, view.streams, strict=True):
        state = "" if each["state"] == "live" else f", {each['state']}"
        terminal.line(f"{stream.key}  newest {each['newest_at'] or '-'}{state}")
    return DONE


# Following


def run_follow(args: "Namespace", terminal: "Terminal") -> int:
    """Follows the topics of a stream."""
    from gateways.cardinal import NotAStream, chosen_topics, stream_of

    [name] = args.words
    with opened_store(args) as store:
        key = resolved_log(store, name)
        store.follow(key)
        timeout_s = 0.0 if args.timeout is None else args.timeout
        if not _comes_within(store, partial(_has_come, store, key), timeout_s):
            raise Problem(
                f"{key}: followed, but its entry 1 is not here, which names its other topics;"
                " give the command again once it is",
                TIMED_OUT if timeout_s else FAILED,
            )
        stream = stream_of(store, key)
        try:
            topics = chosen_topics(stream, (*(args.topic or ()), stream.declared.default))
        except NotAStream as error:
            raise Problem(str(error)) from None
        if not args.topic:
            topics = stream.topics()
        for log in topics.values():
            store.follow(log)
    for topic, log in topics.items():
        terminal.result({**log_fields(log), "topic": topic}, f"{log} {topic}")
    return DONE


def _has_come(store: Store, key: LogKey) -> bool:
    """Whether entry 1 of a log is here."""
    entry = store.entry(key, 1)
    return entry is not None and entry.payload is not None


def _comes_within(store: Store, is_there: Callable[[], bool], timeout_s: float) -> bool:
    """Whether something is in the store, or comes within some seconds."""
    import trio

    from gateways import LogHost

    from .online import run_trio

    async def wait() -> bool:
        found = False
        with trio.move_on_after(timeout_s) as scope:

            def told(is_found: bool) -> None:
                nonlocal found
                if is_found:
                    found = True
                    scope.cancel()

            await LogHost(store).watch(is_there, told)
        return found

    return is_there() or (timeout_s > 0 and run_trio(wait))
