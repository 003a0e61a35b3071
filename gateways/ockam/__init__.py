"""Ockam streams over our logs: a hub for stream clients, and clients of such hubs.

`bare`, `codec`, `declared` and `ledger` turn bytes into values; `server`, with its `commands` and
`outcomes`, and `client` are what a connection does, without sockets, clock or store. The rest
stands on the store and on Trio. Names are loaded when they are first used. docs/ockam.md says what
programs and people do with them.
"""

from typing import TYPE_CHECKING

from wire import loaded_late

if TYPE_CHECKING:
    from gateways.ockam.server import Rights

    from .book import Book
    from .keeping import Keeper, Rule, Trimmed
    from .logs import FIRST_LOG, STREAMS_MAX, Catalog, next_index
    from .remote import (
        Consumer,
        HubError,
        HubRefused,
        HubUnreachable,
        Message,
        Publisher,
        Receipt,
        ask_position,
        create_stream,
        hub_address,
    )
    from .service import OckamServer
    from .side import Side, Stream

__all__ = [
    "FIRST_LOG",
    "STREAMS_MAX",
    "Book",
    "Catalog",
    "Consumer",
    "HubError",
    "HubRefused",
    "HubUnreachable",
    "Keeper",
    "Message",
    "OckamServer",
    "Publisher",
    "Receipt",
    "Rights",
    "Rule",
    "Side",
    "Stream",
    "Trimmed",
    "ask_position",
    "create_stream",
    "hub_address",
    "next_index",
]

if not TYPE_CHECKING:
    __getattr__ = loaded_late(
        __name__,
        {
            "book": ("Book",),
            "keeping": ("Keeper", "Rule", "Trimmed"),
            "logs": ("Catalog", "FIRST_LOG", "STREAMS_MAX", "next_index"),
            "remote": (
                "Consumer",
                "HubError",
                "HubRefused",
                "HubUnreachable",
                "Message",
                "Publisher",
                "Receipt",
                "ask_position",
                "create_stream",
                "hub_address",
            ),
            "server": ("Rights",),
            "service": ("OckamServer",),
            "side": ("Side", "Stream"),
        },
    )
