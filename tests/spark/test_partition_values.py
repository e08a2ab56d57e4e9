"""Partitions by expressions on columns: the partition values, and rows that change partitions."""

from __future__ import annotations

import datetime as dt
import random
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc.config import TableSettings
from cdc.config.partitions import partition_field
from cdc.errors import ConfigError
from cdc.lake.index import SnapshotSize
from cdc.lake.partition_values import value_of
from cdc.lake.write import LakeTable
from cdc.store.completeness import Calendar
from tests.spark.lake import (
    ONE_COMMIT,
    SEVERAL_COMMITS,
    accept,
    change,
    content,
    insert,
    lake,
    record,
    rows,
    schema,
)

UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
ZONES = (
    *("UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"),
    *(
        pytest.param(one, marks=pytest.mark.breadth)
        for one in ("America/New_York", "Asia/Kolkata", "America/Havana", "Europe/Dublin")
    ),
)
CHANGES = (
    "2026-03-29T01:00",
    "2026-10-25T01:00",
    "2025-04-05T15:00",
    "2024-11-03T05:00",
    "2011-12-30T10:00",
    "2026-03-08T05:00",
    "1969-12-31T23:59",
)


def moments(seed: int) -> list[dt.datetime]:
    """Random times in UTC: some near clock changes of time zones, others in any year since 1970."""
    draw = random.Random(seed)
    near = [dt.datetime.fromisoformat(f"{one}+00:00") for one in CHANGES]
    found = [one + dt.timedelta(seconds=draw.randint(-9000, 9000)) for one in near * 12]
    return found + [EPOCH + dt.timedelta(seconds=draw.randint(0, 2**31 - 1)) for _ in range(60)]


def computed(
    spark: SparkSession, by: str, lake_type: str, times: list[dt.datetime]
) -> list[str | None]:
    """The values of a partition expression for times, in a session with a foreign time zone.

    For lake type ``timestamp``, the times are instants in UTC; else they are times without a zone.
    """
    field = partition_field(by)
    mark = "Z" if lake_type == "timestamp" else ""
    texts = [(one.replace(tzinfo=None).isoformat(sep=" ") + mark,) for one in times]
    frame = spark.createDataFrame(texts, "at string")
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        value = value_of(field, F.col("at").cast(lake_type), lake_type)
        return [row[0] for row in frame.select(value.cast("string")).collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.parametrize("zone", ZONES)
def test_hours_and_days_are_the_periods_of_a_calendar_in_any_session(
    spark: SparkSession, zone: str
) -> None:
    times = moments(len(zone))
    for unit in ("hour", "day"):
        calendar = Calendar(unit, zone)
        wanted = [calendar.holding(one).name.replace(":", "") for one in times]
        assert computed(spark, f"{unit}(at, {zone})", "timestamp", times) == wanted
        # Digits are read by the clocks of the zone; those that it skips, by the former offset.
        own = [one.replace(tzinfo=UTC if zone == "UTC" else ZoneInfo(zone)) for one in times]
        wanted = [calendar.holding(one.astimezone(UTC)).name.replace(":", "") for one in own]
        assert computed(spark, f"{unit}(at, {zone})", "timestamp_ntz", times) == wanted


def test_the_ends_of_time_have_partitions(spark: SparkSession) -> None:
    times = [dt.datetime.min.replace(tzinfo=UTC), dt.datetime.max.replace(tzinfo=UTC)]
    for by, wanted in {
        "hour(at)": ["0001-01-01T00", "9999-12-31T23"],
        "hour(at, Asia/Tokyo)": ["0001-01-01T09", "9999-12-31T23"],
        "day(at, America/New_York)": ["0001-01-01", "9999-12-31"],
        "month(at)": ["0001-01", "9999-12"],
        "year(at)": ["0001", "9999"],
    }.items():
        for kind in ("timestamp", "timestamp_ntz"):
            if kind == "timestamp" or "," not in by:
                assert computed(spark, by, kind, times) == wanted, (by, kind)
    assert computed(spark, "month(at)", "timestamp", [EPOCH - dt.timedelta(days=365)]) == [
        "1969-01"
    ]


def test_a_hash_is_the_checksum_of_the_text_that_readers_can_compute(spark: SparkSession) -> None:
    cells: dict[str, list[Any]] = {
        "string": ["a", "", "Grüße 🎉", None],
        "binary": [bytearray(b"\x00\xff"), bytearray()],
        "bigint": [0, -17, 2**63 - 1],
        "smallint": [7],
        "boolean": [True, False],
        "decimal(38,0)": [Decimal(10**37), Decimal(-5)],
        "date": [dt.date(2026, 11, 23), dt.date(1, 1, 1)],
    }
    for kind, values in cells.items():
        frame = spark.createDataFrame([(one,) for one in values], f"x {kind}")
        field = partition_field("hash(x, 64)")
        plain = "crc32(x) % 64" if kind == "binary" else "crc32(cast(x as string)) % 64"
        found = frame.select(value_of(field, F.col("x"), kind), F.expr(plain)).collect()
        for value, (ours, theirs) in zip(values, found, strict=True):
            text = bytes(value) if kind == "binary" else _text(value)
            wanted = None if text is None else zlib.crc32(text) % 64
            assert (ours, theirs) == (wanted, wanted), (kind, value)


def _text(value: Any) -> bytes | None:
    if value is None:
        return None
    return (str(value).lower() if isinstance(value, bool) else f"{value}").encode()


AGES = ("0001-01-01", "1500-02-28", "1582-10-10", "1969-12-31T23:59", "2020-01-01", "9999-12-31")
EVENTS = schema("id", id="bigint", at="timestamp", v="int")
BY = ("hour(at, Europe/Berlin)", "day(at)", "hash(v, 4)")


def at(text: str | None) -> dt.datetime | None:
    """A time with the zone UTC; PySpark takes a time without one for local time of this process."""
    return None if text is None else dt.datetime.fromisoformat(f"{text}+00:00")


def placed(table: Any) -> list[tuple[Any, ...]]:
    """For each row: its key, its partition columns and the path of its partition folder."""
    shown = table.read().selectExpr(
        "id", "at_hour", "string(at_day)", "v_hash", "_hoodie_partition_path"
    )
    return sorted(tuple(row) for row in shown.collect())


def folder(hour: str | None, day: str | None, value: int | None) -> tuple[Any, ...]:
    bucket = None if value is None else zlib.crc32(str(value).encode()) % 4
    parts = {"at_hour": hour, "at_day": day, "v_hash": bucket}
    null = "__HIVE_DEFAULT_PARTITION__"
    path = "/".join(f"{name}={null if one is None else one}" for name, one in parts.items())
    return hour, day, bucket, path


@pytest.mark.parametrize("soft", [pytest.param(False, marks=pytest.mark.breadth), True])
def test_rows_move_with_their_expressions_and_are_found_without_the_column(
    spark: SparkSession, tmp_path: Path, soft: bool
) -> None:
    mode = "soft" if soft else "hard"
    table = lake(spark, tmp_path / "t", EVENTS, partition_by=BY, delete_mode=mode)
    twice = ("2026-10-25T00:30", "2026-10-25T01:30")
    insert(
        spark,
        table,
        (1, at(twice[0]), 1),
        (2, at(twice[1]), 2),
        (3, None, None),
        (4, at(twice[0]), 4),
        size=SEVERAL_COMMITS,
    )
    ours = {
        1: folder("2026-10-25T02+0200", "2026-10-25", 1),
        2: folder("2026-10-25T02+0100", "2026-10-25", 2),
        3: folder(None, None, None),
        4: folder("2026-10-25T02+0200", "2026-10-25", 4),
    }
    assert placed(table) == [(key, *one) for key, one in ours.items()]

    change(
        *(spark, table, 9),
        ("u", 1, (1, at(twice[1]), 1)),
        ("u", 2, (2, None, 7)),
        ("u", 3, (3, at("1969-12-31T23:59:59"), 3)),
        ("d", 4, (4, at(twice[0]) if soft else None, 4 if soft else None)),
        ("c", 5, (5, at("2027-01-01T00:00"), 5)),
    )
    moved = {
        1: folder("2026-10-25T02+0100", "2026-10-25", 1),
        2: folder(None, None, 7),
        3: folder("1970-01-01T00", "1969-12-31", 3),
        5: folder("2027-01-01T01", "2027-01-01", 5),
    }
    if soft:
        moved[4] = ours[4]
    assert placed(table) == [(key, *one) for key, one in sorted(moved.items())]

    # As a run does that fills a new column: all rows from the lake itself.
    table.overwrite(table.read(), record(offsets={0: 10}), accept)
    assert placed(table) == [(key, *one) for key, one in sorted(moved.items())]
    change(spark, table, 12, *(("d", 11, (key, None, None)) for key in moved))
    assert soft or placed(table) == []


@pytest.mark.parametrize(
    "size",
    [ONE_COMMIT, pytest.param(SEVERAL_COMMITS, marks=pytest.mark.breadth)],
    ids=["bucket", "bloom"],
)
def test_keys_whose_partition_never_changes_need_no_other_partitions(
    spark: SparkSession, tmp_path: Path, size: SnapshotSize
) -> None:
    """Changes of a row find it in the partition in which the copy has written it."""
    orders = schema("id,at", id="bigint", at="timestamp_ntz", v="int")
    table = lake(spark, tmp_path / "t", orders, partition_by=("day(at)", "hash(id, 8)"))
    assert not table.layout.moves_partitions
    ages = [dt.datetime.fromisoformat(one) for one in AGES]
    insert(spark, table, *((1, age, 1) for age in ages), size=size)
    update = [("u", 1, (1, age, 2)) for age in ages[1:]]
    change(spark, table, 3, *update, ("d", 2, (1, ages[0], None)))
    assert content(table) == sorted(((1, age, 2) for age in ages[1:]), key=repr)
    shown = table.read().selectExpr("string(at_day)", "_hoodie_partition_path").collect()
    bucket = zlib.crc32(b"1") % 8
    assert {tuple(row) for row in shown} == {
        (age[:10], f"at_day={age[:10]}/id_hash={bucket}") for age in AGES[1:]
    }


def test_a_copy_sorts_its_rows_so_that_a_task_has_one_file_open_at_a_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", EVENTS, partition_by=("day(at)",))
    first = dt.datetime(2026, 1, 1, tzinfo=UTC)
    events = [("r", -1, (n, first + dt.timedelta(days=n % 3), n)) for n in range(30, 0, -1)]
    copied = rows(spark, table, events).coalesce(1)
    table.bulk_insert(copied, record("chunk", chunk_ids=(0,)), accept, SEVERAL_COMMITS)
    assert table.read().where("at_day = date'2026-01-02'").count() == 10
    files = list((tmp_path / "t").rglob("*.parquet"))
    assert len(files) == 3
    for file in files:
        keys = parquet.ParquetFile(file).read(["_hoodie_record_key"])[0].to_pylist()
        assert keys == sorted(keys)


def test_a_zone_that_java_does_not_know_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    field = partition_field("day(at)").model_copy(update={"zone": "Mars/Phobos"})
    settings = TableSettings(partition_by=(field,))
    table = LakeTable(spark, (tmp_path / "t").as_uri(), EVENTS, settings)
    with pytest.raises(ConfigError, match="does not know the time zone Mars/Phobos"):
        insert(spark, table, (1, None, 1))
    assert not table.timeline().exists
