"""What all parts of a planner work on: the logs, the ledger, and what is wanted.

The parts (turns, outcomes, changes) are classes for the sake of reading them one by one; their
state is one, and here it is. A question that more than one of them asks is a method here.
"""

from msgspec import Struct, field

from peer.protocol.config import SessionConfig
from peer.protocol.events import Interests
from peer.protocol.request import Request
from wire import LogKey

from .actions import Actions
from .coverage import covers
from .done import Done
from .peer_log import PeerLog, PeerLogs
from .progress import Progress
from .replying import Answers
from .rests import Rests
from .wanting import Wants


class Shared(Struct):
    """One for each planner."""

    actions: Actions
    config: SessionConfig
    rests: Rests
    logs: PeerLogs
    progress: Progress
    answers: Answers
    done: Done | None
    """In a one-time sync."""
    regained: set[LogKey] = field(default_factory=set)
    """Logs that the other side may read again, and of which it has heard nothing since."""
    unheard: set[Request] = field(default_factory=set)
    """Proposals of logs of which nothing was known; what they say counts once they are."""

    @property
    def interests(self) -> Interests:
        """What this node wants."""
        return self.answers.interests

    def wants(self, log: LogKey) -> bool:
        """Whether new entries of a log are taken in."""
        return self.answers.interests.wants(log)

    def plans(self, log: LogKey) -> bool:
        """Whether there is something to propose of a log, though it were only to listen."""
        return self.answers.interests.wants(log) or self.answers.interests.listens(log)

    def wants_of(self, log: LogKey) -> Wants:
        """What of a log is wanted."""
        return self.answers.wants_of(log)

    def newest_of(self, log: LogKey) -> int:
        """The newest entry that the other side has told of."""
        known = self.logs.get(log)
        return 0 if known is None else min(known.newest or 0, known.planned.stop)

    def known_of(self, log: LogKey) -> PeerLog:
        """What is known of a log, from now on if nothing was."""
        if (known := self.logs.opened(log, self.actions.now)) is not None:
            return known
        if self.done is not None:
            self.done.logs += 1
        return self.logs.add(log, self.wants_of(log), self.answers.no_longer_declined(log))

    def covered(self, log: LogKey) -> bool:
        """Whether some request will bring, or asks for, everything new of this log."""
        return any(map(covers, self.actions.requests_of(log)))

    def happened(self, log: LogKey | None = None) -> None:
        """Something happened, to this log if it is about one: a sync may not be over.

        A peer goes on offering all that it has. What is neither wanted nor held is no reason to
        wait, unless more may come of it that is wanted and cannot be named from here.
        """
        interests = self.interests
        counts = log is None or interests.awaits_unknown or interests.concerns(log)
        if self.done is not None and counts:
            self.done.happened()
