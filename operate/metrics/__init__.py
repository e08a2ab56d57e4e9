"""``metrics``: the state of tables, captures and services as Prometheus metrics."""

PORT = 9465
"""The default port of ``metrics serve``."""
LOOPBACK = "127.0.0.1"
"""The default address of ``metrics serve``, which only this machine reaches."""
CACHE_S = 15.0
"""Seconds for which scrapes (reads by Prometheus) show the facts that an earlier scrape read."""
