"""Confirmations with settings that a case chooses, which a node would give only by its policy."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from peer.protocol.request import Request
from peer.protocol.table import RequestTable
from tests.records import replace
from wire import Adjust, LogKey

CHOSEN: dict[LogKey, Adjust] = {}
"""What the confirmation of a log's proposals is to say instead."""

_confirm = RequestTable.confirm


def _confirm_as_chosen(table: RequestTable, request: Request, adjust: Adjust) -> None:
    chosen = CHOSEN.get(request.log)
    if chosen is not None:
        adjust = replace(
            adjust,
            eagerness=chosen.eagerness or adjust.eagerness,
            eager_bytes=chosen.eager_bytes,
            allow_skip=chosen.allow_skip,
            min_bytes=chosen.min_bytes,
            max_bytes=chosen.max_bytes,
            upper_info=chosen.upper_info or adjust.upper_info,
        )
    _confirm(table, request, adjust)


@contextmanager
def settings_can_be_chosen() -> Iterator[None]:
    """Lets `Speaker.receiving_with` have its way with endpoints in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RequestTable, "confirm", _confirm_as_chosen)
        yield
    CHOSEN.clear()
