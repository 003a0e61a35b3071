"""Cardinal streams over our logs: blocks of a chain that may fork, from producers to consumers.

`codec`, `frames` and `declared` turn bytes into values, `producing` blocks into messages,
`assembly` messages into blocks, and `ordering` says which of these are the chain: without sockets,
clock or store.
"""
