"""Attacks on a real node, and what each of them costs those who do nothing wrong.

`python -m siege` runs the table; docs/siege.md says how to read what it prints. The node is a
`bamboo-peer serve` process, the honest peers and the hostile ones are processes of their own, and
everything stays on loopback.
"""
