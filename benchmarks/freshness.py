"""How old a change is when the lake shows it: `run --continuous` under a steady load.

A writer commits inserts and updates to all tables in turn, ten times a second. Each inserted row
has the time of its insert, and no row is inserted twice, so the lake has each insert's commit. The
age of an insert is the time from its statement to the end of the lake's commit. The first
``--warm-up`` seconds do not count. At the end, `verify` compares every table with the source.

    python -m benchmarks.freshness [--rate 2000] [--seconds 600] [--warm-up 120] [--tables 20]
      [--target 20]
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import yaml
from pyspark.sql import functions as F

from benchmarks.cold_start import command
from benchmarks.environment import on_a_stack
from benchmarks.incremental import SOURCE, wait_for_events
from cdc.config import Config
from cdc.runtime.progress import NullProgress
from operate.context import Services
from schemas.table import TableId
from stack.local import LocalStack

ROWS = 10_000
"""Rows of each table at the start. Updates change these rows only."""
TICK_S = 0.1
LIMIT_S = 1_800
GATE_S = 30.0
"""Nineteen of twenty changes must be visible after this time."""
DDL = """
create table {table} (
  id bigint generated always as identity primary key, name text not null, price numeric(12,2),
  written_at timestamptz)
"""
FILL = """
insert into {table} (name, price)
select md5(g::text), g * 0.01 from generate_series(1, {rows}) g
"""
INSERT = """
insert into {table} (name, price, written_at)
select md5(g::text), g, clock_timestamp() from generate_series(1, {count}) g
"""
UPDATE = """
update {table} set price = price + 1
where id in (select 1 + (random() * {rows})::bigint from generate_series(1, {count}))
"""


@dataclass
class Load:
    """What the writer has done so far.

    Args:
        late_s: How far the writer is behind its rate, in seconds; a busy machine slows it down.
        events: Number of rows that it has inserted or updated.
    """

    late_s: float = 0.0
    events: int = 0


@dataclass
class Commits:
    """When each commit of a lake table ended, by its folder and instant, in seconds since 1970.

    A thread looks once a second, since a table's archived commits leave the folder.
    """

    lake: Path
    ended: dict[tuple[str, str], float] = field(default_factory=dict)

    def look(self) -> None:
        for file in self.lake.rglob(".hoodie/*.commit"):
            key = (str(file.parents[1]), file.stem)
            if key not in self.ended:
                self.ended[key] = file.stat().st_mtime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=2_000, help="events a second, of all tables")
    parser.add_argument("--seconds", type=int, default=600, help="length of the counted load")
    parser.add_argument("--warm-up", type=int, default=120, help="length of the load before it")
    parser.add_argument("--tables", type=int, default=20, help="tables that change in turn")
    parser.add_argument("--target", type=int, default=20, help="the tier's freshness target")
    return on_a_stack(measure, parser.parse_args())


def measure(stack: LocalStack, folder: Path, arguments: argparse.Namespace) -> int:
    names = [f"fresh_{number:03}" for number in range(arguments.tables)]
    document = yaml.safe_load(stack.config_text(source=SOURCE, folder=folder))
    document["lake"] = {"url": (folder / "lake").as_uri()}
    document["state"] = {"url": f"sqlite:///{folder / 'state.db'}"}
    document["spark"] = {"master": "local[2]", "driver_memory": "4g"}
    document["tiers"] = {"default": {"freshness_target_s": arguments.target}}
    (folder / "tributary.yaml").write_text(yaml.safe_dump(document))
    dsn = stack.env()["TRIBUTARY_PRIMARY_DSN"]
    with psycopg.connect(dsn, autocommit=True) as source:
        for name in names:
            source.execute(DDL.format(table=name))
            source.execute(FILL.format(table=name, rows=ROWS))
        tables = [f"public.{name}" for name in names]
        subprocess.run(command(folder, "onboard", *tables), check=True, timeout=LIMIT_S)
        services = Services(Config.model_validate(document), NullProgress())
        try:
            counted_from, load, commits = follow(folder, source, names, services, arguments)
            subprocess.run(command(folder, "verify", *tables), check=True, timeout=LIMIT_S)
            ages = ages_of(services, names, commits, counted_from)
        finally:
            services.close()
    return report(ages, load, arguments)


def follow(
    folder: Path,
    source: psycopg.Connection[Any],
    names: list[str],
    services: Services,
    arguments: argparse.Namespace,
) -> tuple[float, Load, Commits]:
    """Write and run; return when the counted load began, what was written, and the commits."""
    commits, stop = Commits(folder / "lake"), threading.Event()

    def watch() -> None:
        while not stop.wait(1.0):
            commits.look()

    with (folder / "run.log").open("w") as log:
        run = subprocess.Popen(command(folder, "run", "--continuous"), stdout=log, stderr=log)
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            write(source, names, arguments.warm_up, arguments.rate)
            counted_from = time.time()
            load = write(source, names, arguments.seconds, arguments.rate)
            tables = [TableId(SOURCE, "public", name) for name in names]
            wait_for_events(services, tables, source)
            caught_up(services, tables)
            assert run.poll() is None, (folder / "run.log").read_text()[-2000:]
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait(LIMIT_S)
            stop.set()
            watcher.join()
    commits.look()
    return counted_from, load, commits


def write(source: psycopg.Connection[Any], names: list[str], seconds: float, rate: int) -> Load:
    """Write at a rate for some seconds: as many inserts as updates, one table after the other."""
    load, start = Load(), time.monotonic()
    count = max(1, int(rate * TICK_S / 2))
    for tick in range(int(seconds / TICK_S)):
        at = start + tick * TICK_S
        if (early := at - time.monotonic()) > 0:
            time.sleep(early)
        table = names[tick % len(names)]
        done = source.execute(INSERT.format(table=table, count=count)).rowcount
        done += source.execute(UPDATE.format(table=table, count=count, rows=ROWS)).rowcount
        load.events += done
        load.late_s = max(load.late_s, time.monotonic() - at)
    return load


def caught_up(services: Services, tables: list[TableId]) -> None:
    """Wait until the lake has all events of the topics."""
    deadline = time.monotonic() + LIMIT_S
    waiting = set(tables)
    while waiting:
        assert time.monotonic() < deadline, f"no commit of all events: {sorted(map(str, waiting))}"
        time.sleep(1.0)
        for table in list(waiting):
            record = services.store.get(table)
            assert record is not None
            last = record.last_commit
            if last is not None and last.offsets == services.kafka.stable_offsets(record.topic):
                waiting.remove(table)


def ages_of(
    services: Services, names: list[str], commits: Commits, counted_from: float
) -> list[float]:
    """Return the age of each counted insert at the end of its commit, in seconds, in order."""
    spark, ages = services.spark, list[float]()
    for name in names:
        record = services.store.get(TableId(SOURCE, "public", name))
        assert record is not None
        assert record.attempt is not None
        folder = record.attempt.path.removeprefix("file://")
        written = F.unix_micros("written_at") / 1e6
        rows = (
            spark.read.format("hudi")
            .load(record.attempt.path)
            .where(written >= counted_from)
            .select("_hoodie_commit_time", written)
            .collect()
        )
        ages += [commits.ended[folder, instant] - at for instant, at in rows]
    return sorted(ages)


def report(ages: list[float], load: Load, arguments: argparse.Namespace) -> int:
    """Print the figures; the exit code tells whether the gate is reached."""
    part = {
        name: round(ages[int(len(ages) * share)], 1)
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    }
    figures = {
        "tables": arguments.tables,
        "target_seconds": arguments.target,
        "events_per_second": round(load.events / arguments.seconds),
        "writer_late_seconds": round(load.late_s, 1),
        "counted_inserts": len(ages),
        "age_seconds": part | {"most": round(ages[-1], 1)},
        "gate": {"wanted": GATE_S, "reached": part["p95"] <= GATE_S},
    }
    print(json.dumps(figures, indent=2))
    return 0 if part["p95"] <= GATE_S else 1


if __name__ == "__main__":
    sys.exit(main())
