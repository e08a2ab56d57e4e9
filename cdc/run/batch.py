"""Applies one batch: a range of a topic becomes one lake commit."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.errors import FencedError, PausedByPolicyError, UnseenError
from cdc.lake.commit import CommitRecord
from cdc.lake.key_lookup import is_large, rows_with_keys
from cdc.rows.columns import MISSING, MOVED, OFFSET, OP, STALE, TRANSACTION
from cdc.rows.event_plan import EventRules
from cdc.rows.fold import RecordProblem, fill, fold
from cdc.rows.log_rows import ReachedPlace, absent, inserted, reached
from cdc.rows.replayed import at_places, replayed
from cdc.rows.semantic_types import quoted
from cdc.rows.visibility import Reading
from cdc.run.batch_reading import Batch, BatchReader, Held
from cdc.run.commits import last_records, watermark
from cdc.run.former_labels import FormerLabels
from cdc.run.late_rows import LateRows
from cdc.run.later_definitions import LaterDefinitions
from cdc.run.pending_columns import LateColumns
from cdc.run.quarantining import HeldQuarantine, LeftOut, Place
from cdc.run.source_lookup import Asked
from cdc.runtime.failpoints import crash
from cdc.runtime.step_times import step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc.config import TableSettings
    from cdc.lake.guard import Guard
    from cdc.rows.kafka_records import Range
    from cdc.run.context import RunContext, Turn
    from cdc.run.follow import LakeShape
    from cdc.store.table_state import TableRecord

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Applied:
    """The result of one commit of a run.

    Args:
        record: The record in the commit's metadata. It has the next offsets, for example.
        instant: The commit's instant in the lake.
        events: Number of changes that were applied.
    """

    record: CommitRecord
    instant: str
    events: int


@dataclass(frozen=True)
class Replayed:
    """The result of a run's replay of quarantined records.

    Args:
        applied: The result of the replay's commit.
        records: Number of quarantined records that were applied.
        left_out: The records that still cannot be applied.
    """

    applied: Applied
    records: int
    left_out: tuple[RecordProblem, ...]


def has_own_key(settings: TableSettings, *, from_binlog: bool) -> bool:
    """Whether the key of a run's lake table may differ from the key that the connector uses.

    A connector of a binlog derives the table's key from the text of DDL statements. The derived key
    can be missing or differ from the server's key, for example after `ALTER TABLE ... ADD PRIMARY
    KEY ..., DROP PRIMARY KEY` and after `CREATE OR REPLACE TABLE` with another key.
    """
    return not settings.appends and (bool(settings.key_columns) or from_binlog)


class BatchWriter:
    """Applies ranges of one table's topic to the lake table, within a run.

    Args:
        context: The runs' context.
        shape: The lake table, and the source table.
        settings: The table's settings.
        record: The table's record, which names topic and tier.
        quarantined: The quarantined records of the table's attempt.
        turn: The table's turn; no limits if None.
    """

    def __init__(
        self,
        context: RunContext,
        shape: LakeShape,
        *,
        settings: TableSettings,
        record: TableRecord,
        quarantined: HeldQuarantine,
        turn: Turn | None = None,
    ) -> None:
        self._context = context
        self._source_table = source_table = shape.source_table
        self._source_schema = shape.source_schema
        self._lake = shape.lake
        self._schema = shape.lake.layout.schema
        self._settings = settings
        self._topic = record.topic
        self._quarantined = quarantined
        self._is_large = is_large(record.size)
        capture = context.capture(record)
        self._from_binlog = capture.kind != "postgres"
        self._late_rows = LateRows(context.store, settings, self._schema)
        self._held = Held()
        keeps_rows = settings.appends or settings.delete_mode == "soft"
        self._reader = BatchReader(
            context,
            self._schema,
            record.topic,
            rules=EventRules(
                capture.placeholder,
                nulls_are_kept=record.attempt is not None and record.attempt.nulls_are_kept,
                own_key=has_own_key(settings, from_binlog=self._from_binlog),
                identity=source_table.identity_in_log,
                # Without a row to read by key, every 0 of such a domain would be unclear.
                nullable=source_table.columns_with_nulls(trust_domains=keeps_rows),
            ),
            quarantines=settings.on_bad_message == "quarantine",
            held=self._held,
        )
        self._reader.moment = self._late_rows.moment
        self._reader.turn = turn

    @property
    def _keeps_deleted(self) -> bool:
        return self._settings.delete_mode == "soft"

    def apply(
        self,
        piece: Range,
        previous: CommitRecord,
        guard: Guard,
        *,
        still_open: Collection[int] | None = None,
    ) -> Applied:
        """Apply the records of one range to the lake table, in one commit.

        The commit can leave out the end of the range: it stops before a TRUNCATE at which the table
        must pause, and before a transaction that was not yet visible when the catalog was read.

        Args:
            piece: The range to read.
            previous: The record of the lake's newest commit with offsets. For PostgreSQL,
                it has the ``pg_snapshot`` of this run's look at the catalog (see `seen_at`).
            guard: Called just before the commit completes. It raises an error to refuse the commit.
            still_open: Ids of all transactions that were open at one moment, after the range's last
                event and before the catalog was read; None if these ids are not known.

        Raises:
            DecodeError: A record cannot be applied, and the settings do not allow the run to leave
                it out.
            RegistryError: The registry is unreachable, or refuses a schema that a record names.
            SchemaChangeError: Events lack a required column, can have values in wrong columns, or
                have a former name of an enum label. Or a field's type does not convert to the lake
                column's type.
            UnseenError: The transaction at the start of the range was not yet visible when the
                source's catalog was read.
            PausedByPolicyError: The range begins with a TRUNCATE, and `on_truncate` is pause.
            FencedError: Another writer has committed to the table.
        """
        known = {column.name for column in self._source_table.columns}
        known.update(self._settings.columns.exclude)
        handoff = previous.require_handoff()
        reading = Reading(handoff.fingerprint.snapshot, still_open)
        late = LateColumns.of(handoff, known)
        definitions = LaterDefinitions.of(handoff, self._source_table.dropped_by)
        labels = FormerLabels.of(handoff)
        self._reader.expect(previous.schema_ids, late, definitions, labels, reading)
        left_out = LeftOut(self._context, previous, self._settings, self._quarantined)
        tolerated = left_out.tolerated(piece)
        try:
            batch = self._read_seen(piece, tolerated)
            truncate = batch.summary.first_truncate
            if truncate is not None and self._settings.on_truncate == "pause":
                batch = self._before_truncate(piece, truncate, tolerated)
            left_out.keep(batch, self._reader)
            gaps = left_out.will_lack_records(batch)
            record = self._commit_record(batch, previous, left_out)
            applied = self._commit(batch, record, guard, gaps=gaps, beyond=_reached_place(previous))
            try:
                left_out.drop_applied(batch)
            except FencedError as error:
                _log.warning("%s: the next `quarantine replay` removes applied records", error)
            return applied
        finally:
            self._held.drop_all()

    def replay(self, piece: Range, previous: CommitRecord, guard: Guard) -> Replayed:
        """Apply those quarantined records of a range that can be decoded now.

        From the start of the range on, all changes to rows with these records' keys are folded
        again. So the last change to each row wins, and a quarantined record never replaces a later
        change. Rows with other keys stay as they are. But if the replay applies a quarantined
        TRUNCATE, it replaces all rows of the table by the rows that the range has after it.

        Args:
            piece: The range from a quarantined record to the lake's offsets.
            previous: The record of the lake's newest commit with offsets.
            guard: Called just before the commit completes. It raises an error to refuse the commit.

        Raises:
            DecodeError: None of the quarantined records can be decoded, or a record that an earlier
                run has applied can no longer be decoded.
            PausedByPolicyError: A quarantined record is a TRUNCATE, and `on_truncate` is pause.
            FencedError: Another writer has committed to the table.
        """
        handoff, dropped_by = previous.require_handoff(), self._source_table.dropped_by
        late = LateColumns.of(handoff, replayed=True)
        definitions = LaterDefinitions.of(handoff, dropped_by, replayed=True)
        self._reader.expect(previous.schema_ids, late, definitions, FormerLabels.of(handoff))
        left_out = LeftOut(self._context, previous, self._settings, self._quarantined)
        within = left_out.within(piece)
        try:
            batch = self._reader.read(piece, tolerated=len(within))
            left = {(problem.partition, problem.offset): problem for problem in batch.left_out}
            # If an event that was applied before is left out, an earlier event of its key would
            # win.
            lost = [problem for place, problem in left.items() if place not in within]
            if lost or left.keys() == within:
                raise self._reader.unreadable((lost or list(batch.left_out))[0], len(left), 0)
            gaps, places = left_out.will_lack_records(batch), within - left.keys()
            record = replace(
                self._commit_record(batch, previous, left_out, replayed=places),
                counts={"replayed": len(places)},
                truncated=self._decided_truncate(batch, previous, places),
            )
            only = places if record.truncated == previous.truncated else ()
            applied = self._commit(batch, record, guard, gaps=gaps, only=only)
            crash("quarantine.after_replay")
            left_out.drop_applied(batch)
            return Replayed(applied, len(places), batch.left_out)
        finally:
            self._held.drop_all()

    def _read_seen(self, piece: Range, tolerated: int) -> Batch:
        """Read a range, and return its batch.

        If a transaction of the range was not yet visible when the catalog was read, return only the
        part before this transaction's first event.
        """
        try:
            return self._reader.read(piece, tolerated=tolerated)
        except UnseenError as early:
            offset = early.context["offset"]
            if all(at >= offset for at in piece.start.values()):
                raise
            self._held.drop_all()
            return self._reader.read(piece.up_to(offset), tolerated=tolerated)

    def _before_truncate(self, piece: Range, truncate: int, tolerated: int) -> Batch:
        """Read a batch's range again, up to its first TRUNCATE, and return the shorter batch."""
        if all(at >= truncate for at in piece.start.values()):
            raise self._truncate_error(truncate)
        self._held.drop_all()
        return self._reader.read(piece.up_to(truncate), tolerated=tolerated)

    def _decided_truncate(
        self, batch: Batch, previous: CommitRecord, replayed: Collection[tuple[int, int]]
    ) -> int | None:
        """Return the offset of the newest TRUNCATE that counts in a replay; None if none counts.

        A TRUNCATE counts if an earlier commit has applied it. A quarantined TRUNCATE counts if the
        settings now apply TRUNCATEs; the replay then applies it.

        Args:
            batch: The batch.
            previous: The record of the lake's newest commit with offsets.
            replayed: Partition and offset of each quarantined record that can be decoded now.

        Raises:
            PausedByPolicyError: A quarantined record is a TRUNCATE, and `on_truncate` is pause.
        """
        policy = self._settings.on_truncate
        if batch.summary.last_truncate is None or policy == "ignore":
            return previous.truncated
        offsets = [offset for _, offset in replayed]
        found = batch.changes.filter((F.col(OP) == "t") & F.col(OFFSET).isin(offsets))
        undecided: list[int] = [row[0] for row in found.select(OFFSET).collect()]
        if undecided and policy == "pause":
            raise self._truncate_error(max(undecided))
        applied = [] if previous.truncated is None else [previous.truncated]
        return max(undecided + applied, default=None)

    def _truncate_error(self, offset: int) -> PausedByPolicyError:
        table = self._schema.table
        return PausedByPolicyError(
            f"table {table} was truncated on the source (offset {offset} of topic"
            f" {self._topic}), and on_truncate is pause",
            remedy="Set on_truncate to apply or ignore for this table, then"
            f" `tributary resume {table}`. If it is not paused, repeat the replay.",
            table=table,
            topic=self._topic,
            offset=offset,
        )

    @step("write")
    def _commit(
        self,
        batch: Batch,
        commit: CommitRecord,
        guard: Guard,
        *,
        gaps: bool,
        beyond: ReachedPlace | None = None,
        only: Collection[Place] = (),
    ) -> Applied:
        """Apply a batch of a run in one commit.

        Args:
            batch: The batch.
            commit: The record that the commit carries.
            guard: Called just before the commit completes. It raises an error to refuse the commit.
            gaps: Whether the lake can lack earlier changes of rows that the batch changes.
            beyond: The place in the binlog that earlier batches of an append table have reached.
            only: Partition and offset of quarantined records. The commit writes only rows with
                these records' keys. For an append table, it writes only those rows of these records
                that the lake lacks. Records before the newest TRUNCATE that it has are ignored. If
                ``only`` is empty, the commit writes all changes of the batch.
        """
        summary, changes = batch.summary, batch.changes
        truncated = _offset_in_batch(commit.truncated, batch.piece)
        is_log = self._lake.layout.is_log
        emptied = truncated is not None and not only
        changing = ("c", "r") if is_log else ("c", "r", "u", "d")
        rows_changed = any(summary.counts.get(op) for op in changing)
        if only:
            later = [place for place in only if truncated is None or place[1] > truncated]
            chosen = changes.filter(F.col(OP).isin(*changing))
            changes = at_places(chosen, later) if is_log else replayed(chosen, later, self._schema)
            rows_changed = rows_changed and not changes.isEmpty()
        crash("run.before_commit")
        if not rows_changed and not emptied:
            return Applied(commit, self._lake.empty_commit(commit, guard), summary.events)
        if is_log:
            rows = inserted(
                changes, after_offset=truncated, from_binlog=self._from_binlog, beyond=beyond
            )
            rows = absent(self._held.hold(rows), self._lake.read()) if only else rows
            write = self._lake.overwrite if emptied else self._lake.insert
            return Applied(commit, write(rows, commit, guard), summary.events)
        rows = fold(
            changes,
            self._schema,
            unavailable=summary.unavailable,
            soft_delete=self._keeps_deleted and bool(summary.counts.get("d")),
            after_offset=truncated,
            gaps=gaps,
        )
        if summary.unavailable or (self._keeps_deleted and summary.counts.get("d")):
            rows = self._filled(rows, from_lake=not emptied)
        rows = rows.drop(MISSING, STALE, MOVED, TRANSACTION)
        if not emptied:
            return Applied(commit, self._lake.upsert(rows, commit, guard), summary.events)
        left = rows if self._keeps_deleted else rows.filter(F.col(OP) != "d")
        return Applied(commit, self._lake.overwrite(left, commit, guard), summary.events)

    def _commit_record(
        self,
        batch: Batch,
        previous: CommitRecord,
        left_out: LeftOut,
        replayed: Collection[Place] | None = None,
    ) -> CommitRecord:
        piece, summary = batch.piece, batch.summary
        counts = dict(summary.counts)
        if batch.left_out:
            counts["quarantined"] = len(batch.left_out)
        reached = watermark(previous, summary, self._settings.allowed_lateness_s)
        truncated = summary.last_truncate if self._settings.on_truncate == "apply" else None
        return CommitRecord(
            kind="run",
            table=self._schema.table,
            attempt=previous.attempt,
            generation=previous.generation,
            start_offsets=piece.start,
            offsets=piece.end,
            epochs=previous.epochs,
            last_records=last_records(previous, summary),
            topic=self._topic,
            topic_id=previous.topic_id,
            position=self._position(previous.position, summary.position),
            last_event=self._last_event(batch, previous, again=replayed is not None),
            truncated=previous.truncated if truncated is None else truncated,
            # A table that lacks a change is complete only up to that change.
            watermark=previous.watermark if left_out.will_lack_records(batch) else reached,
            **self._late_rows.of(batch, previous, replayed)._asdict(),
            counts=counts,
            lacks=left_out.lacking(batch),
            schema_ids=summary.schema_ids or previous.schema_ids,
            handoff=previous.require_handoff().without_late_columns(self._reader.written(summary)),
            run_id=self._context.run_id,
        )

    @step("fill")
    def _filled(self, rows: DataFrame, *, from_lake: bool) -> DataFrame:
        """Fill those missing values of the batch's rows that can be found; return the rows.

        A value that the batch does not have is taken from the lake's row with the same key. If the
        lake's row lacks the value, or has an outdated value (``STALE`` names the column), the value
        is taken from the source's current row. For rows that the batch deletes, the source is not
        read. The source's row may be newer than the batch. The lake then shows the newer value
        early; a later batch has the change that set this value, and sets it again.
        """
        rows = self._held.hold(rows)
        if from_lake and (missing := _missing_columns(rows)):
            rows = self._from_lake(rows, missing)
        nothing = F.array().cast("array<string>")
        left = F.array_union(F.coalesce(MISSING, nothing), F.coalesce(STALE, nothing))
        wanted = F.size(left) > 0
        if self._keeps_deleted:
            # The source has no deleted row: what the lake lacks stays unknown.
            wanted = wanted & (F.col(OP) != "d")
        rows = self._held.hold(rows.withColumn(MISSING, F.when(wanted, left)))
        missing = _missing_columns(rows)
        return self._from_source(rows, missing) if missing else rows

    def _from_lake(self, rows: DataFrame, missing: Sequence[str]) -> DataFrame:
        """Fill missing values of the batch's rows from the lake; return the batch's rows."""
        key = self._schema.key
        wanted = rows.filter(F.col(MISSING).isNotNull()).select(*map(quoted, key))
        lake = self._lake.read()
        known = rows_with_keys(lake, wanted, key, missing, files_first=self._is_large)
        return fill(rows, known, self._schema, missing, moved=False, absent_is_deleted=False)

    def _from_source(self, rows: DataFrame, missing: Sequence[str]) -> DataFrame:
        """Fill missing values of the batch's rows from the source; return the batch's rows."""
        known = Asked(
            spark=self._context.spark,
            source=self._context.sources[self._schema.table.source],
            source_table=self._source_table,
            source_schema=self._source_schema,
            kept=self._schema,
            lake=self._context.config.lake,
            progress=self._context.progress,
        )
        found = known.rows(rows.filter(F.col(MISSING).isNotNull()), missing, self._held.hold)
        # After a TRUNCATE that is not applied, no event of a delete follows for an absent row.
        deleted = self._settings.on_truncate == "apply"
        return fill(rows, found, self._schema, missing, moved=True, absent_is_deleted=deleted)

    def _position(self, previous: str | None, last: str | None) -> str | None:
        """Return the log position up to which the lake has all transactions of the table.

        This is the end of the last transaction before the batch's last event. The connector sends
        whole transactions in the order of their commits, so the lake has this transaction and all
        earlier ones.

        Args:
            previous: The position in the previous commit's record, as a string.
            last: Position of the batch's last event, as a string.
        """
        source = self._context.sources[self._schema.table.source]
        found = source.commit_position(last) if last is not None else None
        if found is None or previous is None:
            return found or previous
        return str(source.position(found).joined(source.position(previous)))

    def _last_event(self, batch: Batch, previous: CommitRecord, *, again: bool) -> str | None:
        """Return the string form of the place in the binlog that an append table's batch reached.

        The result is None for any other table, and for a source without a binlog.
        """
        if not (self._from_binlog and self._lake.layout.is_log):
            return None
        place, table = _reached_place(previous), self._schema.table
        found = reached(batch.changes, place, table, again=again)
        return None if found is None else str(found)


def _offset_in_batch(offset: int | None, piece: Range) -> int | None:
    """Return the offset of a TRUNCATE if a run's batch includes the TRUNCATE, else None."""
    earlier = offset is None or any(offset < at for at in piece.start.values())
    return None if earlier else offset


def _missing_columns(rows: DataFrame) -> tuple[str, ...]:
    """Return the columns whose values are missing in at least one row of a run's batch."""
    found = rows.agg(F.flatten(F.collect_set(MISSING))).first()
    return tuple(sorted(set(found[0]))) if found is not None else ()


def _reached_place(record: CommitRecord) -> ReachedPlace | None:
    """Return the binlog place that earlier batches of an append table reached; None if unknown."""
    return None if record.last_event is None else ReachedPlace.parse(record.last_event)
