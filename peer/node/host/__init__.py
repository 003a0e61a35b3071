"""The store's side of a node: its threads, what sessions ask of it, and verification.

It knows nothing of connections; `links` gives each of them a port here.
"""
