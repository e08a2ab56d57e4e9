"""CPU time of the commits of one lake table, early and late, by pattern of changes and size.

One process, one Spark session, no servers: rows go to the lake through the product's writer, with
its upkeep after each commit. A table that is copied by chunks gets commits of three patterns:

- recent: one half new rows, one half updates of the newest 100,000 rows;
- uniform: updates of keys from the whole table;
- append: new rows only.

A table with Hudi's default settings gets the same changes. The two sides take turns commit by
commit, and the side that goes first alternates. Before a figure is printed, each row of both tables
is compared with what it must be. The first table warms the JVM up and does not count.

Each figure is a median of at least five commits: the early one of the 5th to the 15th commit, the
late one of the last ten. A uniform commit rewrites nearly all files, so a table of `LARGE_ROWS` or
more gets fewer patterns and commits (`LARGE_COMMITS`), and its only figure is that of all commits
after the first ones. The share of the defaults is the median of the ratios of single turns; our
mean upkeep counts in it, since Hudi's default settings clean the table within the commit. The cost
of a pattern grows by a power of the number of rows, whose exponent is fitted to all sizes.

    python -m benchmarks.commit_cost [--rows 100000,1000000,10000000] [--commits 30]
        [--changes 1000] [--patterns recent,uniform,append] [--no-stock]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from statistics import linear_regression, mean, median
from typing import Any, Protocol

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
FIRST = 4
"""The number of first commits of a table that do not count; a third of them if there are few."""
AROUND_TENTH = 15
"""The number of the last commit whose cost counts as that of the tenth."""
LAST = 10
LARGE_ROWS = 5_000_000
LARGE_COMMITS = {"recent": 12, "uniform": 7}
"""The patterns of a table of at least `LARGE_ROWS` rows, and the most commits of each."""
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


@dataclass(frozen=True)
class Case:
    """One table of the benchmark.

    Args:
        rows: Number of rows of the copied table.
        pattern: The pattern of its changes.
        commits: Number of its commits.
        changes: Number of changed rows of each commit.
        stock: Whether a table with Hudi's default settings gets the same changes.
    """

    rows: int
    pattern: str
    commits: int
    changes: int
    stock: bool

    @property
    def has_late_commits(self) -> bool:
        """Whether the last commits are others than those around the tenth."""
        return self.commits >= AROUND_TENTH + LAST

    @property
    def counted(self) -> slice:
        """The commits that count."""
        return slice(min(FIRST, self.commits // 3), None)

    @property
    def early(self) -> slice:
        """The commits whose median is the figure of the tenth commit."""
        return slice(self.counted.start, AROUND_TENTH if self.has_late_commits else None)


class Side(Protocol):
    """A table to which a side writes the changes; ``cpu`` has the CPU seconds of each commit."""

    cpu: list[float]

    def commit(self, number: int, changed: Changes, /) -> None:
        """Write changed rows in one commit."""

    def read(self) -> DataFrame:
        """Return the table's rows."""


class Ours:
    """A table that the product writes, with the CPU seconds and megabytes of each commit.

    Args:
        spark: The session.
        folder: The table's folder.
        rows: Number of rows of the copy, which the constructor makes.
    """

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        self._spark = spark
        self.cpu: list[float] = []
        self.upkeep: list[float] = []
        self.written: list[float] = []
        settings = TableSettings(readers_keep="1s")
        self._table = LakeTable(spark, folder.as_uri(), SCHEMA, settings)
        size = TableSize(rows, rows * HEAP_ROW_BYTES)
        most = settings.chunk_rows or default_chunk_rows(size, appends=False)
        chunks = chunk_count(size, chunk_rows=most, chunk_bytes=128 * 2**20, parallel=2)
        cut = cut_chunks(Boundaries(tuple((str(n),) for n in range(chunks - 1)), size))
        planned = SnapshotSize(size.rows, size.heap_bytes, len(waves(cut, parallel=2)))
        first = spark.range(0, rows, 1, chunks).withColumn("version", F.lit(0))
        chunk = record("chunk", chunk_ids=tuple(range(chunks)))
        copied = framed(first, self._table, "r", -1)
        self._table.bulk_insert(copied, chunk, lambda _: None, planned)

    def commit(self, number: int, changed: Changes) -> None:
        rows = framed(frame(self._spark, changed), self._table, "u", number)
        done = record("run", offsets={0: number})
        self.cpu.append(timed(lambda: self._table.upsert(rows, done, lambda _: None))[1])
        timeline = self._table.timeline()
        latest = timeline.latest()
        assert latest is not None
        stats = stats_of(timeline.metadata_of(latest.instant)).values()
        self.written.append(sum(o["fileSizeInBytes"] for one in stats for o in one) / 1e6)
        self.upkeep.append(timed(lambda: self._table.keep_up(lambda: None))[1])

    def read(self) -> DataFrame:
        return self._table.read()


class Stock:
    """A table that Hudi's own writer writes with its default settings.

    Args:
        spark: The session.
        folder: The table's folder.
        rows: Number of rows of the copy, which the constructor makes.
    """

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        self._spark, self._path = spark, folder.as_uri()
        self.cpu: list[float] = []
        copied = spark.range(rows).withColumn("version", F.lit(0))
        self._write(self._named(copied), "bulk_insert")

    def commit(self, _number: int, changed: Changes) -> None:
        rows = self._named(frame(self._spark, changed))
        self.cpu.append(timed(lambda: self._write(rows, "upsert"))[1])

    def read(self) -> DataFrame:
        return self._spark.read.format("hudi").load(self._path)

    @staticmethod
    def _named(changed: DataFrame) -> DataFrame:
        return changed.select(*values(), F.col("version"))

    def _write(self, rows: DataFrame, operation: str) -> None:
        options = {
            "hoodie.table.name": "orders",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "version",
            "hoodie.datasource.write.operation": operation,
        }
        rows.write.format("hudi").options(**options).mode("append").save(self._path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = "100000,1000000,10000000"
    parser.add_argument("--rows", default=sizes, help="sizes of tables, with commas")
    parser.add_argument("--commits", type=int, default=30, help="commits of each table")
    parser.add_argument("--changes", type=int, default=1000, help="changed rows of each commit")
    parser.add_argument("--patterns", default="recent,uniform,append", help="with commas")
    parser.add_argument("--no-stock", action="store_true", help="no table beside it")
    arguments = parser.parse_args()
    warm = Case(10_000, "recent", WARM_UP, arguments.changes, not arguments.no_stock)
    with tempfile.TemporaryDirectory(prefix="tributary-bench-") as name:
        folder = Path(name)
        spark = spark_module.session(config(folder), "commit-cost")
        try:
            play(spark, folder / "warm", warm)
            figures = [
                measured(spark, folder / f"{case.pattern}-{case.rows}", case)
                for case in cases(arguments)
            ]
        finally:
            spark_module.stop()
    return report(figures)


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Return the tables to measure, the smallest first."""
    found = []
    for rows in sorted(map(int, arguments.rows.split(","))):
        for pattern in arguments.patterns.split(","):
            most = LARGE_COMMITS.get(pattern, 0) if rows >= LARGE_ROWS else arguments.commits
            if commits := min(arguments.commits, most):
                stock = not arguments.no_stock
                found.append(Case(rows, pattern, commits, arguments.changes, stock))
    return found


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


def measured(spark: SparkSession, folder: Path, case: Case) -> dict[str, Any]:
    """Measure a table; print its figures, and return them."""
    ours, stock = play(spark, folder, case)
    early, upkeep = median(ours.cpu[case.early]), mean(ours.upkeep)
    found: dict[str, Any] = {
        "pattern": case.pattern,
        "rows": case.rows,
        "commits": case.commits,
        "tenth_cpu_s": round(early, 2),
        "mean_upkeep_cpu_s": round(upkeep, 2),
        "most_cpu_s": round(max(ours.cpu[case.counted]), 2),
        "tenth_written_mb": round(median(ours.written[case.early]), 1),
    }
    if case.has_late_commits:
        last = median(ours.cpu[-LAST:])
        found["last_cpu_s"] = round(last, 2)
        found["last_by_tenth"] = round(last / early, 2)
        found["last_written_mb"] = round(median(ours.written[-LAST:]), 1)
    if stock is not None:
        turns = zip(ours.cpu[case.counted], stock.cpu[case.counted], strict=True)
        found["stock_cpu_s"] = round(median(stock.cpu[case.counted]), 2)
        found["share_of_stock"] = round(median((our + upkeep) / its for our, its in turns), 2)
    print(", ".join(f"{name} {value}" for name, value in found.items()), flush=True)
    return found


def play(spark: SparkSession, folder: Path, case: Case) -> tuple[Ours, Stock | None]:
    """Copy a table on each side, change it in turns, and compare the rows of all sides."""
    ours = Ours(spark, folder / "ours", case.rows)
    stock = Stock(spark, folder / "stock", case.rows) if case.stock else None
    sides: list[Side] = [ours] if stock is None else [ours, stock]
    versions = Changed(case.rows, case.pattern, case.changes)
    for number in range(1, case.commits + 1):
        changed = versions.next(number)
        for side in sides if number % 2 else reversed(sides):
            side.commit(number, changed)
    for side in sides:
        compare(spark, side.read(), versions)
    shutil.rmtree(folder)  # the versions of all tables together would fill the disk
    return ours, stock


class Changed:
    """Chooses the rows that each commit changes.

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


def report(figures: Sequence[dict[str, Any]]) -> int:
    """Print the figures; the exit code says whether all gates are reached."""
    exponents = {
        pattern: found
        for pattern in dict.fromkeys(str(one["pattern"]) for one in figures)
        if (found := exponent([one for one in figures if one["pattern"] == pattern])) is not None
    }
    growths = [one["last_by_tenth"] for one in figures if "last_by_tenth" in one]
    shares = [one["share_of_stock"] for one in figures if "share_of_stock" in one]
    reached = {}
    if growths:
        reached["last_by_tenth"] = max(growths) <= GATE
    if "recent" in exponents:
        reached["exponent_of_recent"] = exponents["recent"] <= EXPONENT_GATE
    if shares:
        reached["share_of_stock"] = max(shares) <= STOCK_GATE
    shown = {
        "tables": figures,
        "exponents": exponents,
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


def exponent(figures: Sequence[dict[str, Any]]) -> float | None:
    """Return the exponent of a pattern's cost by its figures; None for a single size."""
    if len({one["rows"] for one in figures}) < 2:
        return None
    sizes = [math.log(one["rows"]) for one in figures]
    costs = [math.log(one["tenth_cpu_s"]) for one in figures]
    return round(linear_regression(sizes, costs).slope, 2)


def compare(spark: SparkSession, found: DataFrame, versions: Changed) -> None:
    """Compare each row of a table with what it must be; raises an error if one differs."""
    known = F.broadcast(frame(spark, versions.versions))
    rows = found.select(*VALUES).join(known, "id", "left")
    rows = rows.withColumn("version", F.coalesce("version", F.lit(0)))
    expected = {name: F.expr(value).cast(kind) for name, (kind, value) in VALUES.items()}
    same = reduce(and_, (F.col(name).eqNullSafe(value) for name, value in expected.items()))
    counts = rows.agg(
        F.count("*"), F.countDistinct("id"), F.min("id"), F.max("id"), F.count_if(~same)
    ).first()
    assert counts is not None
    found_rows, ids, least, most, wrong = counts
    assert (found_rows, ids) == (versions.rows, versions.rows), f"{ids} ids in {found_rows} rows"
    assert (least, most) == (0, versions.rows - 1), f"ids from {least} to {most}"
    assert wrong == 0, f"{wrong} rows differ"


if __name__ == "__main__":
    sys.exit(main())
