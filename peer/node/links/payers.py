"""Who pays for what a connection costs, and what all sessions of one payer share."""

from typing import Final

from peer import Buckets, LogBucket, RefundBucket, SessionConfig
from peer.node.doors.admission import Admission

from .gate import place_of
from .records import Direction

PAYERS_MAX: Final = 4096
"""Of so many peers and addresses it is remembered how many logs they have brought of late."""


def payer_of(
    admission: Admission, direction: Direction, address: str, peer_id: bytes | None
) -> bytes | str:
    """An allowed peer, or an address, since ids cost nothing to make."""
    if peer_id is not None and admission.knows(peer_id):
        return peer_id
    if direction is Direction.OUTGOING:
        return address  # a name, perhaps, and nobody else's choice
    return place_of(address.rpartition(":")[0].strip("[]"))


class Payers:
    """The buckets of a node's sessions: one for refusals, and one of new logs for each payer."""

    def __init__(self, config: SessionConfig) -> None:
        self._refunds = RefundBucket.of(config)
        self._config = config
        self._new_logs: dict[bytes | str, LogBucket] = {}
        """Those who came last are last."""

    def change(self, config: SessionConfig) -> None:
        """Sessions are set up like this from now on; what is taken stays taken."""
        self._config = config
        for logs in self._new_logs.values():
            logs.change(config.offered_logs_max)

    def buckets_of(self, payer: bytes | str) -> Buckets:
        """Those of a new session."""
        logs = self._new_logs.pop(payer, None)
        if logs is None:
            logs = LogBucket.of(self._config)
        self._new_logs[payer] = logs
        if len(self._new_logs) > PAYERS_MAX:
            del self._new_logs[next(iter(self._new_logs))]
        return Buckets(self._refunds, logs)
