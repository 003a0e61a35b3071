"""What a node asks of whom, what it answers and what it offers (point2point.md 10).

It decides on requests, and cannot break the rules of the protocol, which are the table's.
"""
