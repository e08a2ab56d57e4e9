from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc.config import TableSettings
from cdc.errors import FencedError
from cdc.lake.layout import META_COLUMNS
from cdc.lake.timeline import CommitRecord, Timeline
from cdc.lake.write import LakeTable
from schemas.table import Column, TableId, TableSchema

TABLE = TableId("shop", "public", "orders")
ORDERS = TableSchema(
    TABLE,
    (
        Column("id", "bigint", "bigint", nullable=False),
        Column("name", "text", "string"),
        Column("at", "timestamp", "timestamp_ntz"),
        Column("amount", "numeric(10,2)", "decimal(10,2)"),
    ),
    ("id",),
)


def record(kind: str = "run", **values: Any) -> CommitRecord:
    return CommitRecord(kind=kind, table=TABLE, attempt="a", **values)


def accept(_timeline: Timeline) -> None:
    """A guard that lets every commit pass."""


def rows(
    spark: SparkSession, schema: TableSchema, events: Iterable[tuple[str, int, tuple[Any, ...]]]
) -> DataFrame:
    """Rows of (op, offset, source values) in the form that LakeTable takes."""
    columns = [*META_COLUMNS, *((column.name, column.lake_type) for column in schema.columns)]
    ddl = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns)
    data = [(op, None, f"{at:016x}", at, 1, None, *values) for op, at, values in events]
    return spark.createDataFrame(data, ddl)


def lake(spark: SparkSession, path: Path, schema: TableSchema, **settings: Any) -> LakeTable:
    return LakeTable(spark, path.as_uri(), schema, TableSettings(**settings))


def test_changes_of_one_commit_insert_update_and_delete(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS)
    snapshot = [("r", -1, (i, f"old {i}", None, None)) for i in range(6)]
    table.bulk_insert(rows(spark, ORDERS, snapshot), record("chunk", chunk_ids=(0,)))
    changes = [
        ("u", 10, (0, "new 0", None, None)),
        ("d", 11, (1, None, None, None)),
        ("d", 12, (99, None, None, None)),
        ("c", 13, (7, "new 7", None, None)),
    ]

    table.upsert(rows(spark, ORDERS, changes), record(offsets={0: 14}), accept)

    found = {row.id: row.name for row in table.read().select("id", "name").collect()}
    assert found == {0: "new 0", 2: "old 2", 3: "old 3", 4: "old 4", 5: "old 5", 7: "new 7"}
    latest = table.timeline().latest_offsets()
    assert latest is not None
    assert latest.record.offsets == {0: 14}
    assert table.timeline().chunks("a") == {0}


def test_a_guard_that_refuses_leaves_the_table_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS)
    table.upsert(
        rows(spark, ORDERS, [("c", 1, (1, "first", None, None))]), record(offsets={0: 2}), accept
    )

    def refuse(_timeline: Timeline) -> None:
        raise FencedError("another run committed", remedy="Plan anew.")

    with pytest.raises(FencedError, match="another run committed"):
        table.upsert(
            rows(spark, ORDERS, [("u", 2, (1, "second", None, None))]),
            record(offsets={0: 3}),
            refuse,
        )

    assert [row.name for row in table.read().collect()] == ["first"]
    assert [one.record.offsets for one in table.timeline().commits()] == [{0: 2}]


WRITES: list[Callable[[LakeTable, SparkSession], str]] = [
    lambda table, spark: table.empty_commit(record(offsets={0: 9}), accept),
    lambda table, spark: table.overwrite(rows(spark, ORDERS, []), record(offsets={0: 9}), accept),
    lambda table, spark: table.upsert(rows(spark, ORDERS, []), record(offsets={0: 9}), accept),
]


@pytest.mark.parametrize("write", WRITES, ids=["empty_commit", "overwrite", "upsert"])
def test_a_commit_without_rows_still_records_offsets(
    spark: SparkSession, tmp_path: Path, write: Callable[[LakeTable, SparkSession], str]
) -> None:
    table = lake(spark, tmp_path / "t", ORDERS)

    write(table, spark)
    write(table, spark)

    latest = table.timeline().latest_offsets()
    assert latest is not None
    assert latest.record.offsets == {0: 9}
    assert table.read().count() == 0
    assert len(table.timeline().commits()) == 2
