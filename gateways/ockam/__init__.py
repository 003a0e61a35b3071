"""Ockam streams over our logs: a hub for stream clients, and clients of such hubs.

`bare`, `codec`, `declared` and `ledger` turn bytes into values, `server` with its `commands` and
`client` are what a connection does, without sockets, clock or store. The rest stands on the store
and on Trio. Names are loaded when they are first used. docs/ockam.md says what programs and people
do with them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

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

_HOMES = {
    "Book": "book",
    "Catalog": "logs",
    "Consumer": "remote",
    "FIRST_LOG": "logs",
    "HubError": "remote",
    "HubRefused": "remote",
    "HubUnreachable": "remote",
    "Keeper": "keeping",
    "Message": "remote",
    "OckamServer": "service",
    "Publisher": "remote",
    "Receipt": "remote",
    "Rights": "server",
    "Rule": "keeping",
    "STREAMS_MAX": "logs",
    "Side": "side",
    "Stream": "side",
    "Trimmed": "keeping",
    "ask_position": "remote",
    "create_stream": "remote",
    "hub_address": "remote",
    "next_index": "logs",
}

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

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value
