"""Tables without a key: decoding of events, rows in the lake, and comparison with the source."""

from __future__ import annotations

import itertools
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from cdc.errors import LostHistoryError
from cdc.lake.index import SnapshotSize
from cdc.lake.write import LakeTable
from cdc.rows.columns import PROBLEM
from cdc.rows.decode import decode
from cdc.rows.event_plan import EventRules
from cdc.rows.log_rows import ReachedPlace, inserted, reached
from operate.verify.compare import compare_bags
from schemas.table import Column, TableId, TableSchema
from tests.spark.debezium import PLACEHOLDER, STRING, Binlog, Topic
from tests.spark.lake import accept, content, lake, record

LOG = TableSchema(
    TableId("shop", "public", "events"),
    (Column("kind", "text", "string"), Column("n", "integer", "int")),
    (),
)


def topic() -> Topic:
    made = Topic()
    made.register(1, {"kind": STRING, "n": "int"})
    return made


def decoded(spark: SparkSession, events: Topic, **options: Any) -> DataFrame:
    return decode(
        events.frame(spark),
        events.parsed(),
        LOG,
        EventRules(PLACEHOLDER, **options),
        ingested_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )


def problems(frame: DataFrame) -> list[str | None]:
    return [row[PROBLEM] for row in frame.orderBy("_cdc_offset").collect()]


def test_equal_events_are_rows_of_their_own(spark: SparkSession) -> None:
    events = topic()
    for _ in range(3):
        events.insert(kind="a", n=1)
    events.event("t")
    events.insert(kind="a", n=1)
    frame = decoded(spark, events)
    assert problems(frame) == [None] * 5

    def found(**options: Any) -> list[Row]:
        return inserted(frame, **options).orderBy("_cdc_row").collect()

    assert [row["_cdc_row"] for row in found()] == [
        f"0-{offset:019d}" for offset in (100, 101, 102, 104)
    ]
    assert {(row["kind"], row["n"]) for row in found()} == {("a", 1)}
    assert [row["_cdc_offset"] for row in found(after_offset=103)] == [104]


def test_an_append_table_refuses_updates_and_deletes(spark: SparkSession) -> None:
    events = topic()
    events.insert(kind="a", n=1)
    events.update(kind="a", n=2)
    first, second = problems(decoded(spark, events))
    assert first is None
    assert second == "an update or delete, which an append table cannot apply"


def test_a_value_that_may_stand_for_a_null_is_refused_by_name(spark: SparkSession) -> None:
    events = Topic()
    events.register(1, {"kind": STRING, "n": "int"}, defaults={"n": 5})
    events.insert(kind="a", n=5)
    events.insert(kind="a", n=6)
    first, second = problems(decoded(spark, events, nulls_are_kept=False))
    assert first == (
        "the value of column n may be its default, a NULL, an impossible date or an infinite"
        " interval, or has a character that replaces unknown ones"
    )
    assert second is None
    assert problems(decoded(spark, events)) == [None, None]


def test_a_value_that_the_connector_may_send_for_a_null_is_refused(spark: SparkSession) -> None:
    events = Topic()
    events.register(1, {"kind": STRING, "n": "int"}, required=("kind", "n"))
    events.insert(kind="a", n=0)
    events.insert(kind="a", n=6)
    first, second = problems(decoded(spark, events, nullable=frozenset(("n",))))
    assert first is not None
    assert "the value of column n may be its default, a NULL" in first
    assert second is None


def test_a_transaction_of_a_binlog_that_is_read_again_adds_no_row(spark: SparkSession) -> None:
    """After its first rows, the connection is lost, and the whole transaction is sent again."""
    events = Binlog()
    events.register(1, {"kind": STRING, "n": "int"})
    events.begin("0-1-7", 400)
    for n in (1, 1, 2):
        events.insert(kind="a", n=n)
    events.begin("0-1-7", 400)
    for n in (1, 1, 2, 3):
        events.insert(kind="a", n=n)
    events.begin("0-1-8", 900)
    events.insert(kind="a", n=1)
    frame = decoded(spark, events).cache()
    assert problems(frame) == [None] * 8

    def found(part: DataFrame, **options: Any) -> list[tuple[int, int]]:
        kept = inserted(part, from_binlog=True, **options).orderBy("_cdc_offset").collect()
        assert len({row["_cdc_row"] for row in kept}) == len(kept)
        return [(row["_cdc_offset"], row["n"]) for row in kept]

    once = [(100, 1), (101, 1), (102, 2), (106, 3), (107, 1)]
    assert found(frame) == once
    # Wherever batches end, also in the midst of what is sent again.
    for ends in ((101,), (102,), (104,), (105, 106), (103, 104, 105, 107)):
        place: ReachedPlace | None = None
        rows_found: list[int] = []
        for start, end in itertools.pairwise((100, *ends, 108)):
            batch = frame.where(f"_cdc_offset >= {start} AND _cdc_offset < {end}")
            rows_found += [n for _, n in found(batch, beyond=place)]
            place = reached(batch, place, LOG.table)
            assert place is not None
            assert ReachedPlace.parse(str(place)) == place
        assert rows_found == [n for _, n in once], ends


def test_a_connector_that_goes_on_amid_a_transaction_counts_anew(spark: SparkSession) -> None:
    """After its restart, the connector reconnects, and reads the transaction from the start."""
    events = Binlog()
    events.register(1, {"kind": STRING, "n": "int"})
    for readings in ((1, 2, 3), (4, 5)):
        events.begin("0-1-7", 400)
        events.row = readings[0]
        for n in readings:
            events.insert(kind="a", n=n)
    events.begin("0-1-7", 400)
    events.row = 1
    for n in (1, 2, 3, 4, 5, 6):
        events.insert(kind="a", n=n)
    frame = decoded(spark, events).cache()
    once = [1, 2, 3, 4, 5, 6]
    for ends in ((), (103, 105, 109)):
        place: ReachedPlace | None = None
        found: list[int] = []
        for start, end in itertools.pairwise((100, *ends, 111)):
            batch = frame.where(f"_cdc_offset >= {start} AND _cdc_offset < {end}")
            rows_found = inserted(batch, from_binlog=True, beyond=place)
            found += [row["n"] for row in rows_found.orderBy("_cdc_offset").collect()]
            place = reached(batch, place, LOG.table)
        assert found == once, ends


def test_a_replay_reads_what_its_transaction_had_sent_before(spark: SparkSession) -> None:
    """The replayed range begins after the connector's first start, or amid the repeated events."""
    events = Binlog()
    events.register(1, {"kind": STRING, "n": "int"})
    for readings in ((1, 2, 3), (4, 5), (1, 2)):
        events.begin("0-1-7", 400)
        events.row = readings[0]
        for n in readings:
            events.insert(kind="a", n=n)
    frame = decoded(spark, events).cache()
    for start, end in ((102, 105), (106, 107)):
        place = reached(frame.where(f"_cdc_offset < {end}"), None, LOG.table)
        again = frame.where(f"_cdc_offset >= {start} AND _cdc_offset < {end}")
        assert reached(again, place, LOG.table, again=True) == place


def test_events_without_places_of_their_own_are_refused(spark: SparkSession) -> None:
    """Such events come from compressed transactions, or from transactions of more than 4 GiB."""
    for places in ((400, 400, 400), (400, 500, 100)):
        events = Binlog()
        events.register(1, {"kind": STRING, "n": "int"})
        events.begin("0-1-7", 400)
        for n, place in enumerate(places):
            events.pos, events.row = place, 0
            events.insert(kind="a", n=n)
        frame = decoded(spark, events).cache()
        with pytest.raises(LostHistoryError, match=r"offset 10[12] is compressed"):
            reached(frame, None, LOG.table)
        # Also where a batch ends between the two.
        first, second = (100, 101) if places[1] == places[0] else (101, 102)
        before = reached(frame.where(f"_cdc_offset = {first}"), None, LOG.table)
        with pytest.raises(LostHistoryError, match=f"offset {second} is compressed"):
            reached(frame.where(f"_cdc_offset = {second}"), before, LOG.table)


def test_places_of_another_transaction_are_other_places(spark: SparkSession) -> None:
    """This happens after a server has started its binlogs again from the first file."""
    events = Binlog()
    events.register(1, {"kind": STRING, "n": "int"})
    for gtid in ("0-1-7", "0-2-1"):
        events.begin(gtid, 400)
        events.insert(kind="a", n=1)
    assert inserted(decoded(spark, events), from_binlog=True).count() == 2


def test_updates_and_deletes_of_a_binlog_are_no_rows_of_a_log(spark: SparkSession) -> None:
    events = Binlog()
    events.register(1, {"kind": STRING, "n": "int"})
    events.insert(kind="a", n=1)
    events.update(kind="a", n=2)
    events.event("d", None, {"kind": "a", "n": 2})
    frame = decoded(spark, events)
    assert problems(frame) == [None] * 3
    assert [row["n"] for row in inserted(frame, from_binlog=True).collect()] == [1]


def rows(spark: SparkSession, table: LakeTable, *places: tuple[str, int]) -> DataFrame:
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in table.layout.input_columns)
    data = [("c", None, "0", at, 1, None, f"{at:019d}", kind, at % 2) for kind, at in places]
    return spark.createDataFrame(data, ddl)


def test_rows_are_added_to_small_files_and_none_is_merged(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", LOG, mode="append")
    size = SnapshotSize(rows=2, bytes=100, commits=1)
    table.bulk_insert(
        rows(spark, table, ("a", 1), ("a", 3)), record("chunk", chunk_ids=(0,)), accept, size
    )
    files = set(table.read().select("_hoodie_file_name").collect())
    for commit in range(3):
        first = 10 + 4 * commit
        more = rows(spark, table, *(("a", first + 2 * n) for n in range(2)))
        table.insert(more, record(offsets={0: first + 4}), accept)
    assert content(table) == [("a", 0)] * 6 + [("a", 1)] * 2
    packed = set(table.read().select("_hoodie_file_name").collect())
    assert len(packed) == len(files), "small files are filled before another one is begun"
    again = rows(spark, table, ("a", 10), ("b", 12), ("c", 13))
    table.upsert(again, record(offsets={0: 22}), accept)
    assert content(table) == [("a", 0)] * 5 + [("a", 1)] * 2 + [("b", 0), ("c", 1)]
    table.overwrite(rows(spark, table, ("z", 31)), record(offsets={0: 32}), accept)
    assert content(table) == [("z", 1)]


def test_bags_are_compared_by_how_often_a_row_occurs(spark: SparkSession) -> None:
    def bag(*values: tuple[str | None, int | None]) -> DataFrame:
        return spark.createDataFrame(list(values), "kind string, n int")

    same = [("a", 1), ("a", 1), (None, 2), ("", None)]
    found = compare_bags(bag(*same), bag(*same[::-1]), LOG, limit=10)
    assert (found.rows, found.source_rows, found.lake_rows, found.differing) == (3, 4, 4, 0)
    assert found.surplus == ()
    found = compare_bags(bag(*same, ("a", 1)), bag(("", None), *same), LOG, limit=10)
    assert found.differing == 2
    assert sorted(found.surplus, key=str) == [
        (-1, {"kind": "", "n": None}),
        (1, {"kind": "a", "n": 1}),
    ]
    assert compare_bags(bag(), bag(), LOG, limit=10).rows == 0
