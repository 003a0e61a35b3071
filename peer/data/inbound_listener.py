"""Whom the incoming half of the data channel tells what came."""

from typing import Protocol

from peer.protocol.request import Request


class InboundListener(Protocol):
    """Who is told what the data channel brought."""

    def request_given_up(self, request: Request, detail: str) -> None:
        """We cannot take in what comes for this request, and why."""

    def peer_holds(self, request: Request, seq: int) -> None:
        """The other side notified of an entry that we have not sent it."""

    def payload_skipped(self, request: Request) -> None:
        """The other side passed a payload that it does not have."""

    def arriving(self, request: Request, data_bytes: int) -> None:
        """So many bytes of metadata and payloads have come for a request."""

    def cursor_moved(self, request: Request) -> None:
        """The other side's cursor moved; perhaps ours may now."""

    def idle_work(self) -> None:
        """The other side sent something that costs us work and moves nothing."""

    def new_ticket(self) -> int:
        """A ticket for a look-up."""
