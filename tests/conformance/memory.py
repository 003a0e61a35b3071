"""A session in memory as the endpoint under test: no socket, and time is an argument."""

from bymux import Role
from peer import Interests, InterestsChanged, LogChanged, Notice, Scope, Session, SessionConfig
from tests.peer.rig import Host, Store
from tests.records import replace

from .histories import SHARED_COUNT, History, Library

CONFIG = SessionConfig(small_payload_bytes_max=64)


class MemoryLink:
    """Hands bytes to a session, whole or one by one, and carries out its commands.

    RemoteViolation and SessionTimeout come out of whatever brings them about.
    """

    def __init__(
        self,
        role: Role,
        library: Library,
        *,
        byte_by_byte: bool = False,
        config: SessionConfig = CONFIG,
        store: Store | None = None,
    ) -> None:
        self.now = 0.0
        self.session = Session(role, config, self.now)
        self.host = Host(store or Store())
        shared = library.shared
        self._shared = shared.log
        self.host.store.logs[shared.log].update(shared.upto(SHARED_COUNT))
        self.is_idle = False
        """Whether the host does nothing of what it is asked to."""
        self.notices: list[Notice] = []
        self._step = 1 if byte_by_byte else 1 << 30
        self._interests = Interests(
            authors=frozenset((library.author.id,)), author=library.endpoint.id
        )
        self.session.handle(InterestsChanged(self._interests, (shared.log,)), self.now)

    @property
    def store(self) -> Store:
        return self.host.store

    def send(self, data: bytes) -> None:
        for at in range(0, len(data), self._step):
            self.session.receive_bytes(data[at : at + self._step], self.now)
            if self._step == 1:
                self._work()
        self._work()

    def receive(self) -> bytes:
        data = b""
        while True:
            part = self.session.bytes_to_send(1 << 20)
            data += part
            # Looking for something to send may be what asks the store for it.
            if not self._work() and not part:
                return data

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds
        self.session.advance(self.now)
        self._work()

    def narrow(self, scope: Scope) -> None:
        """What the other side may read and write is another matter now."""
        self._interests = replace(self._interests, scope=scope)
        self._tell_interests()

    def author(self, history: History, count: int) -> None:
        self.host.store.logs[history.log].update(history.upto(count))
        own = self._interests.own | {history.log}
        self._interests = replace(self._interests, own=own, shared=dict.fromkeys(own, 0))
        self._tell_interests()
        self.host.store.changed(history.log)
        self._work()

    def _tell_interests(self) -> None:
        offers = (self._shared, *sorted(self._interests.own))
        self.session.handle(InterestsChanged(self._interests, offers), self.now)

    def lose(self) -> None:
        """The connection is gone."""
        self.session.receive_eof(self.now)
        self._work()

    def _work(self) -> bool:
        """Carry out commands until there are none; whether there were any."""
        busy, worked = not self.is_idle, False
        while busy:
            commands = self.session.commands()
            for command in commands:
                for event in self.host._replies(command):
                    self.session.handle(event, self.now)
            changes = [change for change in self.host.todo if isinstance(change, LogChanged)]
            self.host.todo.clear()
            for change in changes:
                self.session.handle(change, self.now)
            self.notices += self.session.notices()
            busy = bool(commands or changes)
            worked = worked or busy
        return worked
