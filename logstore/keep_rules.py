"""Rules of what is kept: what they say, where they are remembered, and which of them counts.

A rule is a row of `memory`, so that it is in force whenever its transaction is committed, and a
store with rules is read by whoever reads a store without. The nearest rule counts, and all of it:
that of the log, else its author's, else that of all. An own log obeys its own rule and its
author's, never that of all: what only this store has would go for a rule that was meant for other
people's.

What `latest:N` wants is a rule as well where there is no other: N payloads are wanted, and not N
and all that were once among them.

While a row is damaged, no rule deletes anything: what it said may have been to keep what another
one deletes, and its name may be what is wrong. `verify` names it, and to say it again mends it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from wire import U64_MAX, LogKey

from .records import ALL, All, Follow
from .rows import row_tag
from .upkeep import remember

if TYPE_CHECKING:
    from collections.abc import Mapping

    import apsw

_KEEP: Final = "keep/"
_BEHIND: Final = "keep0"
"""The first name behind all those."""
_AUTHOR_DIGITS: Final = 64
AGE_US_MAX: Final = (1 << 62) - 1
"""Some 146,000 years."""


@dataclass(frozen=True, slots=True)
class KeepRule:
    """A payload goes if any limit says so; None: no limit. Raises ValueError.

    `last`: of how many of a log's largest numbers, up to the newest one held. `age_s`: how long
    after its entry was received, in seconds. `bytes`: of the payloads of all logs under the rule.
    """

    last: int | None = None
    age_s: float | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name, limit in (("last", self.last), ("bytes", self.bytes)):
            if limit is not None and not 0 <= limit <= U64_MAX:
                raise ValueError(f"{name}={limit}: it is a number from 0 to 2^64 - 1")
        if self.age_s is not None and not 0 <= self.age_s <= AGE_US_MAX / 1e6:
            raise ValueError(f"age_s={self.age_s}: it is a number of seconds from 0 on")

    @property
    def age_us(self) -> int | None:
        """The age in microseconds."""
        return None if self.age_s is None else min(AGE_US_MAX, round(self.age_s * 1_000_000))

    @property
    def keeps_none(self) -> bool:
        """Whether every payload goes as soon as it has come."""
        return self.last == 0 or self.age_us == 0

    @property
    def counts_all(self) -> bool:
        """Whether what goes does not follow from the numbers of one log alone."""
        return self.age_s is not None or self.bytes is not None


EVERYTHING: Final = KeepRule()
"""No limit: what all rules say while one of them cannot be read."""


def set_rule(db: "apsw.Connection", target: Follow, rule: KeepRule | None) -> bool:
    """Remembers a rule; None ends it. False if nothing changes. Raises ValueError for no limit."""
    name = _KEEP + _written(target)
    if rule == EVERYTHING:
        raise ValueError("a rule has a limit: last, age_s or bytes")
    known = db.execute("SELECT value, tag FROM memory WHERE name = ?", (name,)).fetchone()
    value = None if rule is None else _packed(rule)
    if (known and known[0]) == value and (known is None or known[1] == row_tag(name, value)):
        return False
    remember(db, name, value)
    return True


def load_rules(db: "apsw.Connection") -> dict[Follow, KeepRule]:
    """All rules: that of all, then authors and logs in order."""
    found: dict[Follow, KeepRule] = {}
    is_sound = True
    for name, value, tag in db.execute(
        "SELECT name, value, tag FROM memory WHERE name >= ? AND name < ?", (_KEEP, _BEHIND)
    ):
        target = _target(name[len(_KEEP) :])
        is_sound = is_sound and target is not None and tag == row_tag(name, value)
        if target is not None:
            found[target] = _unpacked(value)
    if not is_sound:
        found = dict.fromkeys(found, EVERYTHING)
    return dict(sorted(found.items(), key=lambda each: _order(each[0])))


def nearest_rule(
    rules: "Mapping[Follow, KeepRule]", log: LogKey, own_author: bytes | None
) -> "tuple[Follow, KeepRule] | None":
    """The rule that counts for a log, and what it is a rule of. `own_author`: whose store it is."""
    targets: tuple[Follow, ...] = (log, log.author)
    if log.author != own_author:
        targets = (*targets, ALL)
    for target in targets:
        rule = rules.get(target)
        if rule is not None:
            return target, rule
    return None


def _written(target: Follow) -> str:
    if isinstance(target, All):
        return "all"
    author = target.author if isinstance(target, LogKey) else target
    if len(author) * 2 != _AUTHOR_DIGITS:
        raise ValueError(f"an author has 32 bytes, not {len(author)}")
    return f"{author.hex()}/{target.log_id}" if isinstance(target, LogKey) else author.hex()


def _target(text: str) -> Follow | None:
    """The reverse of `_written`; None for a damaged name, of which nobody can say what it names."""
    if text == "all":
        return ALL
    author, slash, log_id = text.partition("/")
    try:
        found = bytes.fromhex(author)
        if len(author) != _AUTHOR_DIGITS or len(found) * 2 != _AUTHOR_DIGITS:
            return None
        return LogKey(found, int(log_id)) if slash else found
    except ValueError:
        return None


def _order(target: Follow) -> tuple[bytes, int]:
    if isinstance(target, All):
        return b"", 0
    return (target.author, target.log_id + 1) if isinstance(target, LogKey) else (target, 0)


def _packed(rule: KeepRule) -> bytes:
    limits = (rule.last, rule.age_us, rule.bytes)
    return " ".join("-" if limit is None else str(limit) for limit in limits).encode()


def _unpacked(value: bytes) -> KeepRule:
    try:
        last, age_us, size = (None if word == b"-" else int(word) for word in value.split(b" "))
        return KeepRule(last, None if age_us is None else age_us / 1_000_000, size)
    except (AttributeError, TypeError, ValueError):
        return EVERYTHING
