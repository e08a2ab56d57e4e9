"""Computes the partition columns that are expressions of a column, such as the day of a time.

The values depend neither on the session's time zone nor on the time zone of a process. The value of
an hour or a day has the form of `cdc.store.completeness.Period.name`. If the clocks show an hour
twice, the two hours have different values: each value has the hour's offset from UTC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.errors import ConfigError
from cdc.runtime.spark import java_class
from cdc.store.completeness import repeated_hours

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import SparkSession

    from cdc.config.partitions import PartitionField

_HOUR, _DAY = 3600, 86400
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""The first and the last second of the years 1 to 9999, since 1970. A local time can be earlier
than the first second, or later than the last one. The time then counts as that second."""


def value_of(field: PartitionField, cell: SparkColumn, lake_type: str) -> SparkColumn:
    """Return a Spark column with the values of a partition expression; NULL for a NULL cell.

    Args:
        field: The expression.
        cell: The values of the expression's column, in the lake's type.
        lake_type: The lake's type of the column.
    """
    if field.by == "hash":
        data = cell if lake_type == "binary" else cell.cast("string").cast("binary")
        return (F.crc32(data) % F.lit(field.buckets)).cast("int")
    if lake_type == "date":
        return _partition_of_day(field, cell)
    seconds, offset = _local_time_of_cell(cell, lake_type, field.zone)
    seconds = F.when(seconds < _FIRST, F.lit(_FIRST)).otherwise(seconds)
    seconds = F.when(seconds > _LAST, F.lit(_LAST)).otherwise(seconds)
    day = F.date_from_unix_date(F.floor(seconds / _DAY).cast("int"))
    if field.by != "hour":
        return _partition_of_day(field, day)
    hours = F.floor(seconds / _HOUR)
    hour = F.lpad(F.pmod(hours, F.lit(24)).cast("string"), 2, "0")
    named = F.concat(day.cast("string"), F.lit("T"), hour)
    if not (twice := repeated_hours(field.zone)):
        return named
    return F.when(hours.isin(*sorted(twice)), F.concat(named, _utc_offset_text(offset))).otherwise(
        named
    )


def _partition_of_day(field: PartitionField, day: SparkColumn) -> SparkColumn:
    """Return a date's day, month or year as a lake partition, as the expression asks."""
    if field.by == "day":
        return day
    return F.substring(day.cast("string"), 1, 7 if field.by == "month" else 4)


def _local_time_of_cell(
    cell: SparkColumn, lake_type: str, zone: str
) -> tuple[SparkColumn, SparkColumn]:
    """Return a partitioned cell's local time since 1970 and its UTC offset, both in seconds."""
    if lake_type == "timestamp":
        moment = cell
    else:
        digits = F.unix_date(cell.cast("date")).cast("bigint") * _DAY + (
            F.hour(cell) * _HOUR + F.minute(cell) * 60 + F.second(cell)
        )
        if zone == "UTC":
            return digits, F.lit(0)
        # Digits that the clocks skip, or show twice, are those of the earlier offset.
        moment = F.to_utc_timestamp(F.timestamp_seconds(digits), zone)
    utc = F.unix_seconds(moment)
    if zone == "UTC":
        return utc, F.lit(0)
    local = F.unix_seconds(F.from_utc_timestamp(moment, zone))
    return local, local - utc


def _utc_offset_text(seconds: SparkColumn) -> SparkColumn:
    """Return an offset from UTC for a lake partition, written as in marker files' names: +0200."""
    size = F.abs(seconds)
    hours, minutes = F.floor(size / _HOUR), F.floor(F.pmod(size, F.lit(_HOUR)) / 60)
    digits = (F.lpad(one.cast("string"), 2, "0") for one in (hours, minutes))
    return F.concat(F.when(seconds < 0, F.lit("-")).otherwise(F.lit("+")), *digits)


def require_zones(spark: SparkSession, table: object, fields: Iterable[PartitionField]) -> None:
    """Refuse a lake partition's time zone that Java does not know, before a row is read.

    Raises:
        ConfigError: The time zone database of Spark's Java lacks one of the zones.
    """
    for field in fields:
        if field.lasting:
            continue
        known = java_class(spark, "java.time.ZoneId").getAvailableZoneIds()
        if not known.contains(field.zone):
            raise ConfigError(
                f"table {table} cannot be partitioned by {field}: the Java that runs Spark does not"
                f" know the time zone {field.zone}",
                remedy="Name the zone as region and city, such as Europe/Berlin; or install a newer"
                " Java.",
                table=table,
                field="partition_by",
            )
