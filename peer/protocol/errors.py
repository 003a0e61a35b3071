"""What can go wrong in a session, by whose fault.

Inside the engine a broken rule is a neutral :class:`Violation`. The engine's boundary turns it into
:class:`RemoteViolation` (the peer's fault: the connection ends) or :class:`LocalMisuse` (the
caller's fault: nothing is sent, the state is as before).
"""


class Violation(Exception):  # noqa: N818 - the name that the specifications use
    """A rule of the protocol is broken.

    `rule` names the section of the specification, `request` the request it happened in (or None),
    `detail` says what was seen.
    """

    def __init__(self, rule: str, detail: str, request: int | None = None) -> None:
        super().__init__(rule, detail, request)
        self.rule = rule
        self.detail = detail
        self.request = request

    def __str__(self) -> str:
        where = "" if self.request is None else f"request {self.request}: "
        return f"{where}{self.detail} ({self.rule})"


class RemoteViolation(Violation):
    """The other side broke a rule; the connection ends (point2point.md 9)."""


class SessionTimeout(Exception):  # noqa: N818 - a timeout is what it is called
    """The other side took longer than the protocol allows for something it owes."""


class LocalMisuse(Exception):  # noqa: N818 - the pair of RemoteViolation
    """Our caller asked the engine for something that the protocol does not allow."""
