"""Rows, records and tables for tests of the lake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc.config import TableSettings
from cdc.errors import FencedError
from cdc.lake.index import SnapshotSize
from cdc.lake.timeline import CommitRecord, Timeline
from cdc.lake.write import LakeTable
from schemas.table import Column, TableId, TableSchema
from tributary_reader.storage import Entry, LocalStorage

TABLE = TableId("shop", "public", "orders")
ONE_COMMIT = SnapshotSize(rows=10, bytes=1000, commits=1)
SEVERAL_COMMITS = SnapshotSize(rows=10, bytes=1000, commits=3)


def schema(key: str, **columns: str) -> TableSchema:
    """A schema of lake types by column; ``key`` names the key's columns, separated by commas."""
    listed = tuple(Column(name, kind, kind) for name, kind in columns.items())
    return TableSchema(TABLE, listed, tuple(key.split(",")))


ORDERS = schema("id", id="bigint", name="string")

CLUSTERED = {
    "hoodie.clustering.inline.max.commits": "1",
    "hoodie.clustering.plan.strategy.single.group.clustering.enabled": "true",
}
"""Hudi settings with which each upkeep clusters files, even if there is only one file."""

Event = tuple[str, int, tuple[Any, ...]]


def lake(spark: SparkSession, path: Path, orders: TableSchema, **settings: Any) -> LakeTable:
    return LakeTable(spark, path.as_uri(), orders, TableSettings(**settings))


def rows(spark: SparkSession, table: LakeTable, events: Iterable[Event]) -> DataFrame:
    """Rows of (op, offset, source values) in the form that LakeTable takes."""
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in table.layout.input_columns)
    data = [(op, None, f"{at:016x}", at, 1, None, *values) for op, at, values in events]
    return spark.createDataFrame(data, ddl)


def record(kind: str = "run", **values: Any) -> CommitRecord:
    return CommitRecord(kind=kind, table=TABLE, attempt="a", **values)


def accept(_timeline: Timeline) -> None:
    """A guard that lets every commit pass."""


def insert(
    spark: SparkSession,
    table: LakeTable,
    *values: tuple[Any, ...],
    size: SnapshotSize = ONE_COMMIT,
    kind: Literal["chunk", "run"] = "chunk",
) -> None:
    """Write snapshot rows: as a chunk of a copy, or with kind ``run`` as the complete table."""
    snapshot = rows(spark, table, [("r", -1, row) for row in values])
    table.bulk_insert(snapshot, record(kind, chunk_ids=(0,)), accept, size)


insert_all = partial(insert, kind="run")
"""Like `insert`, but with the complete rows of a table; readers without Spark refuse chunks."""


def change(spark: SparkSession, table: LakeTable, end: int, *events: Event) -> None:
    """Write changes in one commit whose next offset is ``end``."""
    table.upsert(rows(spark, table, events), record(offsets={0: end}), accept)


def clean_before_listing(
    monkeypatch: pytest.MonkeyPatch, table: LakeTable, listing: int = 1
) -> None:
    """Let the table's upkeep happen when the reader without Spark begins its n-th file listing."""
    listed = LocalStorage.below
    left = iter(range(listing - 1, -1, -1))

    def below(self: LocalStorage, folder: str) -> Iterator[Entry]:
        if next(left, None) == 0:
            assert table.keep_up(lambda: None)
        return listed(self, folder)

    monkeypatch.setattr(LocalStorage, "below", below)


def content(table: LakeTable) -> list[tuple[Any, ...]]:
    """The source's columns of all rows in the table, sorted."""
    names = [column.name for column in table.layout.schema.columns]
    return sorted((tuple(row) for row in table.read().select(*names).collect()), key=repr)


def offsets(table: LakeTable) -> list[dict[int, int]]:
    """The offsets in all commits that have offsets."""
    return [dict(one.record.offsets) for one in table.timeline().commits() if one.record.offsets]


WIDER = schema("id", id="bigint", name="string", size="bigint")


def dies(_timeline: Timeline) -> None:
    raise FencedError("it dies", remedy="")
