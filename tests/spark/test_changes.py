from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc.rows.columns import MISSING, MOVED, OFFSET, SOURCE_TS, STALE, TRANSACTION
from cdc.rows.decode import UNKNOWN_SCHEMA, decode
from cdc.rows.event_plan import EventRules
from cdc.rows.fold import FEW, fill, fold, problems, summarize
from cdc.rows.replayed import at_places, replayed
from cdc.rows.visibility import Reading, not_visible_sql
from schemas.table import Column, TableId, TableSchema
from tests.spark.debezium import PLACEHOLDER, STRING, Topic, sent_at

SCHEMA = TableSchema(
    TableId("shop", "public", "orders"),
    (
        Column("id", "integer", "int", nullable=False),
        Column("note", "text", "string"),
        Column("body", "text", "string"),
        Column("qty", "integer", "int"),
    ),
    ("id",),
)


@pytest.fixture
def topic() -> Topic:
    topic = Topic()
    topic.register(1, {"id": "int", "note": STRING, "body": STRING, "qty": "int"})
    return topic


def changes(spark: SparkSession, topic: Topic, *, slices: int = 1) -> DataFrame:
    return decode(
        topic.frame(spark, slices=slices),
        topic.parsed(),
        SCHEMA,
        EventRules(PLACEHOLDER),
        ingested_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )


def folded(
    spark: SparkSession, topic: Topic, *, slices: int = 1, **options: Any
) -> dict[int, tuple[Any, ...]]:
    """Fold a topic's events; by key: operation, values, names of missing columns, whether moved."""
    batch = changes(spark, topic, slices=slices)
    frame = fold(batch, SCHEMA, unavailable=summarize(batch).unavailable, **options)
    found = {}
    for row in frame.collect():
        assert row["id"] not in found, "two rows for one key"
        values = (row["note"], row["body"], row["qty"])
        found[row["id"]] = (row["_cdc_op"], values, row[MISSING], row[MOVED])
    return found


def row(id: int, note: str | None, body: str | None, qty: int | None = 0) -> dict[str, Any]:
    return {"id": id, "note": note, "body": body, "qty": qty}


def test_the_last_change_of_a_key_wins_by_offset(spark: SparkSession, topic: Topic) -> None:
    topic.insert(**row(1, "a", "x"))
    topic.insert(**row(2, "b", "y"))
    topic.update(**row(1, "c", "z"))
    topic.delete(id=2)
    topic.delete(id=3)
    topic.insert(**row(3, "d", "w"))
    assert folded(spark, topic, slices=4) == {
        1: ("u", ("c", "z", 0), None, False),
        2: ("d", (None, None, None), None, False),
        3: ("c", ("d", "w", 0), None, False),
    }


def test_an_unavailable_value_comes_from_the_keys_earlier_event(
    spark: SparkSession, topic: Topic
) -> None:
    topic.insert(**row(1, "n1", "b1", 1))
    topic.update(**row(1, PLACEHOLDER, "b2", 2))
    topic.update(**row(1, PLACEHOLDER, PLACEHOLDER, 3))
    assert folded(spark, topic) == {1: ("u", ("n1", "b2", 3), None, True)}


def test_null_is_a_value_and_is_carried_as_one(spark: SparkSession, topic: Topic) -> None:
    topic.update(**row(1, "old", "b"))
    topic.update(**row(1, None, "b"))
    topic.update(**row(1, PLACEHOLDER, "b"))
    assert folded(spark, topic) == {1: ("u", (None, "b", 0), None, False)}


def test_a_value_the_batch_never_had_is_missing(spark: SparkSession, topic: Topic) -> None:
    topic.update(**row(1, PLACEHOLDER, "b1"))
    topic.update(**row(1, PLACEHOLDER, PLACEHOLDER))
    assert folded(spark, topic) == {1: ("u", (None, "b1", 0), ["note"], False)}


def test_values_are_not_carried_past_a_delete(spark: SparkSession, topic: Topic) -> None:
    topic.update(**row(1, "first life", "b"))
    topic.delete(id=1)
    topic.insert(**row(1, PLACEHOLDER, "moved here"))
    assert folded(spark, topic) == {1: ("c", (None, "moved here", 0), ["note"], True)}


def test_a_moved_row_is_not_filled_from_what_the_table_has_under_its_new_key(
    spark: SparkSession, topic: Topic
) -> None:
    topic.delete(id=1)
    topic.insert(**row(2, PLACEHOLDER, "b"))
    topic.update(**row(3, PLACEHOLDER, "b"))
    batch = changes(spark, topic)
    lake = spark.createDataFrame(
        [(1, "one"), (2, "another row's"), (3, "three")], "id int, note string"
    )
    summary = summarize(batch)
    assert summary.moved == 1
    rows = fold(batch, SCHEMA, unavailable=summary.unavailable)
    filled = fill(rows, lake, SCHEMA, ["note"], moved=False, absent_is_deleted=False)
    found = {r["id"]: (r["_cdc_op"], r["note"], r[MISSING]) for r in filled.collect()}
    assert found == {1: ("d", None, None), 2: ("c", None, ["note"]), 3: ("u", "three", None)}


def test_the_source_fills_the_rest_and_a_row_it_no_longer_has_is_deleted(
    spark: SparkSession, topic: Topic
) -> None:
    topic.insert(**row(2, PLACEHOLDER, PLACEHOLDER, 7))
    topic.update(**row(3, PLACEHOLDER, "b"))
    topic.update(**row(4, "whole", "b"))
    batch = changes(spark, topic)
    rows = fold(batch, SCHEMA, unavailable=summarize(batch).unavailable)
    source = spark.createDataFrame([(2, "n", None)], "id int, note string, body string")
    filled = fill(rows, source, SCHEMA, ["note", "body"], moved=True, absent_is_deleted=True)
    found = {r["id"]: (r["_cdc_op"], r["note"], r["body"], r[MISSING]) for r in filled.collect()}
    assert found == {
        2: ("c", "n", None, None),
        3: ("d", None, "b", None),
        4: ("u", "whole", "b", None),
    }


def test_a_table_without_the_column_leaves_it_missing(spark: SparkSession, topic: Topic) -> None:
    topic.update(**row(3, PLACEHOLDER, PLACEHOLDER))
    batch = changes(spark, topic)
    rows = fold(batch, SCHEMA, unavailable=summarize(batch).unavailable)
    lake = spark.createDataFrame([(3, "n")], "id int, note string")
    filled = fill(rows, lake, SCHEMA, ["note"], moved=False, absent_is_deleted=False)
    (only,) = filled.collect()
    assert (only["note"], only["body"], only[MISSING]) == ("n", None, ["body"])


def unclear(spark: SparkSession) -> DataFrame:
    """A batch with unsent large values, and with ``qty`` 7, the default that may stand for NULL."""
    topic = Topic()
    kinds = {"id": "int", "note": STRING, "body": STRING, "qty": "int"}
    topic.register(1, kinds, defaults={"qty": 7})
    topic.update(**row(1, "n1", PLACEHOLDER, 5))  # clear, and the lake has its body
    topic.update(**row(2, "n2", PLACEHOLDER, 7))
    topic.update(**row(3, "n3", "b3", 7))
    topic.update(**row(3, PLACEHOLDER, PLACEHOLDER, 6))
    topic.insert(**row(4, "n4", "b4", 4))
    topic.update(**row(4, PLACEHOLDER, PLACEHOLDER, 7))
    topic.update(**row(5, "n5", PLACEHOLDER, 7))
    topic.delete(id=5)
    return decode(
        topic.frame(spark, slices=2),
        topic.parsed(),
        SCHEMA,
        EventRules(PLACEHOLDER, nulls_are_kept=False),
        ingested_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )


@pytest.mark.parametrize("gaps", [False, True])
def test_an_unclear_value_hides_no_value_of_another_column_or_row(
    spark: SparkSession, gaps: bool
) -> None:
    batch = unclear(spark)
    found = fold(
        batch, SCHEMA, unavailable=summarize(batch).unavailable, soft_delete=True, gaps=gaps
    )
    shown = {
        r["id"]: (r["note"], r["body"], r["qty"], r[MISSING], r[STALE]) for r in found.collect()
    }
    if gaps:  # events may be missing in between
        assert shown == {
            1: ("n1", None, 5, None, ["body"]),
            2: ("n2", None, None, None, ["body", "qty"]),
            3: (None, None, 6, None, ["note", "body"]),
            4: (None, None, None, None, ["note", "body", "qty"]),
            5: ("n5", None, None, ["body"], None),
        }
    else:
        assert shown == {
            1: ("n1", None, 5, ["body"], None),
            2: ("n2", None, None, ["body"], ["qty"]),
            3: ("n3", "b3", 6, None, None),
            4: ("n4", "b4", None, None, ["qty"]),
            5: ("n5", None, None, ["body"], None),
        }


def test_a_soft_delete_keeps_the_last_values(spark: SparkSession, topic: Topic) -> None:
    topic.update(**row(1, "n", "b", 5))
    topic.update(**row(1, PLACEHOLDER, "b2", 6))
    topic.delete(id=1)
    topic.delete(id=2)
    assert folded(spark, topic, soft_delete=True) == {
        1: ("d", ("n", "b2", 6), None, False),
        2: ("d", (None, None, None), ["note", "body", "qty"], False),
    }


def test_a_deleted_row_that_got_its_key_in_the_batch_lacks_its_unchanged_value(
    spark: SparkSession, topic: Topic
) -> None:
    """The value is in the lake's row of the former key, which a soft delete keeps."""
    topic.delete(id=1)
    topic.insert(**row(2, "n", PLACEHOLDER, 5))
    topic.delete(id=2)
    assert folded(spark, topic, soft_delete=True) == {
        1: ("d", (None, None, None), ["note", "body", "qty"], False),
        2: ("d", ("n", None, 5), ["body"], True),
    }


def test_changes_before_a_truncate_are_left_out(spark: SparkSession, topic: Topic) -> None:
    topic.insert(**row(1, "a", "x"))
    topic.event("t")
    topic.insert(**row(2, "b", "y"))
    last = topic.event("t")
    topic.insert(**row(3, "c", "z"))
    summary = summarize(changes(spark, topic))
    assert (summary.first_truncate, summary.last_truncate) == (101, last)
    assert set(folded(spark, topic, after_offset=last)) == {3}


@pytest.mark.parametrize("slices", [1, 3])
def test_a_summary_names_the_last_record_whatever_it_is(
    spark: SparkSession, topic: Topic, slices: int
) -> None:
    topic.insert(**row(1, "a", "x"))
    topic.delete(id=1)
    last = topic.raw(b"not an event")
    newest = summarize(changes(spark, topic, slices=slices)).newest
    assert newest == {0: (last, round(sent_at(last).timestamp() * 1000))}


def test_a_replay_applies_the_changes_of_its_records_keys_only(
    spark: SparkSession, topic: Topic
) -> None:
    topic.insert(**row(1, "a", "x"))
    lost = topic.insert(**row(2, "b", "y"))
    topic.update(**row(1, "c", "x"))
    truncated = topic.event("t")
    gone = topic.delete(id=3)
    topic.update(**row(2, "d", "z"))
    topic.update(**row(4, "e", "z"))
    batch = changes(spark, topic)

    def found(*offsets: int) -> list[tuple[int, str]]:
        rows = replayed(batch, [(0, offset) for offset in offsets], SCHEMA)
        assert rows.columns == batch.columns
        return sorted((one["id"], one["_cdc_op"]) for one in rows.select("id", "_cdc_op").collect())

    assert found(lost) == [(2, "c"), (2, "u")]
    assert found(lost, gone) == [(2, "c"), (2, "u"), (3, "d")]
    assert found(truncated) == found(gone + 1) == found() == []
    assert replayed(batch, [(1, lost)], SCHEMA).isEmpty(), "the offset of another partition"


def test_a_replay_of_an_append_table_applies_its_records_only(
    spark: SparkSession, topic: Topic
) -> None:
    first = topic.insert(**row(1, "a", "x"))
    topic.insert(**row(1, "a", "x"))
    last = topic.insert(**row(2, "b", "y"))
    found = at_places(changes(spark, topic), [(0, first), (0, last), (1, last - 1)])
    assert sorted(one[OFFSET] for one in found.select(OFFSET).collect()) == [first, last]
    assert at_places(changes(spark, topic), []).isEmpty()


def test_the_summary_of_a_batch(spark: SparkSession, topic: Topic) -> None:
    topic.insert(**row(1, "a", "x"))
    topic.update(**row(1, PLACEHOLDER, "x"))
    topic.delete(id=1)
    topic.event("u", row(1, "a", "x"), ts_us=1_700_000_000_123_456)
    topic.raw(b"\x00\x00\x00\x00\x09")
    topic.raw(b"\x07")
    topic.raw(b"\x08-later")
    summary = summarize(changes(spark, topic, slices=3))
    assert summary.counts == {"c": 1, "d": 1, "tombstone": 1, "u": 2}
    assert summary.events == 4
    assert (summary.schema_ids, summary.unknown_schemas) == ((1,), (9,))
    assert summary.problems == 3
    found = problems(changes(spark, topic, slices=3), 2)
    assert [(one.partition, one.offset, one.schema_id, one.reason) for one in found] == [
        (0, 105, 9, UNKNOWN_SCHEMA),
        (0, 106, None, "shorter than 5 bytes"),
    ]
    assert problems(changes(spark, topic), 5, schema_id=9) == found[:1]
    assert summary.unavailable == ("note",)
    assert summary.source_ts[0] == datetime(2023, 11, 14, 22, 13, 20, 123_456, timezone.utc)
    assert summary.position == "0000000000001038:0000000000001040"


def test_a_small_batch_is_summarized_here_as_spark_summarizes_a_large_one(
    spark: SparkSession, topic: Topic
) -> None:
    topic.insert(**row(1, PLACEHOLDER, PLACEHOLDER))
    topic.event("t")
    topic.update(**row(1, PLACEHOLDER, "x"))
    topic.delete(id=1)
    topic.event("u", row(1, "a", "x"), ts_us=1_700_000_000_123_456)
    topic.event("t")
    topic.raw(b"\x00\x00\x00\x00\x09")
    topic.raw(b"\x07")
    for batch in (changes(spark, topic, slices=3), changes(spark, topic).filter("false")):
        for reading in (Reading(), Reading("98:104:98,100"), Reading("1:2:", still_open=[7])):
            for moment in (None, F.unix_micros(SOURCE_TS)):
                by_spark = summarize(batch, reading, moment)
                assert summarize(batch, reading, moment, most=8) == by_spark
                assert summarize(batch, reading, moment, most=FEW + 1) == by_spark


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        ("", set()),
        ("100:100:", {100, 103, 2**31 + 90}),
        ("98:104:98,100", {98, 100, 2**31 + 90}),
        # Ids above 32 bits, and a lower half that has begun again.
        (f"{2**32 + 99}:{2**32 + 101}:{2**32 + 99}", {99, 103, 2**31 + 90}),
        (f"{2**33 - 4}:{2**33 - 3}:", {2**32 - 3, 98, 99, 100, 103}),
    ],
)
def test_transactions_that_a_snapshot_does_not_show(
    spark: SparkSession, snapshot: str, expected: set[int]
) -> None:
    ids = (98, 99, 100, 103, 2**31 + 90, 2**31 + 200, 2**32 - 3, 2**32 - 4)
    frame = spark.createDataFrame(
        [(0, xid) for xid in ids], f"{OFFSET} bigint, {TRANSACTION} bigint"
    )
    found = frame.filter(not_visible_sql(Reading(snapshot))).collect()
    assert {row[TRANSACTION] for row in found} == expected
    for left in (), (100, 2**31 + 90):
        found = frame.filter(not_visible_sql(Reading(snapshot, still_open=left))).collect()
        assert {row[TRANSACTION] for row in found} == (set(left) if snapshot else set())


def test_an_empty_batch(spark: SparkSession, topic: Topic) -> None:
    summary = summarize(changes(spark, topic))
    assert summary.counts == {}
    assert (summary.position, summary.problems, summary.last_truncate) == (None, 0, None)
    assert folded(spark, topic) == {}


def _apply(lake: dict[int, Mapping[str, Any]], op: str, after: Mapping[str, Any]) -> None:
    """Apply one event to a whole table: the simple implementation to compare with."""
    if op == "d":
        lake.pop(after["id"], None)
        return
    known = lake.get(after["id"], {})
    lake[after["id"]] = {k: known[k] if v == PLACEHOLDER else v for k, v in after.items()}


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.breadth) for n in (1, 2))])
def test_folding_equals_applying_one_event_at_a_time(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    topic = Topic()
    topic.register(1, {"id": "int", "note": STRING, "body": STRING, "qty": "int"})
    start = {n: row(n, f"n{n}", f"b{n}", n) for n in range(0, 40, 2)}
    truth: dict[int, Mapping[str, Any]] = dict(start)
    for step in range(300):
        key = chance.randrange(40)
        if key not in truth:
            event = ("c", row(key, f"n{step}", f"b{step}", step))
        elif chance.random() < 0.3:
            event = ("d", {"id": key})
        else:
            lacks = [chance.random() < 0.5 for _ in range(2)]
            note, body = (PLACEHOLDER if lack else f"s{step}" for lack in lacks)
            event = ("u", row(key, note, body, step))
        _apply(truth, *event)
        if event[0] == "d":
            topic.delete(**event[1])
        else:
            topic.event(event[0], event[1])
    batch = changes(spark, topic, slices=3)
    rows = fold(batch, SCHEMA, unavailable=summarize(batch).unavailable)
    lake = spark.createDataFrame(
        [tuple(values.values()) for values in start.values()],
        "id int, note string, body string, qty int",
    )
    filled = fill(rows, lake, SCHEMA, ["note", "body"], moved=False, absent_is_deleted=False)
    result: dict[int, Any] = dict(start)
    for found in filled.collect():
        assert found[MISSING] is None
        if found["_cdc_op"] == "d":
            result.pop(found["id"], None)
        else:
            result[found["id"]] = {name: found[name] for name in ("id", "note", "body", "qty")}
    assert result == truth
