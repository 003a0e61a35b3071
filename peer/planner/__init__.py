"""What a node asks of whom, what it answers and what it offers (point2point.md 10).

It decides on requests, and cannot break the rules of the protocol, which are the table's. What it
proposes follows from a look at the store, from what came since, and from one ledger of what came to
nothing: an event that is missed costs a later look, but for what rests until there is one.
ARCHITECTURE.md says which file answers what.
"""
