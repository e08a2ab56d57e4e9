"""What each run did to each table, kept for people to look back at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cdc.state import State
from schemas.table import TableId


@dataclass(frozen=True)
class RunEntry:
    """One table's part of one run, for the history.

    Args:
        run_id: Identity of the run.
        table: Which table.
        generation: The table's generation.
        state: The table's state after the run.
        started_at: When the table's part began.
        seconds: How long it took.
        commits: Commits made.
        events: Events read.
        counts: Events by operation.
        offsets: Next offset to read per partition after the run.
        watermark: Event time up to which the table is complete.
        error: What failed, as ``TributaryError.to_dict`` gives it.
    """

    run_id: str
    table: TableId
    generation: int
    state: State
    started_at: datetime
    seconds: float
    commits: int
    events: int
    counts: Mapping[str, int]
    offsets: Mapping[int, int]
    watermark: datetime | None = None
    error: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The entry as plain values."""
        return {
            "run_id": self.run_id,
            "source": self.table.source,
            "schema": self.table.schema,
            "table": self.table.name,
            "generation": self.generation,
            "state": self.state.value,
            "started_at": self.started_at.isoformat(),
            "seconds": self.seconds,
            "commits": self.commits,
            "events": self.events,
            "counts": dict(self.counts),
            "offsets": {str(partition): offset for partition, offset in self.offsets.items()},
            "watermark": None if self.watermark is None else self.watermark.isoformat(),
            "error": None if self.error is None else dict(self.error),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RunEntry:
        """Read what ``to_json`` wrote."""
        watermark = value["watermark"]
        return cls(
            run_id=value["run_id"],
            table=TableId(value["source"], value["schema"], value["table"]),
            generation=value["generation"],
            state=State(value["state"]),
            started_at=datetime.fromisoformat(value["started_at"]),
            seconds=value["seconds"],
            commits=value["commits"],
            events=value["events"],
            counts=value["counts"],
            offsets={int(partition): offset for partition, offset in value["offsets"].items()},
            watermark=None if watermark is None else datetime.fromisoformat(watermark),
            error=value["error"],
        )
