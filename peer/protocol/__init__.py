"""What both sides have agreed on: requests, their rules and sequences, and the control channel.

What the host and the engine say to each other (commands, events, notices, limits, errors) is here
too, since everything above speaks of it.
"""
