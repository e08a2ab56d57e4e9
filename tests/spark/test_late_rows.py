"""Which rows of a batch are in periods that may be announced already, for each type of time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc.config import TableSettings, parse
from cdc.lake.commit import CommitRecord
from cdc.rows.columns import OFFSET, OP, PARTITION, SOURCE_TS
from cdc.run.late_rows import EventTimes, LateRows, untimely
from cdc.store.announcements import Announcements, Proof
from cdc.store.attempt import Attempt
from cdc.store.completeness import CompletenessRules, slot_of
from cdc.store.state_store import Store
from cdc.store.table_state import CommitSummary
from schemas.table import Column, TableId, TableSchema
from tests.records import table_record
from tests.unit.cdc.configuration import minimal

ORDERS = TableId("shop", "public", "orders")
BEFORE = CommitRecord(kind="run", table=ORDERS, attempt="a")
NOW = datetime(2026, 11, 24, 10, 30, tzinfo=timezone.utc)
"""A time in the middle of an hour; near the end, a differing clock may have announced the hour."""
LATE = NOW - timedelta(hours=3)


class Stopped(datetime):
    """A clock that always shows `NOW`."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return NOW.astimezone(tz)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc.run.late_rows.datetime", Stopped)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path / 'state.db'}")


def schema(lake_type: str, *key: str) -> TableSchema:
    at = Column("at", "time", lake_type)
    return TableSchema(ORDERS, (Column("id", "integer", "int", nullable=False), at), key)


def settings(
    column: str | None = "at", zone: str = "UTC", lateness: str | None = None
) -> TableSettings:
    chosen: dict[str, Any] = {"completeness": {"by": "hour", "zone": zone}}
    if column is not None:
        chosen["event_time"] = {"column": column}
    if lateness is not None:
        chosen["event_time"]["lateness"] = lateness
    config = parse(yaml.safe_dump(minimal() | {"tables": {"public.orders": chosen}}))
    return config.table_settings(ORDERS)


def literal(time: datetime | None) -> str:
    """A literal of Spark SQL for a time."""
    return "CAST(NULL AS timestamp)" if time is None else f"timestamp '{time:%Y-%m-%d %H:%M:%S}'"


def of(
    spark: SparkSession,
    late: LateRows,
    lake_type: str,
    *rows: tuple[str, int, datetime | None],
    places: set[tuple[int, int]] | None = None,
) -> EventTimes:
    """The event times that a commit records for a batch; each row is (operation, key, time)."""
    values = ", ".join(
        f"('{op}', 0, {at}L, {literal(NOW)}, {key}, {literal(time)})"
        for at, (op, key, time) in enumerate(rows)
    )
    names = f"{OP}, {PARTITION}, {OFFSET}, {SOURCE_TS}, id, at"
    frame = spark.sql(f"select * from values {values} as t({names})")
    frame = frame.withColumn("at", F.col("at").cast(lake_type))
    moment = late.moment
    assert moment is not None
    shown = frame.where(F.col(OP).isin("c", "r", "u")).agg(F.min(moment), F.max(moment)).first()
    assert shown is not None
    moments = None if shown[0] is None else (shown[0], shown[1])
    batch: Any = SimpleNamespace(changes=frame, summary=SimpleNamespace(moments=moments))
    return late.of(batch, BEFORE, places)


def test_the_rows_that_a_batch_leaves_in_past_periods_are_counted_by_slot(
    spark: SparkSession, store: Store
) -> None:
    late = LateRows(store, settings(), schema("timestamp", "id"))
    found = of(
        *(spark, late, "timestamp"),
        ("c", 1, LATE),
        ("u", 1, LATE + timedelta(hours=1)),
        ("c", 2, LATE),
        ("c", 3, LATE),
        ("d", 3, None),
        ("c", 4, NOW),
        ("c", 5, None),
        ("c", 6, NOW - timedelta(days=90)),
    )
    assert found.late == {slot_of(LATE): 1, slot_of(LATE + timedelta(hours=1)): 1}
    assert found.event_time == NOW


def test_a_batch_of_the_present_hour_counts_nothing(spark: SparkSession, store: Store) -> None:
    late = LateRows(store, settings(), schema("timestamp", "id"))
    ahead = NOW + timedelta(hours=1)
    assert of(spark, late, "timestamp", ("c", 1, ahead)) == EventTimes(ahead, {})
    assert of(spark, late, "timestamp", ("d", 1, None)) == EventTimes()


def test_rows_of_announced_periods_are_late_also_after_the_lateness_was_raised(
    spark: SparkSession, store: Store
) -> None:
    rules = CompletenessRules.of(settings())
    assert rules is not None
    attempt = Attempt(UUID(int=1), NOW, "/lake/orders/attempt=1")
    summary = CommitSummary({0: 7}, "0/9", NOW, "c5", NOW)
    known = store.put(table_record(ORDERS, attempt=attempt, last_commit=summary))
    due = list(rules.due(NOW, NOW - timedelta(hours=4)))
    assert due[-1].end > LATE
    Announcements(store).announce([Proof(known, rules, NOW, due)], NOW)
    late = LateRows(store, settings(lateness="1d"), schema("timestamp", "id"))
    assert of(spark, late, "timestamp", ("c", 1, LATE)).late == {slot_of(LATE): 1}


def test_a_replay_counts_the_replayed_records_only(spark: SparkSession, store: Store) -> None:
    late = LateRows(store, settings(), schema("timestamp", "id"))
    rows = [("c", 1, LATE), ("c", 2, LATE), ("c", 3, LATE)]
    assert of(spark, late, "timestamp", *rows, places={(0, 1)}).late == {slot_of(LATE): 1}


def test_an_append_table_counts_each_row(spark: SparkSession, store: Store) -> None:
    late = LateRows(store, settings(), schema("timestamp"))
    found = of(spark, late, "timestamp", ("c", 1, LATE), ("c", 1, LATE))
    assert found.late == {slot_of(LATE): 2}


def test_times_without_a_zone_and_dates_are_read_by_the_clocks_of_the_zone(
    spark: SparkSession, store: Store
) -> None:
    zoned = settings(zone="Asia/Kathmandu")
    late = LateRows(store, zoned, schema("timestamp_ntz", "id"))
    shown = LATE + timedelta(hours=5, minutes=45)
    assert of(spark, late, "timestamp_ntz", ("c", 1, shown)).late == {slot_of(LATE): 1}
    dates = LateRows(store, zoned, schema("date", "id"))
    day = (NOW - timedelta(days=2)).replace(hour=0, minute=0, second=0)
    found = of(spark, dates, "date", ("c", 1, day)).late
    assert found == {slot_of(day - timedelta(hours=5, minutes=45)): 1}


def test_without_a_column_the_time_of_the_change_counts(spark: SparkSession, store: Store) -> None:
    late = LateRows(store, settings(None), schema("timestamp", "id"))
    found = of(spark, late, "timestamp", ("c", 1, LATE), ("u", 2, None))
    assert found == EventTimes(), "the source dates both changes in the present hour"


def test_a_column_of_another_type_is_named_and_counts_nothing(store: Store) -> None:
    for wrong in (schema("string", "id"), schema("timestamp", "id").only({"id"})):
        late = LateRows(store, settings(), wrong)
        assert late.moment is None
        assert "event_time names column at, and" in (untimely(settings(), wrong) or "")
    assert untimely(settings(None), schema("string", "id")) is None
