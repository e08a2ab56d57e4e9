"""Applies schema changes of the source to a lake table, in one commit."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.lake.commit import CommitRecord
from cdc.lake.handoff import Handoff, hash_key_of, renames
from cdc.lake.shards import TURN_S
from cdc.lake.timeline import Committed
from cdc.rows.columns import OP
from cdc.rows.masking import hidden
from cdc.rows.semantic_types import quoted
from cdc.run.comparison import Comparison, fill_value
from cdc.runtime.failpoints import crash
from cdc.runtime.step_times import step
from schemas.changes import AddColumn, Change, NewFile, Verdict, WidenType
from schemas.fingerprint import SNAPSHOT, Fingerprint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc.config import LakeConfig
    from cdc.lake.guard import Guard
    from cdc.lake.write import FollowedTable
    from cdc.run.context import RunContext, Turn
    from cdc.sources.base import RowLookup
    from cdc.sources.source_facts import SourceTable
    from cdc.store.table_state import TableRecord
    from schemas.table import TableSchema

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LakeShape:
    """A lake table, and the source table whose changes are applied to it.

    Args:
        lake: The lake table with all its columns.
        source_table: The table in the source's catalog.
        source_schema: The lake schema that is derived from the source's catalog.
    """

    lake: FollowedTable
    source_table: SourceTable
    source_schema: TableSchema


@step("follow")
def follow(
    context: RunContext,
    kept: TableRecord,
    latest: Committed,
    compared: Comparison,
    guard: Guard,
    turn: Turn | None = None,
) -> tuple[LakeShape, Committed]:
    """Apply a source's schema changes to the lake table, by a commit that records the new catalog.

    There is no commit if the comparison has neither changes nor statements, and the newest commit
    already records this catalog. The commit does not change the offsets. A run that dies before the
    commit has changed nothing, and the next run starts again.

    Args:
        context: The runs' context.
        kept: The table's record in the state store.
        latest: The table's newest commit with offsets.
        compared: The comparison of the lake with its source. None of its changes needs a bootstrap.
        guard: Called just before the commit completes. It raises an error to refuse the commit.
        turn: The table's turn. A run with a turn waits only briefly for another process that
            commits to a shared lake table, so that the worker is soon free for other tables.

    Returns:
        The lake table, and its newest commit with offsets: ``latest``, or this function's commit.
    """
    record = latest.record
    handoff = record.require_handoff()
    table = compared.source_table
    settings = compared.settings
    source = context.sources[table.table.source]
    wait_s = TURN_S if turn is None else 0.0
    schema = source.schema(table, settings)
    # Record a new catalog even if no column has changed. A later comparison with the old catalog
    # would be wrong: it would take a column that was added, dropped and added again for new, or
    # explain a rename by an owner that the table no longer has.
    moved = handoff.fingerprint.digest != compared.fingerprint.digest
    if not (compared.changes or compared.statements or moved):
        lake = context.lake(kept, handoff.carried(schema), settings, wait_s=wait_s)
        return LakeShape(lake, table, schema), latest
    for change in compared.changes:
        _log.info("table %s: %s (%s)", table.table, change, change.verdict.value)
    fills = _fills_of_new_columns(source, table, schema, compared.changes)
    new = _next_handoff(context, record, compared, fills)
    lake = context.lake(kept, new.carried(schema), settings, wait_s=wait_s)
    commit = _commit_of_new_schema(record, new, context.run_id)
    crash("run.before_follow")
    widened = any(isinstance(one, WidenType) and one.in_lake for one in compared.changes)
    renamed = {change.to: change.name for change in renames(compared.changes)}
    if fills or widened or renamed:
        rows = _rows_of_new_schema(lake, fills, renamed, context.config.lake)
        instant = lake.overwrite(rows, commit, guard)
    else:
        instant = lake.empty_commit(commit, guard)
    crash("run.after_follow")
    return LakeShape(lake, table, schema), Committed(instant, "commit", commit)


def _next_handoff(
    context: RunContext, record: CommitRecord, compared: Comparison, fills: Mapping[str, str]
) -> Handoff:
    """Return the handoff document of the commit that applies a comparison's schema changes."""
    handoff = record.require_handoff()
    return handoff.after_schema_change(
        compared.wanted,
        compared.changes,
        compared.fingerprint,
        fills=fills,
        schema=handoff.next_schema(
            [one for one in compared.changes if not isinstance(one, NewFile)],
            at=datetime.now(timezone.utc),
            schema_ids=record.schema_ids,
        ),
        hash_key=hash_key_of(compared.wanted, context.config.lake),
    )


def seen_at(latest: Committed, fingerprint: Fingerprint) -> Committed:
    """Return a table's newest commit with the ``pg_snapshot`` of a newer look at the catalog.

    The newer look has found no change since the commit. The commit in the lake stays as it is. The
    table's next commit takes the snapshot from the returned value. By this snapshot, a later
    comparison finds out whether a partition lost rows.

    Args:
        latest: The table's newest commit.
        fingerprint: The fingerprint that the newer look has read from the catalog.
    """
    handoff, snapshot = latest.record.handoff, fingerprint.snapshot
    if handoff is None or not snapshot:
        return latest
    known = Fingerprint({**handoff.fingerprint.facts, SNAPSHOT: snapshot})
    moved = replace(handoff, fingerprint=known)
    return replace(latest, record=replace(latest.record, handoff=moved))


def _fills_of_new_columns(
    source: RowLookup, table: SourceTable, schema: TableSchema, changes: Sequence[Change]
) -> dict[str, str]:
    """Return, for each new column, Spark SQL of the value that a run gives to the lake's rows."""
    return {
        change.name: fill_value(
            *source.stored_value(table, schema.column(change.name), change.stored)
        )
        for change in changes
        # MySQL prints the default '' as an empty text, so an empty text is a value.
        if isinstance(change, AddColumn)
        and change.verdict is Verdict.FILL
        and change.stored is not None
    }


def _commit_of_new_schema(record: CommitRecord, handoff: Handoff, run_id: str) -> CommitRecord:
    """Return the record of a run's commit with a new handoff document and ``record``'s offsets."""
    return CommitRecord(
        kind="run",
        table=record.table,
        attempt=record.attempt,
        generation=record.generation,
        start_offsets=record.offsets,
        offsets=record.offsets,
        epochs=record.epochs,
        last_records=record.last_records,
        topic=record.topic,
        topic_id=record.topic_id,
        position=record.position,
        watermark=record.watermark,
        event_time=record.event_time,
        lacks=record.lacks,
        last_event=record.last_event,
        truncated=record.truncated,
        schema_ids=record.schema_ids,
        handoff=handoff,
        run_id=run_id,
    )


def _rows_of_new_schema(
    lake: FollowedTable, fills: Mapping[str, str], renamed: Mapping[str, str], config: LakeConfig
) -> DataFrame:
    """Return the lake table's rows as a run rewrites them, with new and with renamed columns.

    A deleted row that the lake keeps does not get the default of a new column. A renamed column
    keeps its values, also in deleted rows. Hashed and masked values of a renamed column are not
    hashed or masked again.
    """
    rows = lake.read()
    new = []
    for column in lake.layout.schema.columns:
        if column.name in fills:
            value = F.when(F.col(OP) != "d", F.expr(fills[column.name]))
            new.append(value.alias(column.name))
        elif column.name in renamed:
            new.append(F.col(quoted(renamed[column.name])).alias(column.name))
        elif column.name not in rows.columns:
            new.append(F.lit(None).cast(column.lake_type).alias(column.name))
    filled = lake.layout.schema.only({*lake.layout.schema.key, *fills})
    return hidden(rows.select("*", *new), filled, config)
