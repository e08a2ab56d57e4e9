"""Reads a published table's rows for its checks, as of the newest commit of the table's stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cdc.errors import LakeError
from cdc.rows.columns import OFFSET
from operate.verify.compare import as_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc.lake.handoff import LakeColumn
    from cdc.run import RunContext
    from cdc.store.attempt import Attempt
    from cdc.store.table_state import TableRecord
    from schemas.table import TableSchema


@dataclass(frozen=True)
class LakeRows:
    """The rows of a published table as of one commit.

    Args:
        rows: The rows that are not marked as deleted, with the source's columns and the offsets of
            their last events.
        schema: The source's columns.
        columns: The `LakeColumn` of each of the source's columns, as a mapping from the column's
            name.
        instant: The commit's instant.
    """

    rows: DataFrame
    schema: TableSchema
    columns: Mapping[str, LakeColumn]
    instant: str


def lake_rows(context: RunContext, record: TableRecord, attempt: Attempt) -> LakeRows:
    """Return a published table's rows for checks, as of the newest commit of the table's stream.

    The source is not asked, since the commit records the source's columns.

    Raises:
        ConfigError: The settings no longer fit the table's record.
        LakeError: The table has no commit of its stream, or cannot be read.
    """
    latest = context.timeline(attempt).latest_offsets()
    if latest is None:
        raise LakeError(
            f"the lake table of {record.table} has no commit of its stream",
            remedy=f"See `tributary status {record.table}` for what it needs.",
            table=record.table,
            path=attempt.path,
        )
    handoff = latest.record.require_handoff()
    known = {one.name: one for one in handoff.columns if not one.dropped}
    whole = handoff.lake_schema(record.table)
    lake = context.lake(record, whole, context.settings_of_idle(record))
    kept = tuple(one for one in whole.columns if one.name in known)
    schema = replace(whole, columns=kept)
    rows = as_table(lake.read(latest.instant), schema, also=(OFFSET,))
    return LakeRows(rows, schema, known, latest.instant)
