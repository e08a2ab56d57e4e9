"""What a run works with, and what it returns."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cdc.debezium import Definitions, names
from cdc.errors import ConnectError, StateError, onboard_again
from cdc.lake.shards import ShardTable, SharedTable, timeline_of
from cdc.lake.write import FollowedTable, LakeTable
from cdc.run.published_generation import Served
from cdc.runtime.jvm_guard import was_killed
from cdc.runtime.spark import in_this_thread
from cdc.store.table_state import State
from schemas.table import TableId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.config import Config, TableSettings
    from cdc.connect import ConnectClient
    from cdc.debezium import CaptureNames
    from cdc.kafka import KafkaAdmin
    from cdc.lake.timeline import Timeline
    from cdc.runtime.progress import Progress
    from cdc.sources.base import Source
    from cdc.store.attempt import Attempt
    from cdc.store.error_record import ErrorRecord
    from cdc.store.lease import Leases
    from cdc.store.state_store import Store
    from cdc.store.table_state import TableRecord
    from schemas.registry import SchemaRegistry
    from schemas.table import TableSchema


@dataclass(frozen=True)
class RunContext:
    """Everything outside of this process that a run uses. All of it is shared among threads.

    Args:
        config: The configuration.
        session: The Spark session.
        store: States and history.
        kafka: Topics and offsets.
        registry: The writers' schemas.
        sources: Source databases by name.
        leases: One writer per table.
        progress: Where long work is shown.
        run_id: Identity of this run, recorded in commits and history.
        connect: Kafka Connect, to repeat the proof of capture; None skips that part.
        interrupted: Set once the command ends and interrupts its work in progress.
        captured_looks: By table, the digest of its catalog at a look of this command before which
            every change of the source is captured.
    """

    config: Config
    session: SparkSession
    store: Store
    kafka: KafkaAdmin
    registry: SchemaRegistry
    sources: Mapping[str, Source]
    leases: Leases
    progress: Progress
    run_id: str
    connect: ConnectClient | None = None
    interrupted: threading.Event = field(default_factory=threading.Event)
    captured_looks: Mapping[TableId, str] = field(default_factory=dict)
    topic_ends: dict[CaptureNames, int] = field(default_factory=dict, init=False, repr=False)
    """By capture without heartbeats, the sum of its topics' end offsets at the last look."""
    topic_settings: dict[str, Mapping[str, str]] = field(
        default_factory=dict, init=False, repr=False
    )
    """Topic settings that runs have read since the last look for topics that expire."""
    served: Served = field(default_factory=Served, init=False, repr=False)
    """What this process has seen of the tables' pointers."""
    _shared: dict[str, SharedTable] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @cached_property
    def definitions(self) -> Definitions:
        """What this process has read of the definitions that connectors report."""
        return Definitions(self.kafka, self.registry)

    @property
    def spark(self) -> SparkSession:
        """The session, set as the current one of the calling thread."""
        return in_this_thread(self.session)

    @property
    def ending(self) -> bool:
        """Whether the command is ending, which then explains a failure of its work."""
        return was_killed() or self.interrupted.is_set()

    def settings(self, record: TableRecord) -> TableSettings:
        """The settings of a table on the plan.

        Raises:
            ConfigError: The settings do not fit the table on the plan any more.
        """
        self.config.require_shard(record.table, record.shard)
        return self.config.settings_on_plan(record.table, record.tier)

    def connected(self) -> ConnectClient:
        """Kafka Connect.

        Raises:
            ConnectError: This run was not given a client.
        """
        if self.connect is None:
            raise ConnectError(
                "the run has no client of Kafka Connect",
                remedy="Give the run a client of Kafka Connect.",
            )
        return self.connect

    def timeline(self, attempt: Attempt) -> Timeline:
        """The commits of an attempt."""
        return timeline_of(self.spark, attempt)

    def lake(
        self, record: TableRecord, schema: TableSchema, settings: TableSettings
    ) -> FollowedTable:
        """The lake table of a record's attempt, or its part of one that several shards share.

        Raises:
            ConfigError: ``settings.hudi`` changes what the lake's correctness depends on.
            SchemaError: The table cannot be laid out as lake rows.
            StateError: The record has no attempt.
        """
        attempt = _attempt(record)
        if attempt.shard is None or record.shard is None:
            return self.copied(record, schema, settings)
        return ShardTable(
            self.spark,
            attempt.path,
            schema,
            settings,
            shard=record.shard,
            shared=self.shared(attempt.path),
        )

    def copied(
        self, record: TableRecord, schema: TableSchema, settings: TableSettings
    ) -> LakeTable:
        """The lake table that a record's attempt copies into, which no other table shares.

        Raises:
            ConfigError: ``settings.hudi`` changes what the lake's correctness depends on.
            SchemaError: The table cannot be laid out as lake rows.
        """
        return LakeTable(self.spark, _attempt(record).path, schema, settings)

    def shared(self, path: str) -> SharedTable:
        """This process's only writer of a table that several shards share."""
        with self._lock:
            if path not in self._shared:
                self._shared[path] = SharedTable(lambda: self.spark, self.leases, path)
            return self._shared[path]

    def capture(self, record: TableRecord) -> CaptureNames:
        """The capture that a table's changes come from."""
        source = record.table.source
        return names(source, self.config.source(source), record.tier)


@dataclass(frozen=True)
class RunResult:
    """What one run did to one table.

    Args:
        table: The table.
        state: Its state after the run.
        commits: Commits made.
        events: Changes applied.
        counts: Records by operation, tombstones among them.
        offsets: Next offset to read per partition.
        watermark: Event time up to which the lake is complete.
        error: What stopped it; None when nothing did.
        seconds: How long it took.
        started_at: When it began.
        skipped: Whether the table was left alone, because another process holds its lease or its
            state does not allow a run.
        warnings: What a person should look at, one sentence each.
    """

    table: TableId
    state: State
    commits: int = 0
    events: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[int, int] = field(default_factory=dict)
    watermark: datetime | None = None
    error: ErrorRecord | None = None
    seconds: float = 0.0
    started_at: datetime | None = None
    skipped: bool = False
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values for JSON output."""
        return {
            "table": str(self.table),
            "state": self.state.value,
            "commits": self.commits,
            "events": self.events,
            "counts": dict(self.counts),
            "offsets": {str(partition): at for partition, at in self.offsets.items()},
            "watermark": self.watermark.isoformat() if self.watermark else None,
            "error": asdict(self.error) if self.error is not None else None,
            "seconds": round(self.seconds, 3),
            "skipped": self.skipped,
            "warnings": list(self.warnings),
        }


def _attempt(record: TableRecord) -> Attempt:
    if record.attempt is None:
        raise StateError(
            f"table {record.table} has no attempt",
            remedy=f"The state store was altered: {onboard_again(record.table)}.",
            table=record.table,
        )
    return record.attempt
