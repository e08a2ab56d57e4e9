"""Each table's history of runs, schema changes and state changes, kept for people to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from cdc.errors import StateError
from cdc.store.actor import Actor
from cdc.store.documents import Codec, Part
from cdc.store.error_record import ErrorRecord
from cdc.store.recorded_change import RecordedChange
from cdc.store.table_state import STORE_REMEDY, LakeField, State, TableRecord
from schemas.changes import Verdict
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.lake.handoff import FollowedSchema, Handoff


FOLLOWED = "followed"
"""The outcome of a schema change that the lake has followed."""


@dataclass(frozen=True)
class RunEntry(Part):
    """One run of a table, or several runs of one hour, as an entry of the run history.

    In an entry of several runs, ``seconds``, ``steps``, ``commits``, ``events``, ``counts`` and
    ``runs`` are sums. ``started_at`` is from the first run, and everything else is from the newest
    run.

    Args:
        run_id: Identity of the run.
        table: The table.
        generation: The table's generation.
        state: The table's state after the run.
        started_at: When the first run of the entry began to process the table.
        seconds: How long the run processed the table, in seconds.
        steps: A mapping from each step's name in `cdc.runtime.step_times.STEPS` to how long the
            step of the run took, in seconds.
        commits: Number of commits.
        events: Number of changes that were applied.
        counts: A mapping from each operation to the number of Kafka records, including tombstones.
        offsets: Next offset to read per partition after the run.
        watermark: Event time up to which the table is complete.
        error: The error that ended the table's processing; None if it succeeded.
        runs: Number of runs that share this entry.
        by: The command that executed the run. The state store adds it.
        instant: Hudi instant of the commit that was the table's newest one when the run ended; None
            if the run has not read it.
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
    runs: int = 1
    steps: Mapping[str, float] = field(default_factory=dict)
    by: Actor | None = None
    instant: str | None = None
    format: Literal[1] = 1

    def after(self, earlier: RunEntry) -> RunEntry | None:
        """Return one entry for this run and an earlier run; None if the two runs differ.

        The two runs differ if they began in different hours, or if their states, generations,
        errors or commands are not the same.
        """
        if _shared_run_values(self) != _shared_run_values(earlier):
            return None
        return replace(
            self,
            started_at=earlier.started_at,
            seconds=earlier.seconds + self.seconds,
            steps=dict(Counter(earlier.steps) + Counter(self.steps)),
            commits=earlier.commits + self.commits,
            events=earlier.events + self.events,
            counts=dict(Counter(earlier.counts) + Counter(self.counts)),
            runs=earlier.runs + self.runs,
        )

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
            "steps": dict(self.steps),
            "commits": self.commits,
            "events": self.events,
            "counts": dict(self.counts),
            "offsets": {str(partition): offset for partition, offset in self.offsets.items()},
            "watermark": None if self.watermark is None else self.watermark.isoformat(),
            "instant": self.instant,
            "error": None if self.error is None else asdict(self.error),
            "runs": self.runs,
            "by": _actor_json(self.by),
        }


def _shared_run_values(entry: RunEntry) -> tuple[object, ...]:
    """Return the values that are equal in all runs which share one entry of the stored history."""
    hour = entry.started_at.astimezone(timezone.utc).replace(minute=0, second=0, microsecond=0)
    error = None if entry.error is None else (entry.error.error, entry.error.message)
    return (hour, entry.table, entry.generation, entry.state, error, entry.by)


def _actor_json(actor: Actor | None) -> dict[str, Any] | None:
    """Return the actor of a history's entry as JSON; None for an entry without an actor."""
    return None if actor is None else actor.to_json()


@dataclass(frozen=True)
class SchemaEntry(Part):
    """One change of a table's schema, as an entry of the schema history.

    Args:
        table: The table.
        generation: The table's generation.
        version: Version of the schema after the change. In each generation, the copied columns are
            version 1. If the table stopped at the change, the lake still has an earlier version.
        at: When the lake followed the change, or when the table stopped at the change.
        schema_ids: Registry ids of the schemas of the events in the last batch before the change.
        changes: The differences from the previous version.
        outcome: ``followed``, or the table's new state: ``needs_bootstrap``, ``paused``.
        key: Identifies the entry, so that a second write of the entry has no effect.
        by: The command that recorded the change. The state store adds it.
        run_id: Identity of the runs of the command in ``by``. The state store adds it.
        columns: The lake's columns after the change; empty if the table stopped at the change.
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
    by: Actor | None = None
    run_id: str | None = None
    columns: tuple[LakeField, ...] = ()
    format: Literal[1] = 1

    @property
    def former_key(self) -> str:
        """The key of the change that the same attempt followed before; only of a followed change.

        An attempt numbers the changes that it follows without gaps.
        """
        return f"{self.key.removesuffix(str(self.version))}{self.version - 1}"

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict (effect on the lake) among the changes of this entry."""
        return Verdict.gravest(change.verdict for change in self.changes)

    @classmethod
    def followed(cls, record: TableRecord, handoff: Handoff) -> SchemaEntry | None:
        """Return the schema history's entry for the newest change that a lake table has followed.

        The result is None if the lake table has not followed any change.

        Args:
            record: The table's record in the state store.
            handoff: The handoff document in the lake table's last commit. The document contains the
                newest followed change.
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
            outcome=FOLLOWED,
            key=f"{record.attempt.id}/{written.version}",
            columns=handoff.fields,
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
            "by": _actor_json(self.by),
            "run_id": self.run_id,
        }


@dataclass(frozen=True)
class StateEntry(Part):
    """One change of a table's state, as an entry of the history of states.

    Args:
        table: The table.
        generation: The table's generation after the change.
        beside: Whether the changed record is that of the next generation, which a resync builds
            beside the serving generation.
        former: The state before the change; None if there was no record.
        state: The state after the change; None if the record was removed.
        why: The reason or the error in the record after the change; None if it has neither.
        by: The command that has made the change.
        run_id: Identity of the command's runs.
        format: Version of this document.
    """

    table: TableId
    generation: int
    beside: bool
    former: State | None
    state: State | None
    why: str | None
    by: Actor
    run_id: str
    format: Literal[1] = 1

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that commands print for a change of a table's state."""
        return {
            "source": self.table.source,
            "schema": self.table.schema,
            "table": self.table.name,
            "generation": self.generation,
            "next_generation": self.beside,
            "former": None if self.former is None else self.former.value,
            "state": None if self.state is None else self.state.value,
            "why": self.why,
            "by": self.by.to_json(),
            "run_id": self.run_id,
        }


RUN_ENTRIES = Codec(RunEntry, error=StateError, remedy=STORE_REMEDY)
"""The codec of the state store's run history."""
SCHEMA_ENTRIES = Codec(SchemaEntry, error=StateError, remedy=STORE_REMEDY)
"""The codec of the state store's schema history."""
STATE_ENTRIES = Codec(StateEntry, error=StateError, remedy=STORE_REMEDY)
"""The codec of the state store's history of states."""
