"""How old a change is when the lake shows it: `run --continuous` under a steady load.

A writer commits inserts and updates ten times a second, each time to one table. Each inserted row
has the time of its insert, and no row is inserted twice, so the lake has each insert's commit. The
age of an insert is the time from its statement to the end of the lake's commit. The first
``--warm-up`` seconds do not count. At the end, `verify` compares every table with the source.

    python -m benchmarks.freshness [--rate 2000] [--seconds 600] [--warm-up 300] [--tables 20]
      [--target 20] [--parallel 4]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import operator
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import psycopg
import yaml
from pyspark.sql import functions as F

from benchmarks.cold_start import command
from benchmarks.environment import on_a_stack
from benchmarks.incremental import SOURCE, wait_for_events
from benchmarks.memory import Memory, measured
from cdc.config import Config
from cdc.runtime.progress import NullProgress
from operate.context import Services
from schemas.table import TableId
from stack.local import LocalStack

ROWS = 10_000
"""The number of rows of each table at the start. Updates change only these rows."""
TICK_S = 0.1
MEMORY_EVERY_S = 120.0
"""Pause between two measurements of memory, in seconds. Each one stops the JVM for a moment."""
LIMIT_S = 3_600
GATE_S = 30.0
"""Seconds within which 95 % of the changes must be visible in the lake."""
GIANT, FAILING = "fresh_giant", "fresh_failing"
GIANT_PART = 100_000
"""The number of rows that one statement inserts into the giant table's backlog."""
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
where id in (select 1 + floor(random() * {rows})::bigint from generate_series(1, {count}))
"""


@dataclass(frozen=True)
class Scenario:
    """A load, and the tables that it changes.

    Args:
        rate: Events per second, in all tables together.
        seconds: Length of the counted load, in seconds.
        warm_up: Length of the load before the counted load, in seconds.
        tables: Number of tables that must be fresh.
        target: The freshness target of these tables, in seconds.
        heavy_tail: Whether few tables get almost all events. If not, the tables take turns.
        giant: Number of rows that one more table gets at once when the counted load begins.
        failing: Whether each run of one more table fails.
        parallel: Number of tables that run at the same time.
    """

    rate: int
    seconds: int
    warm_up: int
    tables: int
    target: int
    heavy_tail: bool = False
    giant: int = 0
    failing: bool = False
    parallel: int = 8

    @property
    def names(self) -> list[str]:
        """The tables that must be fresh."""
        return [f"fresh_{number:03}" for number in range(self.tables)]

    @property
    def others(self) -> list[str]:
        """The giant and the failing table, which disturb the tables that must be fresh."""
        return [GIANT] * (self.giant > 0) + [FAILING] * self.failing

    def turns(self) -> Iterator[str]:
        """Yield the table of each write."""
        names = self.names + [FAILING] * self.failing
        rng = random.Random(1)
        weights = [rng.paretovariate(0.7) for _ in names] if self.heavy_tail else None
        for number in range(sys.maxsize):
            yield rng.choices(names, weights)[0] if weights else names[number % len(names)]


@dataclass
class Watch:
    """Observations that a thread makes once a second while the command runs.

    Args:
        lake: Folder of the lake.
        process: The command.
        ended: The end of each commit, in seconds since 1970, by the table's folder and the
            instant. Archived commits leave the folder, so the thread notes each commit at once.
        memory: The memory that the command has needed each `MEMORY_EVERY_S`.
        measured_at: The time of the last measurement, by ``time.monotonic()``.
    """

    lake: Path
    process: psutil.Process
    ended: dict[tuple[str, str], float] = field(default_factory=dict)
    memory: list[Memory] = field(default_factory=list)
    measured_at: float = field(default_factory=time.monotonic)

    def look(self) -> None:
        """Note the ended commits and the memory of the command."""
        # A recursive search fails at Hudi's temporary folders, which vanish.
        for file in self.lake.glob("*/*/*/*/.hoodie/*.commit"):
            key = (str(file.parents[1]), file.stem)
            if key not in self.ended:
                self.ended[key] = file.stat().st_mtime
        if time.monotonic() - self.measured_at >= MEMORY_EVERY_S:
            self.measured_at = time.monotonic()
            with contextlib.suppress(psutil.Error, subprocess.SubprocessError, OSError):
                self.memory.append(measured(self.process))

    def growth(self) -> Growth | None:
        """Return the growth of the memory; None if the time was too short."""
        third = len(self.memory) // 3
        if not third:
            return None
        middle, last = self.memory[third : 2 * third], self.memory[2 * third :]
        by_size = operator.attrgetter("total")
        early, late = (statistics.median_high(map(by_size, part)) for part in (middle, last))
        of_size = {one.total: one for one in self.memory}
        return Growth(
            late / early,
            [round(one.total / 2**20) for one in self.memory],
            of_size[late].growth_since(of_size[early]),
        )


@dataclass(frozen=True)
class Growth:
    """The growth of a command's memory.

    Args:
        factor: The median memory in the last third of the time, as a multiple of that in the
            second third.
        mib: All measurements, in MiB.
        grown: What has grown most between these medians, in MiB; see `Memory.growth_since`.
    """

    factor: float
    mib: list[int]
    grown: dict[str, float]


@dataclass
class Found:
    """The results of a scenario.

    Args:
        ages: For each table, the ages of its counted inserts in seconds, in order.
        by_minute: For each minute of the counted load, the ages of its inserts, in order.
        events: Number of rows that the counted load inserted or updated in these tables.
        late_s: The largest delay of the writer behind its rate, in seconds.
        growth: See `Watch.growth`.
    """

    ages: dict[str, list[float]]
    by_minute: list[list[float]]
    events: int
    late_s: float
    growth: Growth | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=2_000, help="events a second, of all tables")
    parser.add_argument("--seconds", type=int, default=600, help="length of the counted load")
    parser.add_argument("--warm-up", type=int, default=300, help="length of the load before it")
    parser.add_argument("--tables", type=int, default=20, help="tables that change in turn")
    parser.add_argument("--target", type=int, default=20, help="the tier's freshness target")
    parser.add_argument("--parallel", type=int, default=4, help="tables that run at once")
    return on_a_stack(measure, parser.parse_args())


def measure(stack: LocalStack, folder: Path, arguments: argparse.Namespace) -> int:
    scenario = Scenario(**vars(arguments))
    found = play(stack, folder, scenario)
    ages = sorted(age for one in found.ages.values() for age in one)
    shown = percentiles(ages)
    reached = shown["p95"] <= GATE_S
    figures = {
        "tables": scenario.tables,
        "parallel_tables": scenario.parallel,
        "target_seconds": scenario.target,
        "events_per_second": round(found.events / scenario.seconds),
        "writer_late_seconds": round(found.late_s, 1),
        "counted_inserts": len(ages),
        "age_seconds": shown,
        "p95_by_minute": [percentiles(one)["p95"] for one in found.by_minute if one],
        "gate": {"p95_wanted": GATE_S, "reached": reached},
    }
    print(json.dumps(figures, indent=2))
    return 0 if reached else 1


def percentiles(ages: Sequence[float], *, digits: int = 1) -> dict[str, float]:
    """Return the percentiles of ages, which must be sorted, rounded to ``digits``."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    found = {name: ages[int(len(ages) * share)] for name, share in shares.items()}
    return {name: round(age, digits) for name, age in (found | {"most": ages[-1]}).items()}


def play(stack: LocalStack, folder: Path, scenario: Scenario) -> Found:
    """Onboard the tables, write to them during runs, compare them, and return the results."""
    document = yaml.safe_load(stack.config_text(source=SOURCE, folder=folder))
    document["lake"] = {"url": (folder / "lake").as_uri()}
    document["state"] = {"url": f"sqlite:///{folder / 'state.db'}"}
    document["spark"] = {
        "master": "local[2]",
        "driver_memory": "4g",
        "parallel_tables": scenario.parallel,
    }
    document["tiers"] = {"default": {"freshness_target_s": scenario.target}}
    file = folder / "tributary.yaml"
    file.write_text(yaml.safe_dump(document))
    names = scenario.names + scenario.others
    with psycopg.connect(stack.env()["TRIBUTARY_PRIMARY_DSN"], autocommit=True) as source:
        for name in names:
            source.execute(DDL.format(table=name))
            source.execute(FILL.format(table=name, rows=ROWS))
        subprocess.run(command(folder, "onboard", "public.*"), check=True, timeout=LIMIT_S)
        if scenario.failing:  # it was onboarded with a key
            document["tables"] = {f"public.{FAILING}": {"mode": "append"}}
            file.write_text(yaml.safe_dump(document))
        services = Services(Config.model_validate(document), NullProgress())
        try:
            return follow(folder, source, services, scenario)
        finally:
            services.close()


def follow(
    folder: Path, source: psycopg.Connection[Any], services: Services, scenario: Scenario
) -> Found:
    """Write to the tables during runs, then compare the tables, and return the results."""
    turns = scenario.turns()
    with continuous_run(folder) as watch:
        write(source, turns, scenario.warm_up, scenario.rate)
        counted_from = time.time()
        for _ in range(0, scenario.giant, GIANT_PART):
            source.execute(INSERT.format(table=GIANT, count=GIANT_PART))
        events, late_s = write(source, turns, scenario.seconds, scenario.rate)
        due = [TableId(SOURCE, "public", name) for name in scenario.names]
        wait_for_events(services, due, source)
        caught_up(services, due + [TableId(SOURCE, "public", GIANT)] * (scenario.giant > 0))
    compared = [f"public.{name}" for name in scenario.names + [GIANT] * (scenario.giant > 0)]
    subprocess.run(command(folder, "verify", *compared), check=True, timeout=LIMIT_S)
    inserts = inserts_of(services, scenario.names, watch.ended, counted_from, time.time())
    ages = {name: sorted(age for _, age in found) for name, found in inserts.items()}
    minutes: list[list[float]] = [[] for _ in range(-(-scenario.seconds // 60))]
    for at, age in chain.from_iterable(inserts.values()):
        minutes[min(int((at - counted_from) / 60), len(minutes) - 1)].append(age)
    return Found(ages, [sorted(one) for one in minutes], events, late_s, watch.growth())


@contextlib.contextmanager
def continuous_run(folder: Path) -> Iterator[Watch]:
    """Watch `run --continuous`, end it after the block, and print its warnings.

    Raises:
        AssertionError: The command ended before the end of the block.
    """
    stop, log = threading.Event(), folder / "run.log"
    with log.open("w") as shown:
        run = subprocess.Popen(command(folder, "run", "--continuous"), stdout=shown, stderr=shown)
        watch = Watch(folder / "lake", psutil.Process(run.pid))

        def look() -> None:
            while not stop.wait(1.0):
                watch.look()

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            yield watch
            assert run.poll() is None, log.read_text()[-2000:]
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait(LIMIT_S)
            stop.set()
            watcher.join()
    watch.look()
    show_trouble(log)


def show_trouble(log: Path) -> None:
    """Print the warnings of the command."""
    for line in log.read_text().splitlines():
        if any(word in line for word in ("WARNING", "ERROR", "failed", "Error")):
            print(line[:300], flush=True)


def write(
    source: psycopg.Connection[Any], turns: Iterator[str], seconds: float, rate: int
) -> tuple[int, float]:
    """Write at a rate for some seconds, as many inserts as updates.

    Returns:
        The number of rows, and the largest delay of the writer behind its rate, in seconds.
    """
    start, events, late_s = time.monotonic(), 0, 0.0
    count = max(1, int(rate * TICK_S / 2))
    for tick in range(int(seconds / TICK_S)):
        at = start + tick * TICK_S
        if (early := at - time.monotonic()) > 0:
            time.sleep(early)
        table = next(turns)
        events += source.execute(INSERT.format(table=table, count=count)).rowcount
        events += source.execute(UPDATE.format(table=table, count=count, rows=ROWS)).rowcount
        late_s = max(late_s, time.monotonic() - at)
    return events, late_s


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


def inserts_of(
    services: Services,
    names: Sequence[str],
    ended: Mapping[tuple[str, str], float],
    counted_from: float,
    counted_until: float,
) -> dict[str, list[tuple[float, float]]]:
    """Return, by table, the time of each counted insert and its age at the end of its commit.

    Args:
        services: The services of the lake.
        names: Names of the tables.
        ended: The end of each commit, as in `Watch`.
        counted_from: The time of the first insert that counts, in seconds since 1970.
        counted_until: The time before which an insert counts.
    """
    spark, found = services.spark, dict[str, list[tuple[float, float]]]()
    for name in names:
        record = services.store.get(TableId(SOURCE, "public", name))
        assert record is not None
        assert record.attempt is not None
        folder = record.attempt.path.removeprefix("file://")
        written = F.unix_micros("written_at") / 1e6
        rows = (
            spark.read.format("hudi")
            .load(record.attempt.path)
            .where((written >= counted_from) & (written < counted_until))
            .select("_hoodie_commit_time", written)
            .collect()
        )
        found[name] = [(at, ended[folder, instant] - at) for instant, at in rows]
    return found


if __name__ == "__main__":
    sys.exit(main())
