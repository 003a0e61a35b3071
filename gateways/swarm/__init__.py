"""Swarm chunks: a content-addressed store of 4 KiB chunks on logs, and Swarm's protocol for them.

What is here knows nothing of sockets, clocks or stores yet: formats and trees (spec sections 2.1 to
2.11, 3.4). Needs the extra `swarm`.
"""
