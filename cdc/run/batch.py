"""One batch: a range of a topic becomes one lake commit."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import functions as F

from cdc import plan
from cdc.changes import MISSING, MOVED, Summary, fill, fold, summarize
from cdc.debezium import PLACEHOLDER
from cdc.decode import PARTITION, PROBLEM, SCHEMA_ID, UNKNOWN_SCHEMA, decode, read_changes
from cdc.errors import DecodeError, PausedByPolicyError
from cdc.failpoints import crash
from cdc.lake.commit import CommitRecord
from cdc.position import Lsn
from cdc.run.shape import with_columns
from cdc.semantic_types import quoted
from schemas.avro import DebeziumSchema
from schemas.errors import AvroSchemaError, RegistryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc.config import TableSettings
    from cdc.lake.guard import Guard
    from cdc.lake.write import LakeTable
    from cdc.plan import Range
    from cdc.run.context import RunContext
    from cdc.sources.values import SourceTable
    from schemas.table import TableSchema

_log = logging.getLogger(__name__)
_FETCH_KEYS = 2_000


@dataclass(frozen=True)
class Applied:
    """A commit that was made.

    Args:
        record: What it says about itself.
        instant: Its instant in the lake.
        events: Changes applied.
    """

    record: CommitRecord
    instant: str
    events: int


class BatchWriter:
    """Applies ranges of one table's topic to its lake table.

    Args:
        context: What runs work with.
        source_table: The table as the source's catalog has it.
        source_schema: Its lake schema by that catalog.
        lake: The lake table, with the columns that it keeps.
        lake_columns: Source columns that the lake table has already.
        settings: The table's settings.
        topic: The topic.
    """

    def __init__(
        self,
        context: RunContext,
        *,
        source_table: SourceTable,
        source_schema: TableSchema,
        lake: LakeTable,
        lake_columns: Collection[str],
        settings: TableSettings,
        topic: str,
    ) -> None:
        self._context = context
        self._source_table = source_table
        self._source_schema = source_schema
        self._lake = lake
        self._lake_columns = lake_columns
        self._schema = lake.layout.schema
        self._settings = settings
        self._topic = topic
        self._java = context.config.kafka.java_config()
        self._schemas: dict[int, DebeziumSchema] = {}
        self._held: list[DataFrame] = []

    @property
    def _soft(self) -> bool:
        return self._settings.delete_mode == "soft"

    def apply(self, piece: Range, previous: CommitRecord, guard: Guard) -> Applied:
        """Read, decode, fold, fill and commit one range.

        Args:
            piece: What to read.
            previous: The lake's newest commit with offsets.
            guard: Called under the commit; raises to refuse it.

        Raises:
            DecodeError: A record cannot be applied.
            SchemaChangeError: A writer's type cannot become the lake's.
            PausedByPolicyError: A TRUNCATE is next, and the policy is to pause.
            FencedError: Another writer has moved the table on.
        """
        self._expect(previous.schema_ids)
        try:
            changes, summary = self._read(piece)
            if summary.first_truncate is not None and self._settings.on_truncate == "pause":
                piece, changes, summary = self._before_truncate(piece, summary.first_truncate)
            return self._commit(piece, previous, changes, summary, guard)
        finally:
            while self._held:
                self._held.pop().unpersist()

    def _read(self, piece: Range) -> tuple[DataFrame, Summary]:
        """The batch in normal form, kept in memory, and what it contains: one pass over Kafka.

        The ids of the writers' schemas are in the records, so a batch with a new one is read
        twice; all others are read once, with the schemas that the last batch had.
        """
        spark = self._context.spark
        tasks = max(
            len(piece.start), plan.tasks(piece.offsets, spark.sparkContext.defaultParallelism)
        )
        records = read_changes(spark, self._java, self._topic, piece.start, piece.end, tasks=tasks)
        if not self._schemas:
            # Nothing is known of the topic yet: the first record's schema is most often the only.
            first = records.filter("length(value) >= 5").selectExpr(SCHEMA_ID).first()
            self._expect(first or ())
        while True:
            decoded = decode(
                records,
                self._schemas,
                self._schema,
                placeholder=PLACEHOLDER,
                ingested_at=datetime.now(timezone.utc),
            )
            changes = self._hold(decoded)
            if tasks == 1:
                # Said aloud, so that Spark sorts and folds the one piece where it is.
                changes = changes.coalesce(1)
            summary = summarize(changes)
            if summary.problem is not None:
                problem = summary.problem
                raise self._unreadable(
                    problem.partition, problem.offset, problem.schema_id, problem.reason
                )
            if not summary.unknown_schemas:
                return changes, summary
            for schema_id in summary.unknown_schemas:
                self._learn_from(changes, schema_id)
            self._held.pop().unpersist()

    def _expect(self, schema_ids: Sequence[int]) -> None:
        """Have schemas ready that a batch will most likely need; those that cannot be had wait."""
        for schema_id in schema_ids:
            try:
                self._learn(schema_id)
            except (AvroSchemaError, RegistryError) as error:
                _log.debug("schema %s is not at hand: %s", schema_id, error)

    def _learn(self, schema_id: int) -> None:
        if schema_id not in self._schemas:
            schema = DebeziumSchema.parse(self._context.registry.schema(schema_id))
            if not schema.is_envelope:
                raise AvroSchemaError(
                    f"schema id {schema_id} is {schema.name}, which is no change event",
                    remedy="Check that only the Debezium connector writes to the topic.",
                    schema_id=schema_id,
                )
            self._schemas[schema_id] = schema

    def _learn_from(self, changes: DataFrame, schema_id: int) -> None:
        """Fetch a schema; if there is none, name the first record that asks for it."""
        try:
            self._learn(schema_id)
        except (AvroSchemaError, RegistryError) as error:
            if isinstance(error, RegistryError) and "schema_id" not in error.context:
                raise  # the registry is unreachable: no record is to blame
            asks = (F.col(PROBLEM) == UNKNOWN_SCHEMA) & (F.col("_cdc_schema_id") == schema_id)
            first = changes.filter(asks).orderBy("_cdc_offset").first()
            raise self._unreadable(
                first[PARTITION] if first else 0,
                first["_cdc_offset"] if first else 0,
                schema_id,
                error.message,
            ) from error

    def _before_truncate(self, piece: Range, truncate: int) -> tuple[Range, DataFrame, Summary]:
        """The part of the batch before a TRUNCATE."""
        if all(at >= truncate for at in piece.start.values()):
            table = self._schema.table
            raise PausedByPolicyError(
                f"table {table} was truncated on the source (offset {truncate} of topic"
                f" {self._topic}), and on_truncate is pause",
                remedy="Set on_truncate to apply or ignore for this table, then"
                f" `tributary resume {table}`.",
                table=table,
                topic=self._topic,
                offset=truncate,
            )
        self._held.pop().unpersist()
        shorter = replace(
            piece, end={partition: min(at, truncate) for partition, at in piece.end.items()}
        )
        return shorter, *self._read(shorter)

    def _commit(
        self,
        piece: Range,
        previous: CommitRecord,
        changes: DataFrame,
        summary: Summary,
        guard: Guard,
    ) -> Applied:
        commit = self._record(piece, previous, summary)
        truncated = summary.last_truncate if self._settings.on_truncate == "apply" else None
        rows_changed = any(summary.counts.get(op) for op in ("c", "r", "u", "d"))
        crash("run.before_commit")
        if not rows_changed and truncated is None:
            instant = self._lake.empty_commit(commit, guard)
            return Applied(commit, instant, summary.events)
        rows = fold(
            changes,
            self._schema,
            unavailable=summary.unavailable,
            soft_delete=self._soft and bool(summary.counts.get("d")),
            after_offset=truncated,
        )
        if summary.unavailable or (self._soft and summary.counts.get("d")):
            rows = self._filled(rows, from_lake=truncated is None)
        rows = rows.drop(MISSING, MOVED)
        if truncated is None:
            instant = self._lake.upsert(rows, commit, guard)
        else:
            left = rows if self._soft else rows.filter(F.col("_cdc_op") != "d")
            instant = self._lake.overwrite(left, commit, guard)
        return Applied(commit, instant, summary.events)

    def _record(self, piece: Range, previous: CommitRecord, summary: Summary) -> CommitRecord:
        return CommitRecord(
            kind="run",
            table=self._schema.table,
            attempt=previous.attempt,
            generation=previous.generation,
            start_offsets=piece.start,
            offsets=piece.end,
            topic=self._topic,
            topic_id=previous.topic_id,
            position=_position(previous.position, summary.position),
            watermark=plan.watermark(
                previous.watermark, summary.source_ts, self._settings.allowed_lateness_s
            ),
            counts=summary.counts,
            schema_ids=summary.schema_ids or previous.schema_ids,
            handoff=with_columns(previous.handoff or {}, self._schema),
            run_id=self._context.run_id,
        )

    def _filled(self, rows: DataFrame, *, from_lake: bool) -> DataFrame:
        """The rows with every value that can be known; neither a stand-in nor a silent NULL.

        In the order of trust: the batch itself (the fold did that), the lake's row under the same
        key, the source's row of now. The source's row may be newer than the batch; then the
        change that made it newer is still in the log, and applying it gives the same value.
        """
        rows = self._hold(rows)
        missing = self._missing(rows)
        if not missing:
            return rows
        if from_lake:
            rows = self._from_lake(rows, missing)
        if self._soft:
            # Nobody knows more of a deleted row than the lake did.
            unknown = F.when(F.col("_cdc_op") != "d", F.col(MISSING))
            rows = rows.withColumn(MISSING, unknown)
        rows = self._hold(rows)
        missing = self._missing(rows)
        return self._from_source(rows, missing) if missing else rows

    def _missing(self, rows: DataFrame) -> tuple[str, ...]:
        """Columns of which some row lacks the value."""
        found = rows.agg(F.flatten(F.collect_set(MISSING))).first()
        return tuple(sorted(set(found[0]))) if found is not None else ()

    def _from_lake(self, rows: DataFrame, missing: Sequence[str]) -> DataFrame:
        columns = [name for name in missing if name in self._lake_columns]
        if not columns:
            return rows
        key = [quoted(name) for name in self._schema.key]
        wanted = rows.filter(F.col(MISSING).isNotNull()).select(*key)
        # The lake may be large and the keys are few: its rows are dropped where they are read.
        known = (
            self._lake.read()
            .select(*key, *(quoted(name) for name in columns))
            .join(F.broadcast(wanted), list(self._schema.key), "leftsemi")
        )
        return fill(rows, known, self._schema, columns, moved=False, absent_is_deleted=False)

    def _from_source(self, rows: DataFrame, missing: Sequence[str]) -> DataFrame:
        """Ask the primary for the rows by key.

        A key that it no longer has was deleted since, and that delete is still in the log: the
        row is taken as deleted now, since nobody can tell its value any more.
        """
        source = self._context.sources[self._schema.table.source]
        live = {column.name for column in self._source_schema.columns}
        columns = [name for name in missing if name in live]
        shape = ", ".join(
            f"{quoted(name)} {self._schema.column(name).lake_type}"
            for name in (*self._schema.key, *columns)
        )
        known: DataFrame | None = None
        for keys in self._keys(rows):
            found = source.fetch_by_key(self._source_table, self._source_schema, keys, columns)
            values = [tuple(row[name] for name in (*self._schema.key, *columns)) for row in found]
            frame = self._hold(self._context.spark.createDataFrame(values, shape))
            known = frame if known is None else known.unionByName(frame)
        if known is None:
            return rows
        # A column that the source has dropped since reads NULL there, and from then on in the lake.
        gone = [name for name in missing if name not in live]
        for name in gone:
            kind = self._schema.column(name).lake_type
            known = known.withColumn(name, F.lit(None).cast(kind))
        return fill(
            rows, known, self._schema, [*columns, *gone], moved=True, absent_is_deleted=True
        )

    def _keys(self, rows: DataFrame) -> Iterator[list[tuple[Any, ...]]]:
        """Keys of the rows that lack a value, in bounded portions."""
        keys = rows.filter(F.col(MISSING).isNotNull()).select(
            *(F.col(quoted(name)) for name in self._schema.key)
        )
        portion: list[tuple[Any, ...]] = []
        kinds = [self._schema.column(name).lake_type for name in self._schema.key]
        for row in keys.toLocalIterator():
            portion.append(tuple(_aware(v, kind) for v, kind in zip(row, kinds, strict=True)))
            if len(portion) == _FETCH_KEYS:
                yield portion
                portion = []
        if portion:
            yield portion

    def _hold(self, frame: DataFrame) -> DataFrame:
        """Keep a frame's rows until the batch is done."""
        held = frame.persist(StorageLevel.MEMORY_AND_DISK_DESER)
        self._held.append(held)
        return held

    def _unreadable(
        self, partition: int, offset: int, schema_id: int | None, reason: str
    ) -> DecodeError:
        table = self._schema.table
        return DecodeError(
            f"a record of table {table} cannot be applied: topic {self._topic}, partition"
            f" {partition}, offset {offset}, schema id {schema_id}: {reason}",
            remedy="Look at the record with a Kafka client. Restore what it needs (the registry's"
            f" schema, the right topic) and `tributary retry {table}`; when the record itself is"
            f" damaged, copy the table again: `tributary bootstrap {table}`.",
            table=table,
            topic=self._topic,
            partition=partition,
            offset=offset,
            schema_id=schema_id,
        )


def _position(previous: str | None, last: str | None) -> str | None:
    """The log position up to which every commit of the table is in the lake.

    The first half of the last event's position is the end of the commit before it; all events of
    commits up to there come before it in the log.
    """
    found = Lsn(int(last.partition(":")[0], 16)) if last is not None else None
    if found is None or found.value == 0:
        return previous
    return str(found) if previous is None else str(max(found, Lsn.parse(previous)))


def _aware(value: Any, kind: str) -> Any:
    """A key value with its zone: Spark gives timestamps as local times without one."""
    if kind == "timestamp" and isinstance(value, datetime):
        return value.astimezone(timezone.utc)
    return value
