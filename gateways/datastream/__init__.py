"""Data streams with bookmarks over our logs: served to, and relayed from, other programs."""
