"""``metrics``: the state of tables, captures and services as Prometheus metrics."""

PORT = 9465
"""The port of ``metrics serve``."""
LOOPBACK = "127.0.0.1"
"""The address of ``metrics serve``, which only this machine reaches."""
CACHE_S = 15.0
"""Seconds for which scrapes show the facts of an earlier scrape."""
