"""Who gets in: the node key's certificate, TLS 1.3 with both sides' keys, and who is allowed.

`links` takes connections in and makes them through this; here nothing is known of sessions.
"""
