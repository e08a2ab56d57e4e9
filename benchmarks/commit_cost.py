"""CPU time of the commits of one lake table, early and late, by pattern of changes and size.

One process, one Spark session, no servers: rows go to the lake through the product's writer, with
its upkeep after each commit. A table that is copied by chunks gets commits of three patterns:

- recent: one half new rows, one half updates of the newest 100,000 rows;
- uniform: updates of keys from the whole table;
- append: new rows only.

Beside it, a table with Hudi's default settings gets the first commits of the same changes. Before
a figure is printed, all rows of both tables are compared with what they must be.

Each ratio is the mean of the last ten commits by that of the ten commits around the tenth. The
exponent of a pattern is that of a power of the number of rows to which the cost grows, from the
smallest table to the largest. The first pattern of the first size warms the JVM up for `WARM_UP`
commits of a table that does not count.

    python -m benchmarks.commit_cost [--rows 100000,1000000] [--commits 60] [--changes 1000]
        [--patterns recent,uniform,append] [--stock-commits 15]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from pathlib import Path
from statistics import mean
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.incremental import timed
from bootstrap.chunks import chunk_count, cut_chunks, default_chunk_rows, waves
from cdc.config import Config, TableSettings
from cdc.lake.data_files import stats_of
from cdc.lake.index import SnapshotSize
from cdc.lake.timeline import CommitRecord
from cdc.lake.write import LakeTable
from cdc.runtime import spark as spark_module
from cdc.sources.source_facts import Boundaries, TableSize
from schemas.table import Column, TableId, TableSchema

TABLE = TableId("bench", "public", "orders")
HEAP_ROW_BYTES = 200
"""Size, in bytes, of a benchmark's row in PostgreSQL, with its header and alignment."""
RECENT_ROWS = 100_000
WARM_UP = 8
GATE = 1.2
"""The most CPU time of the last commits, as a multiple of that of commits around the tenth."""
EXPONENT_GATE = 0.3
"""Greatest exponent of the pattern `recent`."""
STOCK_GATE = 0.65
"""Greatest CPU time of a commit with its upkeep, as a share of that with Hudi's defaults."""
VALUES = {
    "id": ("bigint", "id"),
    "customer": ("int", "cast(id % 5000 as int)"),
    "status": ("string", "concat('s', version)"),
    "amount": ("decimal(12,2)", "cast(id * 0.01 + version as decimal(12,2))"),
    "quantity": ("int", "cast(id % 9 as int)"),
    "placed_at": ("timestamp", "timestamp_seconds(1767225600 + id)"),
    "price": ("double", "id * 0.5"),
    "city": ("string", "concat('city ', id % 700)"),
    "note": ("string", "md5(concat(id, ':', version))"),
    "token": ("string", "md5(concat('token', id))"),
    "parent": ("string", "md5(concat(version, '-', id))"),
}
"""By column: its type, and the SQL expression for its value from ``id`` and ``version``."""
SCHEMA = TableSchema(TABLE, tuple(Column(n, t, t) for n, (t, _) in VALUES.items()), ("id",))
Changes = dict[int, int]
"""The version of each changed row, by its id."""


@dataclass
class Figures:
    """CPU seconds and written megabytes of each commit of one table, and of the upkeep after it."""

    commits: list[float] = field(default_factory=list)
    upkeep: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)

    def around_tenth(self) -> float:
        return mean(self.commits[4:15])

    def last(self) -> float:
        return mean(self.commits[-10:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="100000,1000000", help="sizes of tables, with commas")
    parser.add_argument("--commits", type=int, default=60, help="commits of each table")
    parser.add_argument("--changes", type=int, default=1000, help="changed rows of each commit")
    parser.add_argument("--patterns", default="recent,uniform,append", help="with commas")
    parser.add_argument("--stock-commits", type=int, default=15, help="0: no table beside it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tributary-bench-") as name:
        folder = Path(name)
        spark = spark_module.session(config(folder), "commit-cost")
        try:
            run_pattern(spark, folder / "warm", 10_000, "recent", arguments, commits=WARM_UP)
            figures = [
                one_table(spark, folder / f"{pattern}-{rows}", rows, pattern, arguments)
                for rows in map(int, arguments.rows.split(","))
                for pattern in arguments.patterns.split(",")
            ]
        finally:
            spark_module.stop()
    return report(figures)


def config(folder: Path) -> Config:
    admin = {"admin": {"user": "admin"}}
    source = {"kind": "postgres", "primary": {"host": "localhost", "database": "bench"}}
    return Config.model_validate(
        {
            "sources": {"bench": source | {"credentials": admin}},
            "kafka": {
                "bootstrap_servers": "localhost:9092",
                "registry": {"url": "http://localhost:8081"},
            },
            "connect": {"url": "http://localhost:8083"},
            "lake": {"url": (folder / "lake").as_uri()},
            "spark": {"master": "local[2]", "driver_memory": "3g"},
        }
    )


def one_table(
    spark: SparkSession, folder: Path, rows: int, pattern: str, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Measure a pattern on a size; print the figures, and return them."""
    ours = run_pattern(spark, folder, rows, pattern, arguments, commits=arguments.commits)
    ratio = ours.last() / ours.around_tenth()
    with_upkeep = [a + b for a, b in zip(ours.commits, ours.upkeep, strict=True)]
    print(
        f"{pattern}, {rows:,} rows: {ours.around_tenth():.2f} CPU-s around the tenth commit,"
        f" {ours.last():.2f} in the last ten of {len(ours.commits)}: ratio {ratio:.2f}"
        f" (at most {max(ours.commits):.2f}; {mean(with_upkeep):.2f} on average with upkeep);"
        f" {mean(ours.written[4:15]):.1f} and {mean(ours.written[-10:]):.1f} MB written",
        flush=True,
    )
    found: dict[str, Any] = {
        "pattern": pattern,
        "rows": rows,
        "commits": len(ours.commits),
        "tenth_cpu_s": round(ours.around_tenth(), 2),
        "last_cpu_s": round(ours.last(), 2),
        "last_by_tenth": round(ratio, 2),
        "mean_with_upkeep_cpu_s": round(mean(with_upkeep), 2),
        "tenth_written_mb": round(mean(ours.written[4:15]), 1),
        "last_written_mb": round(mean(ours.written[-10:]), 1),
    }
    if arguments.stock_commits:
        stock = run_stock(spark, folder / "stock", rows, pattern, arguments)
        print(
            f"  with Hudi's default settings: {mean(stock.commits[4:]):.2f} CPU-s, ours"
            f" {ours.around_tenth():.2f}: {mean(stock.commits[4:]) / ours.around_tenth():.1f}"
            " times as much",
            flush=True,
        )
        found["stock_cpu_s"] = round(mean(stock.commits[4:]), 2)
    return found


def run_pattern(
    spark: SparkSession,
    folder: Path,
    rows: int,
    pattern: str,
    arguments: argparse.Namespace,
    *,
    commits: int,
) -> Figures:
    """Copy a table, change it, compare it with the expected rows, and return the figures."""
    settings = TableSettings(readers_keep="1s")
    table = LakeTable(spark, (folder / "ours").as_uri(), SCHEMA, settings)
    size = TableSize(rows, rows * HEAP_ROW_BYTES)
    most = settings.chunk_rows or default_chunk_rows(size, appends=False)
    chunks = chunk_count(size, chunk_rows=most, chunk_bytes=128 * 2**20, parallel=2)
    cut = cut_chunks(Boundaries(tuple((str(n),) for n in range(chunks - 1)), size))
    planned = SnapshotSize(size.rows, size.heap_bytes, len(waves(cut, parallel=2)))
    first = spark.range(0, rows, 1, chunks).withColumn("version", F.lit(0))
    chunk = record("chunk", chunk_ids=tuple(range(chunks)))
    table.bulk_insert(framed(first, table, "r", -1), chunk, lambda _: None, planned)
    figures, versions = Figures(), Changed(rows, pattern, arguments.changes)
    for number in range(1, commits + 1):
        changed = framed(frame(spark, versions.next(number)), table, "u", number)
        done = record("run", offsets={0: number})

        def commit(changed: DataFrame = changed, done: CommitRecord = done) -> None:
            table.upsert(changed, done, lambda _: None)

        figures.commits.append(timed(commit)[1])
        timeline = table.timeline()
        latest = timeline.latest()
        assert latest is not None
        stats = stats_of(timeline.metadata_of(latest.instant)).values()
        figures.written.append(sum(o["fileSizeInBytes"] for one in stats for o in one) / 1e6)
        figures.upkeep.append(timed(lambda: table.keep_up(lambda: None))[1])
    compare(spark, table.read(), versions)
    return figures


def run_stock(
    spark: SparkSession, folder: Path, rows: int, pattern: str, arguments: argparse.Namespace
) -> Figures:
    """Write the same changes with Hudi's own writer and default settings; returns the figures."""
    options = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "version",
    }

    def write(changed: DataFrame, operation: str) -> None:
        named = changed.select(*values(), F.col("version"))
        writer = named.write.format("hudi").options(**options).mode("append")
        writer.option("hoodie.datasource.write.operation", operation).save(folder.as_uri())

    write(spark.range(rows).withColumn("version", F.lit(0)), "bulk_insert")
    figures, versions = Figures(), Changed(rows, pattern, arguments.changes)
    for number in range(1, arguments.stock_commits + 1):
        changed = frame(spark, versions.next(number))
        figures.commits.append(timed(lambda changed=changed: write(changed, "upsert"))[1])  # type: ignore[misc]
    compare(spark, spark.read.format("hudi").load(folder.as_uri()), versions)
    return figures


class Changed:
    """Chooses the rows that each commit changes; each side gets the same rows.

    Args:
        rows: Number of rows of the copied table.
        pattern: The pattern's name.
        changes: Number of changed rows of each commit.
    """

    def __init__(self, rows: int, pattern: str, changes: int) -> None:
        self.rows, self.versions = rows, Changes()
        self._random = random.Random(7)
        draw: dict[str, Callable[[], list[int]]] = {
            "recent": lambda: [*self._new(changes // 2), *self._old(changes // 2, RECENT_ROWS)],
            "uniform": lambda: self._old(changes, self.rows),
            "append": lambda: self._new(changes),
        }
        self._draw = draw[pattern]

    def next(self, number: int) -> Changes:
        changed = dict.fromkeys(self._draw(), number)
        self.versions |= changed
        return changed

    def _new(self, count: int) -> list[int]:
        self.rows += count
        return list(range(self.rows - count, self.rows))

    def _old(self, count: int, newest: int) -> list[int]:
        return self._random.sample(range(max(0, self.rows - newest), self.rows), count)


def frame(spark: SparkSession, changed: Changes) -> DataFrame:
    return spark.createDataFrame(list(changed.items()), "id bigint, version int")


def values() -> list[SparkColumn]:
    return [F.expr(value).cast(kind).alias(name) for name, (kind, value) in VALUES.items()]


def framed(changed: DataFrame, table: LakeTable, op: str, offset: int) -> DataFrame:
    """The rows of these ids and versions, in the form that the lake's writer takes."""
    there = {"_cdc_op": F.lit(op), "_cdc_offset": F.lit(offset), "_cdc_schema_id": F.lit(1)}
    there["_cdc_position"] = F.lit(f"{max(offset, 0):016x}")
    meta = (name for name in table.layout.input_columns if name[0] not in VALUES)
    columns = [there.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in meta]
    return changed.select(*columns, *values())


def record(kind: str, **values: object) -> CommitRecord:
    return CommitRecord(kind=kind, table=TABLE, attempt="a", **values)  # type: ignore[arg-type]


def report(figures: list[dict[str, Any]]) -> int:
    """Print the figures; the exit code tells whether all gates are reached."""
    exponents = {
        pattern: found
        for pattern in dict.fromkeys(str(one["pattern"]) for one in figures)
        if (found := exponent([one for one in figures if one["pattern"] == pattern])) is not None
    }
    # Hudi's default settings clean the table within the commit, so our upkeep counts, too.
    shares = [
        one["mean_with_upkeep_cpu_s"] / one["stock_cpu_s"]
        for one in figures
        if "stock_cpu_s" in one
    ]
    reached = {"last_by_tenth": all(one["last_by_tenth"] <= GATE for one in figures)}
    if "recent" in exponents:
        reached["exponent_of_recent"] = exponents["recent"] <= EXPONENT_GATE
    if shares:
        reached["share_of_stock"] = max(shares) <= STOCK_GATE
    shown = {
        "tables": figures,
        "exponents": exponents,
        "shares_of_stock": [round(one, 2) for one in shares],
        "gates": {
            "wanted": {
                "last_by_tenth": GATE,
                "exponent_of_recent": EXPONENT_GATE,
                "share_of_stock": STOCK_GATE,
            },
            "reached": reached,
        },
    }
    print(json.dumps(shown, indent=2))
    return 0 if all(reached.values()) else 1


def exponent(figures: list[dict[str, Any]]) -> float | None:
    """Return the exponent of a pattern's cost by its figures; None for a single size."""
    least, most = (choose(figures, key=lambda one: int(one["rows"])) for choose in (min, max))
    if least["rows"] == most["rows"]:
        return None
    growth = most["tenth_cpu_s"] / least["tenth_cpu_s"]
    return round(math.log(growth) / math.log(most["rows"] / least["rows"]), 2)


def compare(spark: SparkSession, found: DataFrame, versions: Changed) -> None:
    """Compare a table row for row with the expected rows; raises an error if they differ."""
    ids = spark.range(versions.rows).join(frame(spark, versions.versions), "id", "left")
    expected = ids.withColumn("version", F.coalesce("version", F.lit(0))).select(*values())
    same = [F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}")) for name in VALUES]
    differing = found.alias("a").join(expected.alias("b"), F.col("a.id") == F.col("b.id"), "full")
    wrong = differing.where(~reduce(and_, same))
    assert found.count() == versions.rows, f"{found.count()} rows, not {versions.rows}"
    assert wrong.count() == 0, f"{wrong.count()} rows differ"


if __name__ == "__main__":
    sys.exit(main())
