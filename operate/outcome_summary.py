"""Sums up what a command did, so that a person can read the outcome of thousands of tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from operate.table_outcome import Outcome
from schemas.table import TableId

MANY = 10
"""Number of tables above which a command ends with a summary, and prints each note only once."""


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return how many tables of a command had each outcome, as one line.

    For example: ``1,000 tables: 3 handed over to the stream, 995 up to date, 2 failed``.
    """
    done = Counter(one.counted_as for one in outcomes if one.error is None)
    parts = [f"{count:,} {what}" for what, count in done.items()]
    failed = sum(one.failed for one in outcomes)
    left_out = sum(one.left_out for one in outcomes)
    parts += [f"{failed:,} failed"] if failed else []
    parts += [f"{left_out:,} left out"] if left_out else []
    return f"{len(outcomes):,} tables: {', '.join(parts)}"


def notes(outcomes: Iterable[Outcome]) -> dict[str, list[TableId]]:
    """Return the notes on a command's tables, each note with the tables that have it."""
    found: dict[str, list[TableId]] = {}
    for outcome in outcomes:
        for note in outcome.details.get("notes", ()):
            found.setdefault(note, []).append(outcome.table)
    return found
