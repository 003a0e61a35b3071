"""`cursor`: the places in the feed up to which somebody has read; `tail --cursor` makes them."""

from typing import TYPE_CHECKING

from local_api import rfc3339, u64
from logstore import CursorInfo, Store
from peer import log_fields

from .errors import DONE
from .opening import opened_store
from .settings import Parser
from .verbs import Verb, Verbs

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal


def _nothing(_: Parser) -> None:
    """Nothing but the flags of every command."""


def _reset_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--to",
        metavar="oldest|newest|INGEST",
        type=_place,
        default=0,
        own_variable="reset-to",
        help="behind which arrival it goes on (default: oldest, which is everything again)",
    )


def _place(text: str) -> int | None:
    """None: the newest. Raises ValueError."""
    if text in ("oldest", "newest"):
        return 0 if text == "oldest" else None
    try:
        return u64(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is neither oldest nor newest nor an arrival") from None


def _fields(store: Store, info: CursorInfo) -> dict[str, object]:
    log: dict[str, object] = {"author": None, "log_id": None}
    if info.target is not None:
        log = log_fields(info.target)
    return {
        "cursor": info.name,
        **log,
        "position": info.position,
        "behind": store.cursors.behind(info),
        "updated_at": rfc3339(info.updated_at),
    }


def _list(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args, readonly=True) as store:
        rows = []
        for info in store.cursors.all():
            fields = _fields(store, info)
            if terminal.as_json:
                terminal.record(fields)
            what = "all" if info.target is None else terminal.called(info.target)
            rows.append((info.name, what, info.position, fields["behind"], fields["updated_at"]))
    if not terminal.as_json:
        terminal.table(("CURSOR", "LOG", "POSITION", "BEHIND", "UPDATED"), rows, right="llrrl")
    return DONE


def _reset(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args) as store:
        info = store.cursors.reset(args.words[0], args.to)
        if terminal.as_json:
            terminal.record(_fields(store, info))
        else:
            terminal.line(str(info.position))
    return DONE


def _remove(args: "Namespace", _: "Terminal") -> int:
    with opened_store(args) as store:
        store.cursors.remove(args.words[0])
    return DONE


COMMANDS = {
    "cursor": Verbs(
        "cursor",
        "the places up to which was read with `tail --cursor`",
        {
            "list": Verb("", "list them, and how far each is behind", _list, _nothing),
            "reset": Verb("NAME", "have one go on elsewhere", _reset, _reset_arguments),
            "remove": Verb("NAME", "forget one", _remove, _nothing),
        },
    )
}
