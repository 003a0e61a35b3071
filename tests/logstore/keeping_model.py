"""What may be held under rules, as plain dictionaries, written from the specification.

Nothing is remembered but what happened, and everything is looked for by walking all of it.
"""

from dataclasses import dataclass, field

from logstore import ALL, Follow, KeepRule, Subscription, Tidied, subscription_of
from wire import LogKey, lipmaa

Place = tuple[LogKey, int]


@dataclass
class Held:
    """An entry, and its payload: present, missing or deleted."""

    received_at: int
    size: int
    state: str
    has_part: bool = False
    """Of a payload that is not present."""


@dataclass
class KeepingModel:
    """Logs, rules, what is followed with `latest:N`, and what is fetched."""

    author: bytes
    logs: dict[LogKey, dict[int, Held]] = field(default_factory=dict)
    rules: dict[Follow, KeepRule] = field(default_factory=dict)
    follows: dict[Follow, Subscription] = field(default_factory=dict)
    fetched: dict[LogKey, set[tuple[int, int]]] = field(default_factory=dict)

    # Rules

    def rule_of(
        self, log: LogKey, rules: dict[Follow, KeepRule] | None = None
    ) -> tuple[str, Follow, KeepRule] | None:
        rules = self.rules if rules is None else rules
        if log in rules:
            return "log", log, rules[log]
        if log.author in rules:
            return "author", log.author, rules[log.author]
        if log.author == self.author:
            return None
        if ALL in rules:
            return "all", ALL, rules[ALL]
        wanted = subscription_of(self.follows, log)
        if wanted is not None and wanted.count:
            return "latest", log, KeepRule(last=wanted.count)
        return None

    def is_fetched(self, log: LogKey, seq: int) -> bool:
        return any(first <= seq <= last for first, last in self.fetched.get(log, ()))

    def goes(
        self, now: int, target: Follow | None = None, rules: dict[Follow, KeepRule] | None = None
    ) -> dict[Place, str]:
        """Which payloads go, and by which kind of rule."""
        found: dict[Place, str] = {}
        under: dict[Follow, list[LogKey]] = {}
        for log in self.logs:
            ruled = self.rule_of(log, rules)
            if ruled is not None:
                under.setdefault(ruled[1], []).append(log)
        for logs in under.values():
            ruled = self.rule_of(logs[0], rules)
            assert ruled is not None
            kind, _, rule = ruled
            rest: list[tuple[int, int, LogKey]] = []
            for log in logs:
                for seq, held in self.logs[log].items():
                    if held.state != "present" or self.is_fetched(log, seq):
                        continue
                    if self._goes_at_once(rule, log, seq, now):
                        found[log, seq] = kind
                    else:
                        rest.append((held.received_at, seq, log))
            while rule.bytes is not None and self._bytes(rest) > rule.bytes:
                _, seq, log = min(rest)
                rest.remove(min(rest))
                found[log, seq] = kind
        return {
            place: kind
            for place, kind in found.items()
            if target is None or target in (ALL, place[0], place[0].author)
        }

    def _goes_at_once(self, rule: KeepRule, log: LogKey, seq: int, now: int) -> bool:
        entries = self.logs[log]
        if rule.last is not None and seq not in range(max(entries) - rule.last + 1, 2**64):
            return True
        return rule.age_s is not None and entries[seq].received_at < now - rule.age_s * 1_000_000

    def _bytes(self, several: list[tuple[int, int, LogKey]]) -> int:
        return sum(self.logs[log][seq].size for _, seq, log in several)

    def lines(self, gone: dict[Place, str]) -> list[Tidied]:
        """What `tidy` says of it."""
        lines = []
        for log in sorted({log for log, _ in gone}):
            seqs = [seq for key, seq in gone if key == log]
            size = sum(self.logs[log][seq].size for seq in seqs)
            lines.append(Tidied(log, len(seqs), size, min(seqs), max(seqs), gone[log, seqs[0]]))
        return lines

    def delete(self, gone: dict[Place, str]) -> None:
        for log, seq in gone:
            self.logs[log][seq].state = "deleted"

    # What is asked for

    def askable(self, log: LogKey, now: int) -> list[int]:
        ruled = self.rule_of(log)
        found = []
        for seq, held in sorted(self.logs.get(log, {}).items()):
            if held.state == "present":
                continue
            # What `latest:N` does not want is known to whoever asks.
            is_rule = ruled is not None and ruled[0] != "latest"
            kept = ruled is None or not is_rule or not self._would_go(ruled[2], log, seq, now)
            if self.is_fetched(log, seq) or (held.state == "missing" and kept):
                found.append(seq)
        return found

    def _would_go(self, rule: KeepRule, log: LogKey, seq: int, now: int) -> bool:
        none = rule.last == 0 or rule.age_s == 0
        too_large = rule.bytes is not None and self.logs[log][seq].size > rule.bytes
        return none or too_large or self._goes_at_once(rule, log, seq, now)

    # What happens

    def fits(self, log: LogKey, seqs: list[int], seq: int) -> bool:
        held = {*self.logs.get(log, {}), *seqs}
        return seq == 1 or seq - 1 in held or lipmaa(seq) in held

    def put(
        self, log: LogKey, seq: int, size: int, now: int, *, with_payload: bool, undeletes: bool
    ) -> None:
        entries = self.logs.setdefault(log, {})
        held = entries.get(seq)
        if held is None:
            entries[seq] = Held(now, size, "present" if with_payload else "missing")
        elif with_payload:
            asked = undeletes or self.is_fetched(log, seq)
            if held.state == "missing" or (held.state == "deleted" and asked):
                held.state = "present"

    def settle(self) -> None:
        """What has come is fetched no more."""
        for log, ranges in self.fetched.items():
            entries = self.logs.get(log, {})
            self.fetched[log] = {
                (first, last)
                for first, last in ranges
                if not all(
                    seq in entries and entries[seq].state == "present"
                    for seq in range(first, last + 1)
                )
            }

    def drop(self, log: LogKey, first: int, last: int) -> None:
        if log not in self.logs:
            return
        ranges = self.fetched.get(log, set())
        ranges -= {each for each in ranges if max(each[0], first) <= min(each[1], last)}
        for seq, held in self.logs.get(log, {}).items():
            if first <= seq <= last and (held.state == "present" or held.has_part):
                held.state, held.has_part = "deleted", False
