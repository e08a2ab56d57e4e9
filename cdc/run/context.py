"""The configuration and clients of a run, and the run's result for a table."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from cdc.capture.kept_statements import StatementsInStore
from cdc.capture.log_looks import LogLooks
from cdc.capture.onboarded_names import capture_of, require_as_onboarded
from cdc.capture.sent_records import SentRecords
from cdc.config.secret_files import SecretFiles
from cdc.debezium import Definitions
from cdc.errors import ConfigError, ConnectError, StateError, onboard_again
from cdc.lake.restored_files import WholeCommits
from cdc.lake.shard_timeline import timeline_of
from cdc.lake.shards import TURN_S, ShardTable, SharedTable
from cdc.lake.write import FollowedTable, LakeTable
from cdc.run.comparison import SettingsDigests, settings_digests
from cdc.run.core_gate import Cores, all_cores
from cdc.run.predictions import Predictions
from cdc.run.published_generation import Served
from cdc.run.published_settings import PublishedSettings
from cdc.runtime.copy_sessions import CopyBudget, CopyRate, CopySessions
from cdc.runtime.cpu_shares import CpuShares
from cdc.runtime.jvm_guard import was_killed
from cdc.runtime.rounds import Rounds
from cdc.runtime.spark import in_this_thread
from cdc.store.table_state import State
from schemas.table import TableId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.capture.unneeded_tables import Forgotten
    from cdc.config import Config, TableSettings
    from cdc.connect import ConnectClient
    from cdc.debezium import CaptureNames
    from cdc.kafka import KafkaAdmin, KnownRecord
    from cdc.lake.timeline import Committed, Timeline
    from cdc.runtime.progress import Progress
    from cdc.sources.base import Source
    from cdc.store.attempt import Attempt
    from cdc.store.completeness import Seen
    from cdc.store.error_record import ErrorRecord
    from cdc.store.lease import Leases
    from cdc.store.state_store import Store
    from cdc.store.table_state import TableRecord
    from schemas.registry import SchemaRegistry
    from schemas.table import TableSchema


@dataclass(frozen=True)
class RunContext:
    """The services and settings that a run uses.

    All threads share the services and settings.

    Args:
        config: The configuration.
        session: The Spark session.
        store: The state store, with states and history.
        kafka: The client of Kafka, for topics and offsets.
        registry: The schema registry, with the writers' schemas.
        sources: Source databases by name.
        leases: Leases that allow one writer per table.
        progress: Shows work that takes long.
        run_id: Identity of this run, recorded in commits and history.
        connect: Kafka Connect, for the checks of capture; if None, these checks are skipped.
        interrupted: Set if the command ends and interrupts its work in progress.
        captured_looks: For each table, the digest of a catalog fingerprint. After reading the
            fingerprint, this command has waited until every earlier change was captured. A copy of
            the table does not wait again if the table's fingerprint still has this digest.
        published_settings: Finds tables that another process has copied with newer settings than
            this process has.
        secret_files: The files with secrets that the clients have read.
        copy_budget: What the copies of one source may take from the source.
        rounds: The newest round of `run --continuous`, for metrics.
        cpu: Divides the CPU time of this process and Spark's JVM among the runs in progress.
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
    published_settings: PublishedSettings = field(default_factory=PublishedSettings)
    secret_files: SecretFiles = field(default_factory=SecretFiles)
    copy_budget: CopyBudget = field(default_factory=CopyBudget)
    rounds: Rounds = field(default_factory=Rounds)
    cpu: CpuShares = field(default_factory=CpuShares)
    topic_ends: dict[CaptureNames, dict[str, int]] = field(
        default_factory=dict, init=False, repr=False
    )
    """For each capture without heartbeats, the sum of each topic's end offsets, as last read."""
    topic_settings: dict[str, Mapping[str, str]] = field(
        default_factory=dict, init=False, repr=False
    )
    """For each topic, its Kafka settings that runs have read since the last check of retention."""
    seen_beats: dict[str, list[Seen]] = field(default_factory=dict, init=False, repr=False)
    """For each topic, the heartbeats of its capture that this process has read, oldest first."""
    proven: dict[tuple[str, int], KnownRecord] = field(default_factory=dict, init=False, repr=False)
    """For each partition of a topic, the last record that the topic's idle table has read.

    This process has found the record in the topic again, and does not search for the record again.
    """
    unchecked: list[Unchecked] = field(default_factory=list, init=False, repr=False)
    """The idle tables that the last check of idle tables had to leave out."""
    unneeded: dict[str, Sequence[str]] = field(default_factory=dict, init=False, repr=False)
    """For each connector, the last check's warnings about captured tables that nothing needs."""
    forgotten: dict[str, Forgotten | None] = field(default_factory=dict, init=False, repr=False)
    """For each capture (by its ``resource``), the captured tables that the state store has lost.

    The last check found these tables. The value is None if the state store has lost no table.
    """
    served: Served = field(default_factory=Served, init=False, repr=False)
    """The lake's pointer files that this process has read."""
    whole: WholeCommits = field(default_factory=WholeCommits, init=False, repr=False)
    """The commits whose files this process has written or checked."""
    _shared: dict[str, SharedTable] = field(default_factory=dict, init=False, repr=False)
    _copy_sessions: dict[str, CopySessions] = field(default_factory=dict, init=False, repr=False)
    _copy_rates: dict[str, CopyRate | None] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @cached_property
    def definitions(self) -> Definitions:
        """The table definitions that connectors have reported.

        This process reads only what no earlier process has read.
        """
        return Definitions(self.kafka, self.registry, StatementsInStore(self.store))

    @cached_property
    def predictions(self) -> Predictions:
        """Predicts the costs of runs; knows the time up to which each lake table has all events."""
        return Predictions(self.store)

    @property
    def looks(self) -> LogLooks:
        """Checks whether a capture's log continues from the end that the last check recorded."""
        return LogLooks(self.store, lambda: self.kafka, lambda: self.registry)

    @property
    def sent(self) -> SentRecords:
        """Reads what connectors have sent to Kafka, as evidence about their captures."""
        return SentRecords(
            self.store,
            lambda: self.kafka,
            lambda: self.registry,
            exactly_once=self.config.connect.exactly_once,
        )

    @property
    def spark(self) -> SparkSession:
        """A run's Spark session, which becomes the current session of the calling thread."""
        return in_this_thread(self.session)

    @property
    def ending(self) -> bool:
        """Whether the command of the run is ending.

        If so, an error that ends a table's run is not recorded as a failure of the table.
        """
        return was_killed() or self.interrupted.is_set()

    def settings(self, record: TableRecord) -> TableSettings:
        """Return a table's settings for a run, by the tier that the table's record names.

        Raises:
            ConfigError: The settings no longer fit the tier, the shard, the capture or the folder
                in the table's record, or the table's source is not configured.
        """
        self.config.source(record.table.source)
        self.config.require_shard(record.table, record.shard)
        return self.settings_of_idle(record)

    def settings_of_idle(self, record: TableRecord) -> TableSettings:
        """Return a table's settings as `settings` does, with fewer checks.

        The configuration can lack the table's source. The shard in the table's record is not
        checked.

        Raises:
            ConfigError: The settings no longer fit the tier, the capture or the folder in the
                table's record.
        """
        require_as_onboarded(self.config, record)
        return self.config.settings_on_plan(record.table, record.tier)

    def newest_settings(self, record: TableRecord) -> tuple[TableSettings, SettingsDigests]:
        """Return a table's settings and the digests of these settings; refuse outdated settings.

        Raises:
            OlderSettingsError: Since this process's start, another process has copied the table, or
                followed an edit of its settings. The other process used other settings than this
                process has. If this process's settings of the table are invalid, they count as
                other settings.
            ConfigError: As in `settings`.
            SecretError: The key of hashes cannot be read.
        """
        try:
            settings = self.settings(record)
        except ConfigError:
            self.published_settings.check(record, None)
            raise
        digests = settings_digests(settings, self.config.lake)
        self.published_settings.check(record, digests)
        return settings, digests

    def connected(self) -> ConnectClient:
        """Return the run's client of Kafka Connect.

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
        """Return the commits of an attempt's lake table; for a shard, only the shard's commits."""
        return timeline_of(self.spark, attempt)

    def lake(
        self,
        record: TableRecord,
        schema: TableSchema,
        settings: TableSettings,
        *,
        wait_s: float = TURN_S,
    ) -> FollowedTable:
        """Return the lake table to which a run writes; for a shard, its part of the shared table.

        Args:
            record: The table's record.
            schema: The table's columns.
            settings: The table's settings.
            wait_s: Bound of the wait for another process that commits to a shared table, in
                seconds.

        Raises:
            ConfigError: ``settings.hudi`` changes an option that the lake's correctness depends on.
            SchemaError: The table's columns do not make valid lake rows.
            StateError: The record has no attempt.
        """
        attempt = _require_attempt(record)
        if attempt.shard is None or record.shard is None:
            return self.copied(record, schema, settings)
        return ShardTable(
            self.spark,
            attempt.path,
            schema,
            settings,
            shard=record.shard,
            write=partial(self.shared(attempt.path).write, wait_s=wait_s),
        )

    def copied(
        self, record: TableRecord, schema: TableSchema, settings: TableSettings
    ) -> LakeTable:
        """Return the lake table to which the copy of a record's attempt writes.

        A shard's copy does not write to the shared table, so this lake table is not shared.

        Raises:
            ConfigError: ``settings.hudi`` changes an option that the lake's correctness depends on.
            SchemaError: The table's columns do not make valid lake rows.
        """
        return LakeTable(self.spark, _require_attempt(record).path, schema, settings, self.whole)

    def shared(self, path: str) -> SharedTable:
        """Return this process's only writer of a lake table that shards share."""
        with self._lock:
            if path not in self._shared:
                self._shared[path] = SharedTable(
                    lambda: self.spark, self.leases, path, self.whole, self.interrupted
                )
            return self._shared[path]

    def copy_sessions(self, source: str) -> CopySessions:
        """Return the database sessions that this process's copies of a source share."""
        with self._lock:
            if source not in self._copy_sessions:
                most = self.copy_budget.sessions or self.config.source(source).copy_sessions
                self._copy_sessions[source] = CopySessions(most)
            return self._copy_sessions[source]

    def copy_rate(self, source: str) -> CopyRate | None:
        """Return the rate that this process's copies of a source share; None if it has no limit."""
        with self._lock:
            if source not in self._copy_rates:
                most = self.copy_budget.mb_per_s or self.config.source(source).copy_mb_per_s
                self._copy_rates[source] = None if most is None else CopyRate(most)
            return self._copy_rates[source]

    def capture(self, record: TableRecord) -> CaptureNames:
        """Return the names of a table's capture, as they were at the table's onboarding."""
        return capture_of(self.config, record)


@dataclass(frozen=True)
class Turn:
    """The limits of one table's run in continuous runs, so that other tables get the worker, too.

    A run with a turn stops after a commit if the turn's time is over, or if another process waits
    for the table. The table's next run takes the remaining changes.

    Args:
        seconds: The turn's time; if None, the time has no limit.
        events: Maximum number of events in one commit; if None, the limit of the table's settings
            applies.
        cores: Holds cores for a large batch while it is applied.
    """

    seconds: float | None = None
    events: int | None = None
    cores: Cores = all_cores

    def events_per_commit(self, most: int) -> int:
        """Return the maximum number of events in one commit in a table's turn.

        Args:
            most: The limit of the table's settings.
        """
        return most if self.events is None else min(most, self.events)

    def is_over(self, after_s: float) -> bool:
        """Whether the turn's time is over when the run has taken ``after_s`` seconds."""
        return self.seconds is not None and after_s >= self.seconds


@dataclass(frozen=True)
class Unchecked:
    """A capture's idle tables that a run could not check for changes that send no event.

    Args:
        source: The source.
        tier: The tier.
        tables: The tables.
        reason: Why the tables were not checked.
        remedy: What the operator can do.
    """

    source: str
    tier: str
    tables: tuple[TableId, ...]
    reason: str
    remedy: str

    @property
    def message(self) -> str:
        """The unchecked tables and the reason, as a message of a run."""
        return (
            f"{len(self.tables)} idle tables of {self.source} were not checked for changes without"
            f" events: {self.reason}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the unchecked tables and the message as plain values, for JSON."""
        return {**asdict(self), "tables": list(map(str, self.tables)), "message": self.message}


@dataclass(frozen=True)
class RunResult:
    """The result of one run for one table.

    Args:
        table: The table.
        state: The table's state after the run.
        commits: Number of commits that the run made.
        events: Number of changes that the run applied.
        counts: Number of records by operation, including tombstones.
        offsets: Next offset to read per partition.
        watermark: Event time up to which the lake is complete.
        instant: Hudi instant of the table's newest commit; None if the run has not read it.
        error: The error that stopped the run; None if the run ended normally.
        seconds: Duration of the run in seconds.
        steps: Duration of each step of the run in seconds, by the names of `step_times.STEPS`.
        cpu_s: The run's share of the CPU time of this process and Spark's JVM, in seconds.
        written_bytes: Size of the data files that the run wrote to the lake.
        started_at: Time of the run's start.
        deferred: Whether a shard's run gave its worker back because another process writes to the
            shared lake table. The shard's next run continues.
        skipped: Whether the run did nothing, because another process holds the table's lease or the
            table's state does not allow a run.
        warnings: Warnings for the operator, one sentence each.
    """

    table: TableId
    state: State
    commits: int = 0
    events: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[int, int] = field(default_factory=dict)
    watermark: datetime | None = None
    instant: str | None = None
    error: ErrorRecord | None = None
    seconds: float = 0.0
    steps: Mapping[str, float] = field(default_factory=dict)
    cpu_s: float = 0.0
    written_bytes: int = 0
    started_at: datetime | None = None
    skipped: bool = False
    deferred: bool = False
    warnings: tuple[str, ...] = ()

    def after(self, earlier: RunResult | None) -> RunResult:
        """Return the joint result of this run and of an earlier, deferred run of the table."""
        if earlier is None:
            return self
        return replace(
            self,
            commits=earlier.commits + self.commits,
            events=earlier.events + self.events,
            counts=dict(Counter(earlier.counts) + Counter(self.counts)),
            seconds=earlier.seconds + self.seconds,
            steps=dict(Counter(earlier.steps) + Counter(self.steps)),
            cpu_s=earlier.cpu_s + self.cpu_s,
            written_bytes=earlier.written_bytes + self.written_bytes,
            started_at=earlier.started_at,
            skipped=self.skipped and earlier.skipped,
        )

    def at_commit(self, newest: Committed, written_bytes: int = 0) -> RunResult:
        """Return this result with offsets, watermark and instant of the table's newest commit.

        Args:
            newest: The newest commit.
            written_bytes: Size of the data files that the commit wrote; 0 if it is not known, if
                the commit follows a schema change, or if this run did not make the commit.
        """
        return replace(
            self,
            offsets=dict(newest.record.offsets),
            watermark=newest.record.watermark,
            instant=newest.instant,
            written_bytes=self.written_bytes + written_bytes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result of a run as plain values for JSON output."""
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
            "steps": dict(self.steps),
            "skipped": self.skipped,
            "deferred": self.deferred,
            "warnings": list(self.warnings),
        }


def _require_attempt(record: TableRecord) -> Attempt:
    """Return a table's attempt for a run; raise StateError if the table has no attempt."""
    if record.attempt is None:
        raise StateError(
            f"table {record.table} has no attempt",
            remedy=f"The state store was altered: {onboard_again(record.table)}.",
            table=record.table,
        )
    return record.attempt
