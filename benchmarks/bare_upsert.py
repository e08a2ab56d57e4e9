"""Hudi's upsert alone: the work that no writer can leave out if it calls that upsert.

It writes rows that are in memory already, into copies of the product's lake tables, with the
settings of the product.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc.lake.index import IndexLayout
from cdc.lake.options import check_overrides, table_options
from cdc.lake.timeline import Timeline
from cdc.lake.write import layout_of
from operate.context import Services
from schemas.table import TableId


@dataclass
class BareTable:
    """A copy of one of the product's lake tables, which only the bare upsert writes.

    Args:
        record: The table in the product's lake that has the same rows.
        path: Path of the copy.
        upto: The instant of the product's newest commit whose rows the copy has.
        options: Hudi's settings for an upsert.
    """

    record: TableId
    path: str
    upto: str
    options: dict[str, str]


def bare_tables(services: Services, ids: Sequence[TableId], folder: Path) -> list[BareTable]:
    """Copy the product's lake tables."""
    created = []
    for table in ids:
        lake = read(services, path_of(services, table))
        newest = lake.agg(F.max("_hoodie_commit_time")).collect()[0][0]
        path = (folder / "bare" / table.name).as_uri()
        committed = Timeline(services.spark, path_of(services, table)).latest()
        assert committed is not None
        assert committed.index is not None
        index = committed.index
        _write(_without_hudi(lake), path, _options(services, table, index, "bulk_insert"))
        created.append(BareTable(table, path, newest, _options(services, table, index, "upsert")))
    return created


@contextlib.contextmanager
def new_rows(services: Services, tables: Sequence[BareTable]) -> Iterator[list[DataFrame]]:
    """Hold the rows of the product's commits that the copies lack in memory, without deletes."""
    frames = []
    for bare in tables:
        lake = read(services, path_of(services, bare.record))
        rows = lake.where(F.col("_hoodie_commit_time") > bare.upto)
        bare.upto = lake.agg(F.max("_hoodie_commit_time")).collect()[0][0]
        frames.append(_without_hudi(rows).persist())
        frames[-1].count()
    try:
        yield frames
    finally:
        for frame in frames:
            frame.unpersist()


def upsert(tables: Sequence[BareTable], frames: Sequence[DataFrame], at_once: int = 1) -> None:
    """Write rows of `new_rows` to the copies, ``at_once`` tables at the same time."""
    paths, options = [one.path for one in tables], [one.options for one in tables]
    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(_write, frames, paths, options))


def _write(rows: DataFrame, path: str, options: dict[str, str]) -> None:
    """Write by Hudi's own entry point."""
    rows.write.format("hudi").options(**options).mode("append").save(path)


def _options(
    services: Services, table: TableId, index: IndexLayout, operation: str
) -> dict[str, str]:
    """Return Hudi's settings for writes to the copy of a table: those of the product's table."""
    settings = services.config.table_settings(table)
    source = services.source(table.source)
    layout = layout_of(source.schema(source.table(table), settings), settings)
    overrides = check_overrides(table, settings.hudi)
    return table_options(layout, index, overrides, operation=operation)


def path_of(services: Services, table: TableId) -> str:
    record = services.store.get(table)
    assert record is not None
    assert record.attempt is not None
    return record.attempt.path


def read(services: Services, path: str) -> DataFrame:
    return services.spark.read.format("hudi").load(path)


def _without_hudi(rows: DataFrame) -> DataFrame:
    return rows.drop(*(name for name in rows.columns if name.startswith("_hoodie_")))
