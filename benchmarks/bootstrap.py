"""2,000,000 rows from a read replica to the lake, beside other ways to read the same rows.

One process, one Spark session, one stack. Each round runs every side once, in an order that turns:

- the limit: binary COPY to a null sink, two sessions;
- Spark's JDBC reader to plain Parquet (zstd), the same number of tasks, no lake table;
- dlt with ConnectorX to Parquet, where its environment is given;
- the bootstrap, whole: capture proven, fence, view, copy, handoff, catch-up, publication.

The first round warms all up and does not count. No figure is printed before what the round wrote
was found equal to the source. dlt and ConnectorX need an environment of their own (dependency
group `bench`), since they pin other libraries than this project:

    python -m benchmarks.bootstrap [--rows 2000000] [--rounds 5] [--dlt-python PATH] [--stack DIR]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil
import psycopg
import yaml
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bootstrap.handoff import bootstrap_table
from cdc.config import Config
from cdc.runtime.progress import NullProgress
from cdc.store.table_state import Cause, State, transition
from operate.context import Services
from operate.onboard import onboard
from schemas.table import TableId
from stack.local import LocalStack

SOURCE = "bench"
TABLE = "bootstrap_rows"
TASKS = 4
GATES = {"copy": 0.25, "jdbc": 0.65, "dlt": 0.8}
"""The least rate of the bootstrap, as a fraction of each side's rows per second."""
DDL = f"""
DROP TABLE IF EXISTS {TABLE};
CREATE TABLE {TABLE} (
  id bigint PRIMARY KEY, customer_id int NOT NULL, sku text NOT NULL, quantity int,
  price numeric(12,2), discount numeric(6,4), paid boolean, weight double precision, score real,
  created_at timestamptz, local_at timestamp, due date, token uuid, tags jsonb, note text,
  small_n smallint)
"""
FILL = f"""
INSERT INTO {TABLE} SELECT g, ((g::bigint * 7919) % 100000)::int, 'SKU-' || (g::bigint * 31 % 5000),
  g % 50, round((g % 100000) / 7.0, 2), round((g % 97) / 97.0, 4), g % 3 = 0, g * 1.1,
  (g % 1000) / 3.0, timestamptz '2024-01-01' + g * interval '1.000001 seconds',
  timestamp '2024-01-01' + (g % 86400) * interval '1 second', date '2024-01-01' + g % 365,
  md5(g::text)::uuid, jsonb_build_object('a', g % 10, 'b', 'x' || g % 100),
  CASE WHEN g % 5 = 0 THEN NULL
       ELSE 'note number ' || g || ' of the customer ' || md5((g % 1000)::text) END,
  (g % 300)::smallint
FROM generate_series(1, {{rows}}) g
"""
# Every column as a type that all readers can give.
COMPARED = {
    "id": "bigint",
    "customer_id": "int",
    "sku": "string",
    "quantity": "int",
    "price": "decimal(12,2)",
    "discount": "decimal(6,4)",
    "paid": "boolean",
    "weight": "double",
    "score": "float",
    "created_at": "timestamp",
    "local_at": "timestamp",
    "due": "date",
    "note": "string",
    "small_n": "int",
}
AS_TEXT = ("token", "tags")


@dataclass
class Side:
    """One way to move the rows.

    Args:
        name: Short name.
        act: Moves the rows once; returns the seconds if the side measures them itself, else None.
        seconds: Elapsed seconds, per counted round.
        cpu: CPU seconds of everything that took part, per counted round.
    """

    name: str
    act: Callable[[], float | None]
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


class Bench:
    """The sides of the comparison over one stack."""

    def __init__(self, services: Services, stack: LocalStack, folder: Path, rows: int) -> None:
        self.services = services
        self.stack = stack
        self.folder = folder
        self.rows = rows
        self.table = TableId(SOURCE, "public", TABLE)
        self.lake_path = ""

    def copy(self) -> None:
        """Binary COPY to a null sink: two sessions, half of the keys each."""
        dsn = self.stack.env()["TRIBUTARY_REPLICA_DSN"]
        half = self.rows // 2
        processes = [
            subprocess.Popen(
                [
                    psql(),
                    dsn,
                    "-qc",
                    f"COPY (SELECT * FROM {TABLE} WHERE {where}) TO STDOUT BINARY",
                ],
                stdout=subprocess.DEVNULL,
            )
            for where in (f"id <= {half}", f"id > {half}")
        ]
        assert [process.wait() for process in processes] == [0, 0]

    def jdbc(self) -> None:
        """Spark's reader with its defaults to plain Parquet."""
        step = -(-self.rows // TASKS)
        ranges = [f"id > {n * step} AND id <= {(n + 1) * step}" for n in range(TASKS)]
        source = self.services.source(SOURCE).snapshot_query(*self._described(), [], view=None)
        login = {key: source.properties[key] for key in ("user", "password", "driver")}
        frame = self.services.spark.read.jdbc(
            source.url, TABLE, predicates=ranges, properties={**login, "fetchsize": "10000"}
        )
        frame.write.mode("overwrite").option("compression", "zstd").parquet(self._path("jdbc"))

    def dlt(self, python: str) -> float:
        """Run dlt in its own environment; it measures itself, so its start does not count."""
        shutil.rmtree(self.folder / "dlt", ignore_errors=True)
        done = subprocess.run(
            [python, str(Path(__file__).with_name("dlt_peer.py")), str(self.folder / "dlt"), TABLE],
            env={**os.environ, "BENCH_DSN": self._url()},
            check=True,
            capture_output=True,
            text=True,
        )
        return float(done.stdout.split()[-1])

    def bootstrap(self) -> None:
        """The product's bootstrap into another generation, beside the one that is published."""
        before = self.services.store.get(self.table)
        assert before is not None
        if before.state is State.INCREMENTAL:
            now = datetime.now(timezone.utc)
            before = self.services.store.put(
                transition(before, State.NEEDS_BOOTSTRAP, at=now, cause=Cause("benchmark"))
            )
        done = bootstrap_table(self.services.run_context, self.services.connect, before)
        assert done.record.attempt is not None
        assert done.rows == self.rows, f"{done.rows} rows were read"
        shutil.rmtree(self.lake_path.removeprefix("file://"), ignore_errors=True)
        self.lake_path = done.record.attempt.path

    def require_equal(self, *, with_dlt: bool) -> None:
        """Compare all rows and columns that the sides wrote, as order-free sums of hashes."""
        spark = self.services.spark
        source = checksum(spark.read.parquet(self._path("jdbc")))
        assert source["rows"] == self.rows, source
        lake = spark.read.format("hudi").load(self.lake_path)
        found = checksum(lake)
        assert found == source, f"the lake differs from the source: {found} and {source}"
        keys = lake.select("id").distinct().count()
        assert keys == self.rows, f"{keys} distinct keys"
        if with_dlt:
            loaded = str(self.folder / "dlt" / "out" / "full" / TABLE)
            other = checksum(spark.read.parquet(loaded), without=AS_TEXT)
            same = {key: value for key, value in source.items() if key in other}
            assert other == same, f"dlt differs from the source: {other} and {same}"

    def _described(self) -> tuple[Any, Any]:
        source = self.services.source(SOURCE)
        described = source.table(self.table)
        settings = self.services.config.table_settings(self.table)
        return described, source.schema(described, settings)

    def _path(self, name: str) -> str:
        return str(self.folder / name)

    def _url(self) -> str:
        """The URL of the replica including the password, for a reader without password files."""
        source = self.services.source(SOURCE).snapshot_query(*self._described(), [], view=None)
        login = f"{source.properties['user']}:{source.properties['password']}"
        return source.url.replace("jdbc:postgresql://", f"postgresql://{login}@")


def checksum(rows: DataFrame, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The number of rows, and for each column, the sum of the hashes of (key, value)."""
    wanted = [*COMPARED, *(name for name in AS_TEXT if name not in without)]
    columns = [
        F.sum(F.xxhash64(F.col("id"), value(rows, name)).cast("decimal(38,0)")).alias(name)
        for name in wanted
    ]
    found = rows.select(F.count("*").alias("rows"), *columns).first()
    assert found is not None
    return found.asDict()


def value(rows: DataFrame, name: str) -> Any:
    kind = dict(rows.dtypes)[name]
    if kind == "timestamp_ntz":  # the same wall clock in UTC
        return F.col(name).cast("string").cast("timestamp")
    return F.col(name).cast(COMPARED.get(name, "string"))


@contextlib.contextmanager
def opened(stack: LocalStack, folder: Path) -> Iterator[Services]:
    document = yaml.safe_load(stack.config_text(source=SOURCE, folder=folder))
    document["lake"] = {"url": (folder / "lake").as_uri()}
    document["state"] = {"url": f"sqlite:///{folder / 'state.db'}"}
    document["spark"] = {"master": "local[2]", "driver_memory": "2g"}
    services = Services(Config.model_validate(document), NullProgress())
    try:
        yield services
    finally:
        services.close()


def psql() -> str:
    found = shutil.which("psql") or next(
        iter(sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/psql")), reverse=True)), None
    )
    assert found, "psql is not installed: it comes with PostgreSQL's client package"
    return found


def timed(
    act: Callable[[], float | None],
    stack: LocalStack,
    servers: tuple[str, ...] = ("primary", "replica"),
) -> tuple[float, float]:
    """Elapsed seconds, and CPU seconds of this process, its children and the database servers."""
    before, start = cpu_seconds(stack, servers), time.perf_counter()
    measured = act()
    took = time.perf_counter() - start
    return (measured if measured is not None else took), cpu_seconds(stack, servers) - before


def cpu_seconds(stack: LocalStack, servers: tuple[str, ...]) -> float:
    """CPU seconds so far, including ended processes; the load of the machine changes them least."""
    me = psutil.Process()
    roots = [me, *(psutil.Process(stack.server(name).pid) for name in servers)]
    total = 0.0
    for root in roots:
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                used = process.cpu_times()
                total += used.user + used.system + used.children_user + used.children_system
    return total


class Profile:
    """Samples of the stacks of Spark's task threads during the bootstraps, counted by topic."""

    TOPICS = (
        ("source: wait for the server", ("SocketInputStream", "NioSocketImpl", "socketRead")),
        ("source: parse rows", ("org.postgresql",)),
        ("source: to Spark rows", ("JDBCRDD", "JdbcUtils")),
        ("lake: compress", ("zstd", "Zstd")),
        ("lake: bloom filter", ("BloomFilter",)),
        ("lake: encode Parquet", ("org.apache.parquet",)),
        ("lake: Hudi's row writer", ("org.apache.hudi",)),
    )

    def __init__(self, services: Services) -> None:
        self._jvm: Any = services.spark.sparkContext._jvm
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.seen: Counter[str] = Counter()

    def __enter__(self) -> Profile:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(0.05):
            traces = self._jvm.java.lang.Thread.getAllStackTraces()
            for thread in traces.keySet().toArray():
                if not str(thread.getName()).startswith("Executor task launch"):
                    continue
                frames = [str(frame.getClassName()) for frame in traces.get(thread)]
                if any("org.apache.spark.executor" in name for name in frames):
                    self.seen[self._topic(frames)] += 1

    def _topic(self, frames: list[str]) -> str:
        for name in frames:
            for topic, marks in self.TOPICS:
                if any(mark in name for mark in marks):
                    return topic
        return f"other: {frames[0]}"

    def shares(self) -> dict[str, float]:
        total = sum(self.seen.values()) or 1
        return {topic: round(count / total, 3) for topic, count in self.seen.most_common(12)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds")
    parser.add_argument("--dlt-python", help="Python of an environment with the `bench` group")
    parser.add_argument("--stack", type=Path, help="folder of a stack to use and leave running")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tributary-bench-") as folder:
        stack = LocalStack(arguments.stack or Path(folder, "stack"), report=print)
        if arguments.stack is not None:
            return measure(stack, Path(folder), arguments)
        with stack:
            return measure(stack, Path(folder), arguments)


def measure(stack: LocalStack, folder: Path, arguments: argparse.Namespace) -> int:
    with psycopg.connect(stack.env()["TRIBUTARY_PRIMARY_DSN"], autocommit=True) as source:
        source.execute(DDL.encode())
        source.execute(FILL.format(rows=arguments.rows).encode())
        source.execute(f"ANALYZE {TABLE}".encode())
    with opened(stack, folder) as services:
        bench = Bench(services, stack, folder, arguments.rows)
        registered = onboard(services, [bench.table], with_bootstrap=False)
        assert not any(outcome.failed for outcome in registered), registered
        sides = [Side("copy", bench.copy), Side("jdbc", bench.jdbc)]
        if arguments.dlt_python:
            sides.append(Side("dlt", lambda: bench.dlt(arguments.dlt_python)))
        sides.append(Side("bootstrap", bench.bootstrap))
        for number in range(arguments.rounds + 1):
            for side in sides[number % len(sides) :] + sides[: number % len(sides)]:
                took, cpu = timed(side.act, stack)
                if number:
                    side.seconds.append(took)
                    side.cpu.append(cpu)
            bench.require_equal(with_dlt=bool(arguments.dlt_python))
            print(f"round {number}: {arguments.rows} rows equal on every side", flush=True)
        with Profile(services) as profile:
            bench.bootstrap()
    return report(sides, arguments.rows, profile)


def report(sides: list[Side], rows: int, profile: Profile) -> int:
    """Print medians, ratios and the profile; the exit code says whether every gate is reached."""
    medians = {side.name: statistics.median(side.seconds) for side in sides}
    ratios = {name: took / medians["bootstrap"] for name, took in medians.items()}
    reached = {name: ratios[name] >= gate for name, gate in GATES.items() if name in ratios}
    figures = {
        "rows": rows,
        "seconds": {side.name: [round(one, 2) for one in side.seconds] for side in sides},
        "cpu_seconds": {side.name: [round(one, 1) for one in side.cpu] for side in sides},
        "rows_per_second_median": {name: round(rows / took) for name, took in medians.items()},
        "bootstrap_to_each_median": {
            name: round(ratio, 3) for name, ratio in ratios.items() if name != "bootstrap"
        },
        "gates": {name: {"wanted": GATES[name], "reached": ok} for name, ok in reached.items()},
        "not_measured": sorted(GATES.keys() - ratios.keys()),
        "bootstrap_task_time": profile.shares(),
    }
    print(json.dumps(figures, indent=2))
    return 0 if all(reached.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
