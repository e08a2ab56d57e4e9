"""Predicts which captures get nearly as many events as one connector can send."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from cdc.capture.captured_tables import listed
from cdc.store.table_state import TableRecord
from schemas.table import TableId

NEAR = 0.7
"""The fraction of a connector's maximum load above which `plan` warns.

At this load, a connector needs more than two hours to make up for a standstill of one hour.
"""
_NAMED = 3
"""Maximum number of tables that a warning names."""


@dataclass(frozen=True)
class CaptureLoad:
    """The number of events of a capture's tables, and the number that one connector can send.

    Args:
        connector: Name of the capture's connector.
        events_per_s: Number of events that arrive per second, as predicted from earlier runs.
        most_per_s: Number of events per second that a connector can send, from the setting
            ``connect.events_per_s``.
        heaviest: The capture's tables with the most events, the heaviest first.
    """

    connector: str
    events_per_s: float
    most_per_s: float
    heaviest: tuple[TableId, ...]

    @property
    def load(self) -> float:
        """The fraction of the connector's time that the events need."""
        return self.events_per_s / self.most_per_s

    @property
    def near(self) -> bool:
        """Whether the load is above `NEAR`."""
        return self.load > NEAR

    @property
    def warning(self) -> str:
        """What ``plan`` prints about a capture that is near its limit."""
        return (
            f"connector {self.connector} gets about {self.events_per_s:,.0f} events a second,"
            f" {self.load:.0%} of what one connector sends (connect.events_per_s:"
            f" {self.most_per_s:,.0f}); after a standstill, its tables are late for hours"
        )

    @property
    def remedy(self) -> str:
        """What ``plan`` advises: how to split the capture, or how to correct the setting."""
        return (
            f"set another `tier` for some of its tables (most events: {listed(self.heaviest)}) and"
            " `tributary move` them, since each tier has a connector of its own, or set"
            " connect.events_per_s to what benchmarks/capture.py measures on your workers"
        )

    def to_json(self) -> dict[str, Any]:
        """The capture's load as plain values."""
        return {
            "connector": self.connector,
            "events_per_s": self.events_per_s,
            "most_per_s": self.most_per_s,
            "load": self.load,
            "near": self.near,
            "heaviest": list(map(str, self.heaviest)),
        }


def capture_loads(
    records: Iterable[TableRecord],
    connector: Callable[[TableRecord], str],
    rate: Callable[[TableId], float],
    most_per_s: float,
) -> tuple[CaptureLoad, ...]:
    """Return the load of each capture, sorted by the name of the capture's connector.

    Args:
        records: The records of the tables whose events count; they can be of several captures.
        connector: Returns the name of the connector that captures a table.
        rate: Returns a table's number of events per second.
        most_per_s: Number of events per second that a connector can send.
    """
    rates: dict[str, list[tuple[float, TableId]]] = {}
    for record in records:
        rates.setdefault(connector(record), []).append((rate(record.table), record.table))
    return tuple(
        CaptureLoad(
            name,
            sum(events for events, _ in found),
            most_per_s,
            tuple(table for _, table in sorted(found, key=itemgetter(0), reverse=True)[:_NAMED]),
        )
        for name, found in sorted(rates.items())
    )
