"""Groups of received entries: from the order in which they came to a transaction, and back.

A group is what one request contributes to a transaction, in order. After the commit it says how
many of its entries are on disk, and why the next one is not.
"""

from collections.abc import Iterable
from itertools import starmap
from typing import TYPE_CHECKING

from msgspec import Struct

from logstore import NewEntry, OverQuota, PutResult
from peer import Ingested, IngestFailed, IngestItem, Refusal

from .port import Handed, Port, Replies

if TYPE_CHECKING:
    from wire import LogKey


class Checked(Struct, frozen=True):
    """Received entries, and how many of them, from the first on, have the right signature."""

    handed: Handed
    item: IngestItem
    valid: int


class Group(Struct):
    """Entries of one request, `good` of which are stored, or to be stored."""

    handed: Handed
    entries: list[NewEntry]
    good: int
    refusal: Refusal = Refusal.INVALID
    detail: str = ""
    over_quota: OverQuota | None = None
    """The limit for which the rest was not stored."""

    def new_entries(self) -> list[NewEntry]:
        """What the store is given."""
        return self.entries[: self.good]

    def refuse_from(self, seq: int, refusal: Refusal, detail: str) -> None:
        """The entry with this number, and what is behind it, was not stored."""
        for index, entry in enumerate(self.entries[: self.good]):
            if entry.seq >= seq:
                self.good = index
                self.refusal = refusal
                self.detail = detail
                return

    def take_result(
        self, result: PutResult, *, invalid_seq: int | None, is_gone: bool = False
    ) -> None:
        """What the store said. `invalid_seq`: from where on the author made the log invalid.

        `is_gone`: what the entries were to be added to may have been forgotten: nobody's fault.
        """
        if result.rejected is not None and is_gone:
            reason = "the log was forgotten here meanwhile"
            self.refuse_from(result.rejected.seq, Refusal.STORAGE, reason)
        elif result.rejected is not None:
            seq, reason = result.rejected.seq, result.rejected.reason
            authors_fault = result.rejected.contradicts or (
                invalid_seq is not None and seq >= invalid_seq
            )
            refusal = Refusal.FORKED if authors_fault else Refusal.INVALID
            self.refuse_from(seq, refusal, reason)
        if result.over_quota is not None:
            self.over_quota = result.over_quota
            seq, reason = result.over_quota.seq, result.over_quota.reason
            self.refuse_from(seq, Refusal.NO_ROOM, reason)
        if result.fork is not None:
            self.refuse_from(result.fork.seq, Refusal.FORKED, f"forked at {result.fork.seq}")


def grouped(checked: Iterable[Checked]) -> list[Group]:
    """Entries by request. Groups of the same log stand in the order in which the entries came."""
    groups: list[Group] = []
    latest: dict[tuple[Port, LogKey], Group] = {}
    group: Group | None = None
    for each in checked:
        handed, item = each.handed, each.item
        if handed.refused:
            continue
        if group is None or group.handed is not handed:
            place = (handed.port, handed.log)
            group = latest.get(place)
            if group is None or group.handed is not handed:
                group = latest[place] = Group(handed, [], 0)
                groups.append(group)
        if item.due_bytes:
            group.entries += [NewEntry(*entry, item.due_bytes) for entry in item.entries]
        else:
            group.entries += starmap(NewEntry, item.entries)
        if handed.doomed is None:
            group.good += each.valid
            if each.valid == len(item.entries):
                continue
        handed.refused = True
        if handed.doomed is not None and each.valid:
            group.refusal, group.detail = handed.doomed
        else:
            group.detail = "the signature is wrong"
    return groups


def replies(groups: Iterable[Group]) -> Replies:
    """The answers to sessions whose entries were committed; settles their books."""
    events: Replies = {}
    for group in groups:
        handed = group.handed
        answers = events.setdefault(handed.port, [])
        if group.good:
            handed.entries -= group.good
            answers.append(Ingested(handed.request, group.good))
        if group.good < len(group.entries):
            answers.append(_refuse(group))
        if handed.refused or not handed.entries:
            handed.port.handed_in.pop(handed.request, None)
    return events


def _refuse(group: Group) -> IngestFailed:
    handed, entry = group.handed, group.entries[group.good]
    handed.refused = True
    for other in handed.port.handed_in.values():
        if other is not handed and other.log == handed.log and other.doomed is None:
            other.doomed = (group.refusal, group.detail)
    return IngestFailed(handed.request, entry.seq, group.refusal, group.detail, handed.entries)
