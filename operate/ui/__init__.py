"""The page of ``tributary ui`` and the report: the fleet as `status` and `history` show it."""

PORT = 9466
"""The port at which ``tributary ui`` listens by default."""
CACHE_S = 10.0
"""Seconds for which the page shows the facts of one read."""
