"""Everything that `bymux` raises about packets or calls that break a rule."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .events import Event


class Violation(Exception):  # noqa: N818 - the name that the specifications use
    """A broken rule of bymux, whoever broke it; the two subclasses tell by whom."""

    rule: str
    """The section that states the rule, such as "bymux.md Credit"."""
    detail: str
    stream: int | None
    """The stream it is about; None where it is about none, or about the global forms."""
    value: int | None
    """The offending value: an amount, an id, a header byte; None where the packet has none."""

    def __init__(
        self, rule: str, detail: str, *, stream: int | None = None, value: int | None = None
    ) -> None:
        super().__init__(rule, detail)
        self.rule = rule
        self.detail = detail
        self.stream = stream
        self.value = value

    def __str__(self) -> str:
        return f"{self.detail} ({self.rule})"


class LocalProtocolError(Violation):
    """Our caller asked for what the rules forbid: nothing was sent and no state has changed."""


class RemoteProtocolError(Violation):
    """The peer broke a rule: the connection is over and takes nothing more."""

    events: "list[Event]"
    """What the packets before the bad one caused, in order; it counts."""

    def __init__(
        self, rule: str, detail: str, *, stream: int | None = None, value: int | None = None
    ) -> None:
        super().__init__(rule, detail, stream=stream, value=value)
        self.events = []
