"""Writes the marker files of complete periods into the folders of lake tables."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from cdc.config.partitions import period_column
from cdc.errors import LakeError
from cdc.lake.publish import write_file
from cdc.store.documents import Codec, Part
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.run.context import RunContext
    from cdc.store.announcements import Announcement, Announcements
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId

MARKERS = "_complete"
"""Name of the folder with marker files, in a table's folder beside its generations."""
_WRITE_S = 20.0
"""Seconds that a check for complete periods may write marker files before runs go on."""


@dataclass(frozen=True)
class PeriodPartition(Part):
    """The partition that has a period's rows.

    Args:
        column: Name of the partition column.
        value: The column's value in the period's rows.
    """

    column: str
    value: str


@dataclass(frozen=True)
class PeriodMarker(Part):
    """The content of a marker file: a complete hour or day of a table.

    Args:
        table: The table's full name.
        period: The period's name in its zone, such as ``2026-11-23T10``.
        zone: The period's time zone.
        start: The first moment of the period, in UTC.
        end: The first moment after the period, in UTC.
        announced_at: When the period was first announced.
        watermark: A time of the source. At the first announcement, the lake provably had every
            change up to this time.
        revision: Number of announcements of the period.
        generation: The table's generation to which the announcement applies.
        instant: The table's newest commit when the period was announced for this generation. The
            period's rows in later commits are late.
        partition: The period's partition; None if the table is not partitioned by its periods.
        format: Version of this document.
    """

    table: str
    period: str
    zone: str
    start: datetime
    end: datetime
    announced_at: datetime
    watermark: datetime
    revision: int
    generation: int
    instant: str
    partition: PeriodPartition | None = None
    format: Literal[1] = 1

    @classmethod
    def of(cls, one: Announcement, partition: PeriodPartition | None = None) -> PeriodMarker:
        """Return the marker of an announced period, whose rows are in ``partition``."""
        return cls(
            table=str(one.table),
            period=one.name,
            zone=one.zone,
            start=one.starts_at,
            end=one.ends_at,
            announced_at=one.announced_at,
            watermark=one.proven,
            revision=one.revision,
            generation=one.generation,
            instant=one.instant,
            partition=partition,
        )

    @property
    def file_name(self) -> str:
        """The name of the period's marker file.

        If the clocks show an hour twice, the hour's name includes the offset from UTC, for example
        +01:00. The file's name leaves out the colon, since Hadoop allows no colon in a path.
        """
        return f"{_in_paths(self.period)}.json"

    def to_json(self) -> str:
        """Return the marker as the JSON of its file."""
        return _CODEC.write(self, indent=1) + "\n"


_CODEC = Codec(
    PeriodMarker,
    error=LakeError,
    remedy="Another program or another version of Tributary wrote it: remove the file.",
)


def write_markers(
    context: RunContext, store: Announcements, records: Mapping[TableId, TableRecord]
) -> None:
    """Write each missing or outdated marker file of a complete period.

    The time is limited. Later calls write the files for which no time is left.

    Args:
        context: The runs' context.
        store: The announcements of the tables.
        records: The tables.

    Raises:
        LakeError: A file cannot be written.
        StateError: The state store cannot be used.
    """
    written: list[Announcement] = []
    deadline = time.monotonic() + _WRITE_S
    try:
        for one in store.unmarked(records):
            if written and time.monotonic() > deadline:
                break
            record = records[one.table]
            marker = PeriodMarker.of(one, _partition_of_period(context, record, one))
            folder = f"{record.base_path}/{MARKERS}"
            write_file(context.spark, folder, marker.file_name, marker.to_json())
            written.append(one)
    finally:
        store.mark(written)


def _partition_of_period(
    context: RunContext, record: TableRecord, one: Announcement
) -> PeriodPartition | None:
    """Return the partition of an announced period.

    None if the table is not partitioned by its periods, or if its settings cannot be read.
    """
    try:
        settings = context.config.settings_on_plan(record.table, record.tier)
    except TributaryError:
        return None
    column = period_column(settings, one.unit, one.zone)
    return None if column is None else PeriodPartition(column, _in_paths(one.name))


def _in_paths(period: str) -> str:
    """Return a period's name as paths and partitions have it: without a colon."""
    return period.replace(":", "")
