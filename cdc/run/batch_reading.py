"""Reads a range of a topic, and finds the records that cannot be applied.

The records become rows in the normal form of `cdc.rows.decode`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from cdc.errors import DecodeError, SchemaChangeError, UnseenError, copy_again
from cdc.rows.binlog_values import NUMBER_AS_TRUE
from cdc.rows.decode import SCHEMA_ID_SQL, TAGGED, UNKNOWN_SCHEMA, decode
from cdc.rows.event_plan import EventRules
from cdc.rows.fold import RecordProblem, Summary, problems, summarize
from cdc.rows.kafka_records import Range, read_changes
from cdc.rows.masking import hidden
from cdc.rows.visibility import Reading
from cdc.run import plan
from cdc.run.core_gate import all_cores
from cdc.run.former_labels import FormerLabels
from cdc.run.later_definitions import LaterDefinitions, require_own_definition
from cdc.run.pending_columns import LateColumns
from cdc.run.writer_schemas import WriterSchemas
from cdc.runtime.executors import is_local
from cdc.runtime.step_times import step
from schemas.errors import RegistryError

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from cdc.run.context import RunContext, Turn
    from schemas.avro import DebeziumSchema
    from schemas.table import TableSchema


@dataclass(frozen=True)
class Batch:
    """The records of a range of a topic, ready to be applied by a run.

    Args:
        piece: The range.
        changes: The range's records in the normal form of `cdc.rows.decode`, including those with a
            problem.
        summary: Counts and bounds of the changes.
        left_out: The records with a problem that the commit leaves out.
    """

    piece: Range
    changes: DataFrame
    summary: Summary
    left_out: tuple[RecordProblem, ...] = ()


@dataclass(frozen=True)
class RawRecord:
    """A record of a batch: key and value as bytes, Kafka's timestamp, and the size in bytes."""

    key: bytes | None
    value: bytes | None
    timestamp: datetime | None
    size: int


class Held:
    """What a batch holds until it is done: data frames in memory, and cores of Spark."""

    def __init__(self) -> None:
        self._held: list[DataFrame] = []
        self._cores = ExitStack()

    def hold(self, frame: DataFrame) -> DataFrame:
        """Persist a data frame of a batch and return it."""
        held = frame.cache()
        self._held.append(held)
        return held

    def drop(self) -> None:
        """Release the batch's frame that was held last."""
        self._held.pop().unpersist()

    def drop_all(self) -> None:
        """Release every frame of the batch, and its cores."""
        try:
            while self._held:
                self.drop()
        finally:
            self._cores.close()

    @step("wait")
    def tasks(self, cores: AbstractContextManager[int]) -> int:
        """Hold cores until `drop_all`; return the number of tasks that may read the batch."""
        self._cores.close()
        return self._cores.enter_context(cores)


class BatchReader:
    """Reads ranges of one table's topic as batches of a run.

    Args:
        context: The runs' context.
        schema: The lake table's columns.
        topic: The topic.
        rules: The rules by which events are decoded. `expect` adds each batch's late columns.
        quarantines: Whether the settings allow quarantine. The remedy of errors depends on this
            setting.
        held: Keeps the rows of batches in memory, and cores.
    """

    moment: SparkColumn | None = None
    """The time of a change, for the summaries of batches; see `cdc.rows.fold.summarize`."""
    turn: Turn | None = None
    """The table's turn, which divides Spark's cores among tables; None if it has no turn."""

    def __init__(
        self,
        context: RunContext,
        schema: TableSchema,
        topic: str,
        *,
        rules: EventRules,
        quarantines: bool,
        held: Held,
    ) -> None:
        self._context = context
        self._schema = schema
        self.topic = topic
        self._rules = rules
        self._quarantines = quarantines
        self._reading = Reading()
        self._held = held
        self._java = context.config.kafka.java_config()
        self._writers = WriterSchemas(context.registry, topic)
        self._late = LateColumns()
        self._definitions = LaterDefinitions()
        self._labels = FormerLabels()
        self._before: Mapping[int, DebeziumSchema] = {}

    def expect(
        self,
        schema_ids: Iterable[int],
        late: LateColumns,
        definitions: LaterDefinitions,
        labels: FormerLabels,
        reading: Reading | None = None,
    ) -> None:
        """Prepare for the next batch of a run.

        Args:
            schema_ids: Ids of the schemas of the previous batch. The next batch probably needs the
                same schemas.
            late: Columns that events of the batch can lack, or have under another name.
            definitions: Changes of the table's definition. They are compared with the schemas of
                the batch's events.
            labels: The present labels of enum columns. They are compared with the events' values.
            reading: The transactions that were visible when the source's catalog was read; None if
                all transactions of the batch were visible then, as in a replay.
        """
        self._reading = reading or Reading()
        former = tuple(schema_ids)
        self._writers.expect(former)
        self._before = {n: self._writers.known[n] for n in former if n in self._writers.known}
        self._late, self._definitions, self._labels = late, definitions, labels
        self._rules = replace(self._rules, absent=late.absent, former=late.former)

    def written(self, summary: Summary) -> dict[int, DebeziumSchema]:
        """Return the schemas with which the batch's records were written, each by its schema id."""
        known = self._writers.known
        return {n: known[n] for n in summary.schema_ids if n in known}

    @step("read")
    def read(self, piece: Range, *, tolerated: int = 0) -> Batch:
        """Return the batch of a range: in normal form, kept in memory, and summarized.

        The batch is decoded with the schemas that are known so far. Usually it is read from Kafka
        once. It is read again if its records name a schema that is not known yet.

        Args:
            piece: The range to read.
            tolerated: Maximum number of records that may be left out. Only records that cannot be
                applied are left out.

        Raises:
            DecodeError: More than ``tolerated`` records cannot be applied. The error names the
                first of them.
            RegistryError: The registry is unreachable, or refuses a schema that a record names.
            SchemaChangeError: Events lack a required column, can have values in wrong columns, or
                have a former name of an enum label. Or a field's type does not convert to the lake
                column's type.
            UnseenError: A transaction of the batch was not yet visible when the source's catalog
                was read.
        """
        spark = self._context.spark
        cores = spark.sparkContext.defaultParallelism
        tasks = plan.tasks(piece.offsets, cores)
        if tasks > 1 and is_local(spark):
            hold = all_cores if self.turn is None else self.turn.cores
            tasks = self._held.tasks(hold(tasks, cores))
        tasks = max(len(piece.start), tasks)
        records = self._records(piece, tasks=tasks)
        if not self._writers.known:
            # No schema is known yet. Most often the whole batch has the first record's schema.
            first = records.filter("length(value) >= 5").selectExpr(SCHEMA_ID_SQL).first()
            self._writers.expect(found for found in first or () if found is not None)
        while True:
            try:
                decoded = self._decoded(records, self._schema.shown(), self._rules)
            except SchemaChangeError:
                # The batch could have changed a column's type after the catalog was read.
                bare = replace(self._schema, columns=(), key=())
                read = self._decoded(records, bare, EventRules(self._rules.placeholder))
                self._require_seen(summarize(read, self._reading, most=piece.offsets))
                raise
            changes = self._held.hold(hidden(decoded, self._schema, self._context.config.lake))
            if tasks == 1:
                # Make the single partition explicit, so that Spark sorts and folds it in place.
                changes = changes.coalesce(1)
            summary = summarize(changes, self._reading, self.moment, most=piece.offsets)
            if not self._learn(changes, summary.unknown_schemas, tolerated):
                break
            self._held.drop()
        self._require_seen(summary)
        if summary.problems > tolerated:
            (first_problem,) = self._problems(changes, 1)
            raise self.unreadable(first_problem, summary.problems, tolerated)
        self._require_columns(changes, self.written(summary))
        self._labels.require_present(changes, self._schema, self._context.config.lake)
        left_out = self._problems(changes, tolerated) if summary.problems else []
        return Batch(piece, changes, summary, tuple(left_out))

    def _decoded(self, records: DataFrame, schema: TableSchema, rules: EventRules) -> DataFrame:
        """Return the batch's records in normal form, decoded with the schemas known so far."""
        now = datetime.now(timezone.utc)
        return decode(records, self._writers.known, schema, rules, ingested_at=now)

    def _require_columns(self, changes: DataFrame, written: Mapping[int, DebeziumSchema]) -> None:
        """Refuse a batch whose events lack required columns or can have values in wrong columns."""
        table = self._schema.table
        self._definitions.require_places(table, written)
        self._late.require(self._schema, written)
        require_own_definition(table, changes, self._definitions.doubts(written, self._before))

    def _require_seen(self, summary: Summary) -> None:
        """Refuse a batch with a transaction that was not yet visible when the catalog was read.

        While a transaction's commit waits for a synchronous standby, the WAL has the commit, but
        queries do not see the transaction yet. If the transaction has added columns, its events
        have these columns, but the catalog that a query reads lacks the columns.
        """
        if summary.first_unseen is None:
            return
        table, ids = self._schema.table, ", ".join(map(str, summary.unseen[:5]))
        raise UnseenError(
            f"the topic {self.topic} of table {table} has, from offset {summary.first_unseen} on,"
            f" changes of transactions ({ids}) that were not visible when its catalog was read",
            remedy="Nothing is lost: the next run reads the catalog again. If this error persists,"
            " check whether commits wait for a synchronous standby (`SyncRep` in"
            " pg_stat_activity).",
            table=table,
            topic=self.topic,
            offset=summary.first_unseen,
            transactions=summary.unseen,
        )

    def raw(self, places: Sequence[RecordProblem], *, max_bytes: int) -> list[RawRecord]:
        """Return records of a batch as raw bytes, in the order of ``places``.

        Args:
            places: The partition, the offset and the problem of each record to return.
            max_bytes: Bound of a record's key and value together, in bytes.

        Raises:
            DecodeError: A record is larger than ``max_bytes``.
        """
        offsets: dict[int, list[int]] = {}
        for place in places:
            offsets.setdefault(place.partition, []).append(place.offset)
        around = Range(
            {partition: min(found) for partition, found in offsets.items()},
            {partition: max(found) + 1 for partition, found in offsets.items()},
        )
        records = self._records(around)
        wanted = " OR ".join(
            f"(`partition` = {partition} AND `offset` IN ({', '.join(map(str, found))}))"
            for partition, found in offsets.items()
        )
        size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
        fits = size <= max_bytes
        rows = (
            records.filter(wanted)
            .select(
                "partition",
                "offset",
                F.when(fits, F.col("key")).alias("key"),
                F.when(fits, F.col("value")).alias("value"),
                F.unix_millis("timestamp").alias("millis"),
                size.alias("size"),
            )
            .collect()
        )
        found = {(row["partition"], row["offset"]): _raw_record(row) for row in rows}
        for place in places:
            taken = found[place.partition, place.offset].size
            if taken > max_bytes:
                reason = f"{place.reason}; its {taken:,} bytes are too many to be quarantined"
                raise self.unreadable(replace(place, reason=reason), 1, 0)
        return [found[place.partition, place.offset] for place in places]

    def _records(self, piece: Range, *, tasks: int = 1) -> DataFrame:
        return read_changes(
            self._context.spark,
            self._java,
            self.topic,
            piece,
            tasks=tasks,
            inserts_only=not self._schema.key,
        )

    def _learn(self, changes: DataFrame, schema_ids: Sequence[int], tolerated: int) -> bool:
        """Fetch schemas that the batch's records name; return whether the batch must be read again.

        Args:
            changes: The batch in the normal form of `cdc.rows.decode`, for error messages.
            schema_ids: Ids of the schemas.
            tolerated: Number of records that may be left out. If the registry refuses more schemas
                than this number, no further schema is fetched.
        """
        learned = refused = 0
        for schema_id in schema_ids:
            if refused > tolerated:
                break  # the batch fails anyway, and damaged records can name any number of schemas
            try:
                found = self._writers.fetch(schema_id)
            except RegistryError as error:
                (first,) = problems(changes, 1, schema_id=schema_id)
                raise RegistryError(
                    f"{self._place_text(first)} cannot be read: {error.message}",
                    remedy=f"{error.remedy} Nothing is lost: the next run reads the record again.",
                    **self._error_context(first),
                ) from error
            learned, refused = learned + found, refused + (not found)
        return learned > 0

    def _problems(self, changes: DataFrame, limit: int) -> list[RecordProblem]:
        return [
            replace(found, reason=self._writers.refused.get(found.schema_id or 0, found.reason))
            if found.reason == UNKNOWN_SCHEMA
            else found
            for found in problems(changes, limit)
        ]

    def unreadable(self, first: RecordProblem, count: int, tolerated: int) -> DecodeError:
        """Return the error that stops a table's run at records that cannot be applied.

        Args:
            first: The first of these records, which the error names.
            count: Number of these records.
            tolerated: Number of records that could be quarantined.
        """
        table = self._schema.table
        others = f"; {count - 1:,} more records cannot be applied either" if count > 1 else ""
        remedy = (
            "Look at the record with a Kafka client. Restore what it needs (the registry's schema,"
            f" the right topic) and run `tributary retry {table}`. If the record itself is damaged,"
            f" {copy_again(table)}. To leave such records out and keep them, set"
            " on_bad_message: quarantine."
        )
        if first.reason == TAGGED:
            remedy = (
                "Let all sessions write to captured tables without tags (gtid_next), and"
                f" {copy_again(table)}, which brings the rows of the tagged transactions."
            )
        if self._quarantines:
            others += f"; {tolerated:,} could be quarantined (max_quarantined)"
            remedy = (
                "Find what writes such records. `tributary quarantine replay"
                f" {table}` applies those in `tributary quarantine list {table}` that can be read"
                f" by now. Then run `tributary retry {table}`; or {copy_again(table)}."
            )
        if first.reason.endswith(NUMBER_AS_TRUE):
            remedy = (
                f"Run ALTER TABLE {table.relation} MODIFY for the column, as tinyint(1), with the"
                " rest of its definition from SHOW CREATE TABLE: the server changes no row, and the"
                f" connector sends numbers from then on. Then {copy_again(table)}, which brings the"
                " numbers of earlier rows. In new tables and columns, write tinyint(1)."
            )
        return DecodeError(
            f"{self._place_text(first)} cannot be applied: {first.reason}{others}",
            remedy=remedy,
            **self._error_context(first),
        )

    def _place_text(self, record: RecordProblem) -> str:
        """Return the table, topic, partition, offset and schema id of a record, for an error."""
        return (
            f"a record of table {self._schema.table} (topic {self.topic}, partition"
            f" {record.partition}, offset {record.offset}, schema id {record.schema_id})"
        )

    def _error_context(self, record: RecordProblem) -> dict[str, Any]:
        return {
            "table": self._schema.table,
            "topic": self.topic,
            "partition": record.partition,
            "offset": record.offset,
            "schema_id": record.schema_id,
        }


def _raw_record(row: Any) -> RawRecord:
    """Return a bad record of a run's batch, in bytes, from the Spark row that has the record."""
    millis = row["millis"]
    return RawRecord(
        key=None if row["key"] is None else bytes(row["key"]),
        value=None if row["value"] is None else bytes(row["value"]),
        timestamp=None
        if millis is None
        else datetime.fromtimestamp(millis / 1000, tz=timezone.utc),
        size=row["size"],
    )
