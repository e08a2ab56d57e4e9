"""One table of MySQL or MariaDB read whole, by the product's reader and by others.

One process, one Spark session with two cores, one stack. All sides read the same chunks, which the
product's own code cut, by the same SQL from the replica, and give the same columns. Each round runs
every side once, in an order of its own; the first warms all up and does not count. A read ends in
a sum of hashes, or in Parquet (zstd) that is read back for one: no figure is printed before all
sides were found to have read the same rows in every round. A side that cannot run here is left out
of the table, with the reason.

- a: Spark's JDBC reader with MariaDB Connector/J, as the product has it;
- b: the same with other settings of the driver;
- c: MySQL Connector/J, from the plugin of Debezium's connector in the cache;
- d: pymysql in Python workers, unbuffered;
- e: clients in C and Rust in their place, from an environment of their own (group `bench-readers`).

    python -m benchmarks.mysql_readers [--kind mariadb|mysql] [--rows 2000000] [--rounds 5]
        [--only b,d1] [--parquet] [--ssl-mode disabled] [--stack DIR]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.bootstrap import timed
from benchmarks.environment import PROJECT, peers_python
from benchmarks.reader_sides import PRODUCT, Readers, Side
from cdc.config import Config
from cdc.runtime.progress import NullProgress
from cdc.runtime.spark import java_class
from operate.context import Services
from schemas.errors import TributaryError
from schemas.table import TableId
from stack.artifacts import fetch_software
from stack.local import LocalStack
from stack.mysql_software import MARIADB, MYSQL
from stack.ports import HOST
from stack.roles import ADMIN, SNAPSHOT

SOURCE = "bench"
DATABASE = f"bench_readers_{os.getpid()}"
TABLE = "reader_rows"
CORES = 2
STEP_ROWS = 100_000
REPLICA_LIMIT_S = 900.0
DDL = f"""
CREATE TABLE {TABLE} (
  id bigint PRIMARY KEY, customer_id int NOT NULL, sku varchar(40) NOT NULL, quantity int,
  price decimal(12,2), discount decimal(6,4), paid tinyint(1), weight double, score float,
  created_at datetime(6), seen_at timestamp NULL, due date, token char(36), note text,
  small_n smallint) CHARACTER SET utf8mb4
"""
# Both servers let a recursion go 1000 deep.
FILL = f"""
INSERT INTO {TABLE}
WITH RECURSIVE u AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM u WHERE n < 999),
  k AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM k WHERE n < {STEP_ROWS // 1000 - 1}),
  numbers AS (SELECT {{done}} + k.n * 1000 + u.n + 1 AS g FROM k CROSS JOIN u)
SELECT g, g * 7919 % 100000, concat('SKU-', g * 31 % 5000), g % 50,
  round(g % 100000 / 7.0, 2), round(g % 97 / 97.0, 4), g % 3 = 0, g * 1.1e0, g % 1000 / 3.0e0,
  timestamp('2024-01-01') + INTERVAL g * 1000001 MICROSECOND,
  timestamp('2024-01-01') + INTERVAL g % 86400 SECOND, date('2024-01-01') + INTERVAL g % 365 DAY,
  left(sha2(g, 256), 36), CASE WHEN g % 5 > 0
    THEN concat('note № ', g, ' of the customer ', left(sha2(g % 1000, 256), 32)) END, g % 300
FROM numbers WHERE g <= {{rows}}
"""


def sums(rows: DataFrame, *, each: bool = False) -> dict[str, int]:
    """The number of rows, and the sum of their hashes.

    With ``each``, one sum for each column, of the hashes of (key, value).
    """
    low = F.lit(2**32 - 1)  # sums of them do not overflow below two billion rows
    hashed = {name: F.xxhash64("id", name) for name in rows.columns} if each else {}
    hashed = hashed or {"sum": F.xxhash64(*rows.columns)}
    found = rows.select(
        F.count("*").alias("rows"),
        *(F.sum(value.bitwiseAND(low)).alias(name) for name, value in hashed.items()),
    ).first()
    assert found is not None
    return found.asDict()


@contextlib.contextmanager
def limited(readers: Readers, seconds: float) -> Iterator[None]:
    """Cancel the Spark jobs of the block if it takes longer than these seconds."""
    timer = threading.Timer(seconds, readers.spark.sparkContext.cancelAllJobs)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", choices=(MARIADB, MYSQL), default=MARIADB)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds")
    parser.add_argument("--only", default="", help="groups or sides beside a: b,d1")
    parser.add_argument("--parquet", action="store_true", help="write Parquet, not sums only")
    parser.add_argument("--ssl-mode", default="preferred", help="as in tributary.yaml")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds that a read may take")
    parser.add_argument("--stack", type=Path, help="folder of a stack to use and leave running")
    arguments = parser.parse_args()
    # What is open is closed, and the database dropped, when another process ends this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Before Spark starts, whose workers take the environment of this process.
    lacks = give_libraries() if only(arguments.only, "d", "e") else ""
    with tempfile.TemporaryDirectory(prefix="tributary-bench-") as folder:
        stack = LocalStack(arguments.stack or Path(folder, "stack"), report=print)
        try:
            if arguments.stack is None:
                stack.up(print, sources=[arguments.kind])
            with loaded(stack, arguments):
                return measure(stack, Path(folder), arguments, lacks)
        finally:
            if arguments.stack is None:
                stack.down()


def only(chosen: str, *keys: str) -> bool:
    """Whether a side, or some side of its group, was chosen on the command line."""
    wanted = [part.strip() for part in chosen.split(",") if part.strip()]
    return not wanted or any(
        key.startswith(part) or part.startswith(key) for key in keys for part in wanted
    )


def give_libraries() -> str:
    """Let this process and Spark's workers import the peers' libraries.

    Returns an empty text, or the reason why the libraries are missing. They come last in the
    search path, so they replace no library of the project.
    """
    try:
        find = "import sysconfig; print(sysconfig.get_path('purelib'))"
        found = subprocess.check_output([peers_python("bench-readers"), "-c", find], text=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no environment with the group bench-readers: {error}"
    sys.path.append(found.strip())
    given = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(PROJECT), given, found.strip())))
    return ""


@contextlib.contextmanager
def loaded(stack: LocalStack, arguments: argparse.Namespace) -> Iterator[None]:
    """The filled table on primary and replica, in a new database that is dropped at the end."""
    sql, rows = partial(stack.mysql, arguments.kind), arguments.rows
    who = f"'{ADMIN}'@'{HOST}', '{SNAPSHOT}'@'{HOST}'"
    try:
        sql(f"CREATE DATABASE {DATABASE}", f"GRANT SELECT ON {DATABASE}.* TO {who}")
        sql(DDL, database=DATABASE)
        for done in range(0, rows, STEP_ROWS):
            sql(FILL.format(done=done, rows=rows), database=DATABASE)
            print(f"loaded {min(rows, done + STEP_ROWS)} of {rows} rows", flush=True)
        sql(f"ANALYZE TABLE {TABLE}", "CREATE TABLE complete (n int)", database=DATABASE)
        print("waiting for the replica", flush=True)
        deadline = time.monotonic() + REPLICA_LIMIT_S
        look = f"SHOW TABLES FROM {DATABASE} LIKE 'complete'"
        while not there(stack, arguments.kind) or not sql(look, replica=True):
            assert time.monotonic() < deadline, f"the replica was not there in {REPLICA_LIMIT_S} s"
            time.sleep(0.5)
        yield
    finally:
        sql(f"DROP DATABASE IF EXISTS {DATABASE}")
        sql(f"REVOKE SELECT ON {DATABASE}.* FROM {who}")


def there(stack: LocalStack, kind: str) -> bool:
    return bool(stack.mysql(kind, f"SHOW DATABASES LIKE '{DATABASE}'", replica=True))


@contextlib.contextmanager
def opened(
    stack: LocalStack, folder: Path, arguments: argparse.Namespace, connector_j: Path | None
) -> Iterator[Services]:
    kind = arguments.kind
    document = yaml.safe_load(stack.config_text(source=SOURCE, folder=folder, kinds=[kind]))
    source = document["sources"][f"{SOURCE}_{kind}"]
    source["databases"] = [DATABASE]
    source["replica"]["ssl_mode"] = arguments.ssl_mode
    document["spark"] = {"master": f"local[{CORES}]", "driver_memory": "2g"}
    document["spark"]["conf"] = {"spark.python.daemon.module": "benchmarks.python_readers"}
    if connector_j is not None:
        document["spark"]["conf"]["spark.jars"] = str(connector_j)
    services = Services(Config.model_validate(document), NullProgress())
    try:
        yield services
    finally:
        services.close()


def measure(stack: LocalStack, folder: Path, arguments: argparse.Namespace, lacks: str) -> int:
    jar, no_jar = find_connector_j() if only(arguments.only, "c") else (None, "")
    servers = (arguments.kind, f"{arguments.kind}_replica")
    with opened(stack, folder, arguments, jar) as services:
        readers = Readers(services, TableId(f"{SOURCE}_{arguments.kind}", DATABASE, TABLE), CORES)
        missing = {"c": no_jar, "d": lacks, "e": lacks}
        sides = [s for s in readers.sides() if s.key == PRODUCT or only(arguments.only, s.key)]
        left_out = {s.key: missing[s.key[0]] for s in sides if missing.get(s.key[0])}
        differ = False
        for number in range(arguments.rounds + 1):
            sides = [side for side in sides if side.key not in left_out]
            found: dict[str, dict[str, int]] = {}
            for side in random.Random(number).sample(sides, len(sides)):
                print(f"round {number}: {side.key} {side.title}", flush=True)
                try:
                    with limited(readers, arguments.limit):
                        took, cpu, found[side.key] = read(
                            side, readers, stack, servers, folder if arguments.parquet else None
                        )
                except Exception as error:  # a side that cannot run here is named, and left out
                    if side.key == PRODUCT:
                        raise
                    left_out[side.key] = reason(error)
                    print(f"{side.key} is left out: {left_out[side.key]}", flush=True)
                    continue
                if number:
                    side.seconds.append(took)
                    side.cpu.append(cpu)
            assert found[PRODUCT]["rows"] == arguments.rows, found
            for side in sides:
                if side.key in found and found[side.key] != found[PRODUCT]:
                    with limited(readers, 2 * arguments.limit):
                        left_out[side.key] = f"its rows differ: {difference(side, sides[0])}"
                    print(f"{side.key} is left out: {left_out[side.key]}", flush=True)
                    differ = True
            print(f"round {number}: {arguments.rows} rows equal on every side left", flush=True)
        sides = [side for side in sides if side.key not in left_out]
        facts = {
            "kind": arguments.kind,
            "server": stack.versions()[arguments.kind],
            "tls": readers.tls,
            "rows": arguments.rows,
            "chunks": len(readers.query.predicates),
            "sink": "parquet" if arguments.parquet else "sums",
        }
    report(facts, sides, left_out)
    return 1 if differ else 0


def find_connector_j() -> tuple[Path | None, str]:
    """The path of the jar of MySQL Connector/J, or the reason why there is none."""
    try:
        plugin = fetch_software([MYSQL], report=print).connectors[MYSQL]
    except TributaryError as error:
        return None, error.message
    jar = next(iter(sorted(plugin.rglob("mysql-connector-j-*.jar"))), None)
    return jar, "" if jar else f"{plugin} has no MySQL Connector/J"


def read(
    side: Side, readers: Readers, stack: LocalStack, servers: tuple[str, ...], folder: Path | None
) -> tuple[float, float, dict[str, int]]:
    """Read the table by one side; returns elapsed seconds, CPU seconds, and the rows' sums."""
    java_class(readers.spark, "java.lang.System").gc()  # what the side before has left
    found: dict[str, int] = {}
    if folder is None:
        took, cpu = timed(lambda: found.update(sums(side.frame())), stack, servers)
        return took, cpu, found
    path = str(folder / "parquet")

    def write() -> None:
        side.frame().write.mode("overwrite").option("compression", "zstd").parquet(path)

    took, cpu = timed(write, stack, servers)
    return took, cpu, sums(readers.spark.read.parquet(path))


def difference(side: Side, product: Side) -> str:
    """The columns whose sums differ between a side and the product, as text."""
    theirs, ours = sums(side.frame(), each=True), sums(product.frame(), each=True)
    return ", ".join(name for name in ours if theirs[name] != ours[name]) or "not at each read"


def reason(error: Exception) -> str:
    """The first cause of an error, taken from the many lines of Spark and its workers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if re.match(r"(Caused by: )?[\w.]+(Error|Exception)\b", line)]
    return (causes or lines or [type(error).__name__])[-1][:400]


def report(facts: dict[str, Any], sides: list[Side], left_out: dict[str, str]) -> None:
    """Print each side's times, its rate relative to the product's by round, and a summary.

    A ratio above 1 is a side that is faster than the product.
    """
    product = sides[0]
    ratios = {
        side.key: compared(product.seconds, side.seconds) for side in sides if side is not product
    }
    figures = {
        **facts,
        "sides": {side.key: side.title for side in sides},
        "seconds": {side.key: [round(one, 2) for one in side.seconds] for side in sides},
        "cpu_seconds": {side.key: [round(one, 1) for one in side.cpu] for side in sides},
        "rate_to_product": ratios,
        "cpu_of_product_to_its_own": {
            side.key: compared(product.cpu, side.cpu) for side in sides if side is not product
        },
        "no_candidates": {side.key: side.lacks for side in sides if side.lacks},
        "left_out": left_out,
    }
    print(json.dumps(figures, indent=2))
    print("| reader | rate beside the product's | least | most |\n|---|---|---|---|")
    for side in sides[1:]:
        one = ratios[side.key]
        print(f"| {side.title} | {one['median']:.2f} | {one['min']:.2f} | {one['max']:.2f} |")
    candidates = [side.key for side in sides[1:] if not side.lacks]
    best = max(candidates, key=lambda key: ratios[key]["median"], default=None)
    summary = {**facts, "rounds": len(product.seconds), "best_beside_product": best}
    if best is not None:
        # Faster in each round, not by the median of a few only.
        faster = ratios[best]["min"] > 1
        summary |= {"ratio": ratios[best], "fastest": best if faster else PRODUCT}
    print(f"conclusion: {json.dumps(summary)}")


def compared(product: list[float], other: list[float]) -> dict[str, float]:
    """Median, least and greatest ratio of the product's figures to another's, by round."""
    each = [a / b for a, b in zip(product, other, strict=True)]
    return {
        "median": round(statistics.median(each), 3),
        "min": round(min(each), 3),
        "max": round(max(each), 3),
    }


if __name__ == "__main__":
    sys.exit(main())
