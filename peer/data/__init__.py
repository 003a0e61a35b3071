"""The data channel: packets move cursors, pieces are proved, rows and payloads become packets.

Knows positions in a request's sequence and never why somebody asked for it.
"""
