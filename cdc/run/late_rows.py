"""Finds the late rows of a commit: rows of periods that may have been announced as complete."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from cdc.rows.columns import OFFSET, OP, PARTITION, SOURCE_TS, scratch
from cdc.rows.semantic_types import quoted
from cdc.store.announcements import Announcements
from cdc.store.completeness import SLOT_S, CompletenessRules
from cdc.store.table_state import State

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

    from cdc.config import TableSettings
    from cdc.lake.commit import CommitRecord
    from cdc.lake.timeline import Committed
    from cdc.run.batch_reading import Batch
    from cdc.run.quarantining import Place
    from cdc.store.state_store import Store
    from cdc.store.table_state import TableRecord
    from schemas.table import Column, TableSchema

_log = logging.getLogger(__name__)

_MOMENT, _LAST = scratch("moment"), scratch("last")
_MICROS = 1_000_000
_YEARS = datetime(9999, 1, 1, tzinfo=timezone.utc)
"""The start of the last year whose times Python can represent. Later times are left out."""


class EventTimes(NamedTuple):
    """What a commit's record says about the times of its rows; see `CommitRecord`."""

    event_time: datetime | None = None
    late: dict[int, int] = {}  # noqa: RUF012 - never changed


def is_time(column: Column) -> bool:
    """Whether a column has times or dates in the lake, by which a run can find late rows."""
    return column.lake_type in ("timestamp", "timestamp_ntz", "date")


def untimely(settings: TableSettings, schema: TableSchema) -> str | None:
    """Return why runs cannot find late rows by the column in ``event_time``; None if they can."""
    rules = CompletenessRules.of(settings)
    if rules is None or rules.column is None:
        return None
    found = next((one for one in schema.columns if one.name == rules.column), None)
    if found is not None and is_time(found):
        return None
    what = "it has no such column" if found is None else f"its lake type is {found.lake_type}"
    return (
        f"table {schema.table} has no complete periods, since event_time names column"
        f" {rules.column}, and {what}; name one with times or dates"
    )


class LateRows:
    """In the batches of a run, counts the rows that can be late.

    Args:
        store: The state store.
        settings: The table's settings.
        schema: The table's columns in the lake.
    """

    def __init__(self, store: Store, settings: TableSettings, schema: TableSchema) -> None:
        self._announcements = Announcements(store)
        self._schema = schema
        rules = CompletenessRules.of(settings)
        self._rules = None if untimely(settings, schema) else rules

    @property
    def moment(self) -> SparkColumn | None:
        """The time of a change, in microseconds since 1970; None for a table without periods.

        A date, or a time without a zone, counts as a time in the zone of the table's periods.
        """
        if self._rules is None:
            return None
        if self._rules.column is None:
            return F.unix_micros(SOURCE_TS)
        name, column = self._rules.column, F.col(quoted(self._rules.column))
        if self._schema.column(name).lake_type == "timestamp":
            return F.unix_micros(column)
        # The session's zone is UTC, so the cast keeps the digits.
        zone = self._rules.calendar.zone
        return F.unix_micros(F.to_utc_timestamp(column.cast("timestamp"), zone))

    def of(
        self, batch: Batch, previous: CommitRecord, places: Collection[Place] | None = None
    ) -> EventTimes:
        """Return what a commit records about the times of its batch's rows.

        If the oldest time in the batch's summary is after all periods that can be announced now,
        no row is late, and the rows are not counted. This is so for most batches.

        Args:
            batch: The batch.
            previous: The record of the previous commit.
            places: The quarantined records that a replay applies; None if the batch is not of a
                replay.
        """
        rules, times = self._rules, batch.summary.moments
        if rules is None:
            return EventTimes()
        newest = previous.event_time if rules.column is not None else None
        if times is None:
            return EventTimes(newest)
        if rules.column is not None and times[1] < _YEARS.timestamp() * _MICROS:
            last = datetime.fromtimestamp(times[1] // _MICROS, timezone.utc)
            newest = last if newest is None else max(newest, last)
        now = datetime.now(timezone.utc)
        cut = rules.cut(now)
        # The lateness can have been smaller when periods were announced.
        announced = self._announcements.newest({self._schema.table: rules.calendar})
        if (known := announced.get(self._schema.table)) is not None:
            cut = max(cut, known.newest_end)
        if times[0] >= cut.timestamp() * _MICROS:
            return EventTimes(newest)
        first = rules.earliest(previous.watermark, now)
        oldest = self._announcements.first_start(self._schema.table)
        first = first if oldest is None else min(first, oldest)
        return EventTimes(newest, self._counted(batch, first, cut, places))

    def _counted(
        self, batch: Batch, first: datetime, cut: datetime, places: Collection[Place] | None
    ) -> dict[int, int]:
        """Count the rows with a time from ``first`` to ``cut`` that a batch leaves in the lake.

        The result maps the start of each slot of `SLOT_S` seconds, in seconds since 1970, to the
        number of rows. Only the last change of each key counts. A deleted row does not count.
        """
        moment = self.moment
        if moment is None:
            return {}
        rows = batch.changes.filter(F.col(OP).isin("c", "r", "u", "d"))
        if places is not None:
            offsets = [offset for _, offset in places]
            rows = rows.filter(F.col(OFFSET).isin(offsets))
        lasts = F.max(F.struct(OFFSET, F.when(F.col(OP) != "d", moment).alias(_MOMENT)))
        key = [F.col(quoted(name)) for name in self._schema.key] or [
            F.col(PARTITION),
            F.col(OFFSET),
        ]
        last = F.col(f"{_LAST}.{_MOMENT}")
        slot = (F.floor(last / (SLOT_S * _MICROS)) * SLOT_S).cast("bigint")
        found = (
            rows.groupBy(*key)
            .agg(lasts.alias(_LAST))
            .filter((last >= first.timestamp() * _MICROS) & (last < cut.timestamp() * _MICROS))
            .groupBy(slot.alias(_MOMENT))
            .count()
            .collect()
        )
        return {int(row[0]): int(row[1]) for row in found}


def note_late(
    store: Store, record: TableRecord, committed: Committed, settings: TableSettings
) -> None:
    """Count the late rows of a run's commit in the state store.

    The commit's record has the numbers of late rows. If a run is killed before it counts the late
    rows, the next run finds the commit and counts the rows. Commits of a copy do not count, since
    nothing is announced for a copy until its table is INCREMENTAL.

    Raises:
        StateError: The state store cannot be used.
    """
    rules = CompletenessRules.of(settings)
    state = record.resume_to if record.state is State.FAILED else record.state
    if rules is None or record.beside or state is not State.INCREMENTAL:
        return
    slots = dict(committed.record.late)
    late = Announcements(store).note_late(
        record, committed.instant, slots, reannounces=rules.reannounces
    )
    for one in late:
        _log.info(
            "table %s: commit %s has late rows for %s, %d by now, revision %d",
            *(record.table, committed.instant, one.name, one.late_rows, one.revision),
        )
