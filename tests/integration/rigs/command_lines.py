"""The command lines of all processes of the machine, as any user can list them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tests.integration.rigs.at_work import at_work

SAMPLE_S = 0.2
"""Seconds between two readings of all command lines."""


@contextmanager
def watched_command_lines() -> Iterator[set[str]]:
    """Collect the command lines of all processes of the machine while a block runs."""
    seen: set[str] = set()

    def look(_: int, stop: threading.Event) -> None:
        while not stop.wait(SAMPLE_S):
            for process in psutil.process_iter(["cmdline"]):
                seen.add(" ".join(process.info["cmdline"] or ()))

    with at_work(look):
        yield seen
