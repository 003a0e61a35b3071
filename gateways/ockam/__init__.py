"""Ockam streams over our logs: a hub for stream clients, and clients of such hubs.

`bare`, `codec`, `declared` and `ledger` turn bytes into values, `server` and `client` are what a
connection does, without sockets, clock or store. The rest stands on the store and on Trio.
"""
