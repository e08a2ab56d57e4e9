"""All data checks of a table in one pass: what each counts, and checks that a table cannot have."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc.config.checks import CheckSettings
from cdc.rows.columns import OFFSET
from cdc.runtime.local_frame import local_frame
from operate.data_checks.findings import COUNTED, PERIOD, Finding
from operate.data_checks.references import _count_dangling_references
from operate.data_checks.rows import check_rows
from schemas.table import Column, TableId, TableSchema

NOW = datetime(2026, 3, 2, 0, 30, tzinfo=timezone.utc)
TYPES = {
    "id": "bigint",
    "country": "string",
    "amount": "decimal(10,2)",
    "day": "date",
    "at": "timestamp",
    "local at": "timestamp_ntz",
    "ok": "boolean",
}
SCHEMA = TableSchema(
    TableId("shop", "public", "orders"),
    tuple(Column(name, kind, kind) for name, kind in TYPES.items()),
    ("id",),
)
ROWS = (
    "(1, 'CH', 1.50, '2026-02-28', '2026-03-01T00:00:00Z', '2026-03-01 00:00:00', true)",
    "(2, 'DE', 99.99, '2026-03-01', '2026-03-01T23:59:59Z', '2026-03-01 23:59:59', false)",
    "(2, NULL, NULL, NULL, NULL, NULL, NULL)",
    "(4, 'FR', -1.00, '2026-03-02', '2026-03-02T00:00:00Z', '2026-03-02 00:00:00', true)",
    "(NULL, 'CH', 1.50, '2025-01-01', '2026-02-28T23:59:59Z', '2026-02-28 23:59:59', true)",
)


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    names = ", ".join(f"`{name}`" for name in TYPES)
    casts = ", ".join(f"CAST(`{name}` AS {kind}) AS `{name}`" for name, kind in TYPES.items())
    return spark.sql(f"SELECT {casts} FROM VALUES {', '.join(ROWS)} AS t({names})")


def found(rows: DataFrame, **checks: dict[str, Any]) -> dict[str, Finding]:
    settings = {name: CheckSettings.model_validate(check) for name, check in checks.items()}
    return check_rows(rows, SCHEMA, settings, now=NOW)


@dataclass
class Counted:
    """Counts the aggregations over rows that Spark executes."""

    rows: DataFrame
    passes: int = 0

    def agg(self, *wanted: Any) -> DataFrame:
        self.passes += 1
        return self.rows.agg(*wanted)


def test_all_checks_of_a_table_are_one_pass(rows: DataFrame) -> None:
    counted = Counted(rows)
    answers = found(
        cast("Any", counted),
        nulls={"kind": "not_null", "columns": ["id", "ok"]},
        same={"kind": "unique", "columns": ["id"]},
        pair={"kind": "unique", "columns": ["id", "country"]},
        land={"kind": "accepted_values", "columns": ["country"], "values": ["CH", "DE"]},
        sign={"kind": "range", "columns": ["amount"], "min": 0},
        days={"kind": "range", "columns": ["day"], "min": "2026-01-01", "max": "2026-03-01"},
        all={"kind": "volume"},
    )
    assert counted.passes == 1
    assert {name: one.outcome for name, one in answers.items()} == {
        **dict.fromkeys(("nulls", "same", "land", "sign", "days"), "failed"),
        **dict.fromkeys(("pair", "all"), "passed"),
    }
    assert answers["nulls"].counts == {"rows": 5, "id": 1, "ok": 1}
    assert answers["nulls"].detail == "1 rows are NULL in id, 1 rows are NULL in ok; 5 rows"
    assert answers["same"].counts == {"rows": 5, "repeated": 1}, "a NULL equals no other NULL"
    assert answers["land"].counts == {"rows": 5, "country": 1}, "NULL is not another value"
    assert answers["sign"].counts == {"rows": 5, "amount": 1}
    assert answers["days"].counts == {"rows": 5, "day": 2}
    assert answers["all"].counts == {COUNTED: 5}


@pytest.mark.parametrize(("column", "expected"), [("at", 2), ("local at", 2), ("day", 1)])
def test_the_rows_of_the_last_whole_period_are_counted_in_utc(
    rows: DataFrame, column: str, expected: int
) -> None:
    daily = {"kind": "volume", "time_column": column, "period": "1d", "settle": "10m"}
    answer = found(rows, daily=daily)["daily"]
    end = datetime(2026, 3, 2, tzinfo=timezone.utc)
    assert answer.counts == {COUNTED: expected, PERIOD: int(end.timestamp()), "rows": 5}
    later = found(rows, daily={**daily, "settle": "1h"})["daily"]
    assert later.counts[PERIOD] == int(end.timestamp()) - 86400, "the last day has not settled"


def test_a_table_without_rows_passes(rows: DataFrame) -> None:
    answers = found(
        rows.where("false"),
        nulls={"kind": "not_null", "columns": ["id"]},
        same={"kind": "unique", "columns": ["id"]},
        land={"kind": "accepted_values", "columns": ["country"], "values": ["CH"]},
        all={"kind": "volume"},
    )
    assert {one.outcome for one in answers.values()} == {"passed"}
    assert answers["all"].counts == {COUNTED: 0}


def test_a_check_that_does_not_fit_hides_no_other(rows: DataFrame) -> None:
    answers = found(
        rows,
        gone={"kind": "not_null", "columns": ["town"]},
        word={"kind": "accepted_values", "columns": ["id"], "values": ["1", "o'n\\e"]},
        bound={"kind": "range", "columns": ["day"], "max": "soon"},
        time={"kind": "volume", "time_column": "country", "period": "1d"},
        sign={"kind": "range", "columns": ["amount"], "min": 0},
    )
    assert {name: one.detail for name, one in answers.items() if one.outcome == "error"} == {
        "gone": "the lake table has no column town",
        "word": "a configured value is no value of the type of column id",
        "bound": "a configured value is no value of the type of column day",
        "time": "column country is of type string, which has no times",
    }
    assert answers["sign"].outcome == "failed"


def test_rows_refer_to_rows_unless_they_are_too_new_or_have_a_null(spark: SparkSession) -> None:
    ddl = f"a bigint, b string, {OFFSET} bigint"
    values = [(1, "x", -1), (1, "y", 3), (2, "x", 9), (None, "x", 1), (7, "q", 4), (8, "q", 5)]
    ours = local_frame(spark, values, ddl)
    theirs = local_frame(spark, [(1, "x", 0), (1, "y", 0), (1, "y", 0)], ddl)
    found = _count_dangling_references(ours, theirs, ("a", "b"), ("a", "b"), below=5)
    assert found.counts == {"rows": 6, "left_out": 2, "unmatched": 1}
    assert found.outcome == "failed"
    assert (
        _count_dangling_references(ours, theirs, ("a", "b"), ("a", "b"), below=4).outcome
        == "passed"
    )
