"""Each table's history of runs and of schema changes, kept for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from cdc.errors import StateError
from cdc.store.documents import Codec, Part
from cdc.store.error_record import ErrorRecord
from cdc.store.recorded_change import RecordedChange
from cdc.store.table_state import STORE_REMEDY, State, TableRecord
from schemas.changes import Verdict
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.lake.handoff import FollowedSchema, Handoff


@dataclass(frozen=True)
class RunEntry(Part):
    """One run of a table, as an entry of the run history.

    Args:
        run_id: Identity of the run.
        table: The table.
        generation: The table's generation.
        state: The table's state after the run.
        started_at: When the run began to process the table.
        seconds: How long the run processed the table, in seconds.
        commits: Number of commits.
        events: Number of changes that were applied.
        counts: Number of Kafka records by operation, including tombstones.
        offsets: Next offset to read per partition after the run.
        watermark: Event time up to which the table is complete.
        error: The error that ended the table's processing; None if it succeeded.
        format: Version of this document.
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
    error: ErrorRecord | None = None
    format: Literal[1] = 1

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that commands print for a run of a table."""
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
            "error": None if self.error is None else asdict(self.error),
        }


@dataclass(frozen=True)
class SchemaEntry(Part):
    """One change of a table's schema, as an entry of the schema history.

    Args:
        table: The table.
        generation: The table's generation.
        version: Version of the schema after the change. In each generation, the copied columns are
            version 1. If the table stopped at the change, the lake has an earlier version.
        at: When the lake followed the change, or when the table stopped at the change.
        schema_ids: Registry ids of the schemas with which events before the change were written.
        changes: The differences from the previous version.
        outcome: ``followed``, or the table's new state: ``needs_bootstrap``, ``paused``.
        key: Identifies the entry, so that a second write of it has no effect.
        format: Version of this document.
    """

    table: TableId
    generation: int
    version: int
    at: datetime
    schema_ids: tuple[int, ...]
    changes: tuple[RecordedChange, ...]
    outcome: str
    key: str
    format: Literal[1] = 1

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict among the changes of this entry."""
        return Verdict.gravest(change.verdict for change in self.changes)

    @classmethod
    def followed(cls, record: TableRecord, handoff: Handoff) -> SchemaEntry | None:
        """Return the schema history's entry for the newest change that a lake table has followed.

        The result is None if the lake table has not followed any change.

        Args:
            record: The table's record in the state store.
            handoff: The handoff document in the lake table's last commit, which contains the newest
                followed change.
        """
        written = handoff.schema
        if written is None or record.attempt is None:
            return None
        return cls(
            table=record.table,
            generation=record.generation,
            version=written.version,
            at=written.at,
            schema_ids=written.schema_ids,
            changes=written.changes,
            outcome="followed",
            key=f"{record.attempt.id}/{written.version}",
        )

    @classmethod
    def stopped(
        cls, record: TableRecord, schema: FollowedSchema, outcome: State, *, catalog: str
    ) -> SchemaEntry:
        """Return the schema history's entry for a change at which a table stopped.

        Args:
            record: The table's record in the state store.
            schema: The schema version that the lake would have after the change.
            outcome: The table's new state.
            catalog: Digest of the catalog at which the table stopped. A table that stops several
                times at the same catalog has one entry.
        """
        attempt = record.attempt.id if record.attempt is not None else None
        return cls(
            table=record.table,
            generation=record.generation,
            version=schema.version,
            at=schema.at,
            schema_ids=schema.schema_ids,
            changes=schema.changes,
            outcome=outcome.value,
            key=f"{attempt}/{schema.version}/{outcome.value}/{catalog[:32]}",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that commands print for a change of a table's schema."""
        return {
            "source": self.table.source,
            "schema": self.table.schema,
            "table": self.table.name,
            "generation": self.generation,
            "version": self.version,
            "at": self.at.isoformat(),
            "schema_ids": list(self.schema_ids),
            "verdict": self.verdict.value,
            "outcome": self.outcome,
            "changes": [change.to_json() for change in self.changes],
        }


RUN_ENTRIES = Codec(RunEntry, error=StateError, remedy=STORE_REMEDY)
"""The codec of the state store's run history."""
SCHEMA_ENTRIES = Codec(SchemaEntry, error=StateError, remedy=STORE_REMEDY)
"""The codec of the state store's schema history."""
