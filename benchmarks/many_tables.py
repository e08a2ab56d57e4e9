"""A thousand tables: their onboarding, a run after all of them changed, and a hundred light runs.

One process runs all rounds, as `run --continuous` does. First `onboard` copies all tables with one
command. Then all tables change at once, four times: the first round warms the JVM up, and the
median of the others counts. In each of the light rounds that follow, a few other tables change. The
time and the CPU time of a light round, the memory of the process and its JVM, and the state store
must stay flat. Before a figure is printed, all tables are compared with the source.

    python -m benchmarks.many_tables [--tables 1000] [--whole 3] [--rounds 100] [--active 10]
        [--changes 20]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
import yaml

from benchmarks.bare_upsert import path_of, read
from benchmarks.cold_start import command
from benchmarks.environment import on_a_stack
from benchmarks.fleet import CHANGE, ROWS
from benchmarks.incremental import COLUMNS, DDL, FILL, SOURCE, timed, wait_for_events
from benchmarks.memory import measured
from cdc.config import Config
from cdc.run import run_tables
from cdc.runtime.progress import NullProgress
from operate.context import Services
from schemas.table import TableId
from stack.local import LocalStack

LIMIT_S = 7_200
ONBOARD_S = 900.0
"""Longest onboarding of 1,000 tables. For another number of tables, the bound is in proportion."""
ALL_S = 420.0
"""Longest run in which 1,000 tables changed. For another number, the bound is in proportion."""
MOST_GROWTH = {"wall": 1.1, "cpu": 1.1, "memory": 1.1, "store": 1.05}
"""The most of the last ten light rounds, as multiples of ten early ones.

Times and live objects differ by some percent between rounds that do the same. The store does not,
but keeps less than 1 kB of each commit, until it joins or deletes old entries.
"""
EARLY = slice(10, 20)
"""The light rounds with which the last ten are compared: the first ten still fill caches."""


@dataclass(frozen=True)
class Round:
    """What one round took.

    Args:
        wall: Seconds of the run.
        cpu: Seconds of CPU of the process and its JVM.
        memory: The memory that the process needs after the run (`benchmarks.memory`), in bytes.
        store: Size of the state store's file after the run, in bytes.
    """

    wall: float
    cpu: float
    memory: int
    store: int


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=1_000, help="tables that are followed")
    parser.add_argument("--whole", type=int, default=3, help="counted rounds of all tables")
    parser.add_argument("--rounds", type=int, default=100, help="light rounds, at least 30")
    parser.add_argument("--active", type=int, default=10, help="changed tables of a light round")
    parser.add_argument("--changes", type=int, default=20, help="changed rows of a table")
    arguments = parser.parse_args()
    if arguments.rounds < 30:
        parser.error("--rounds must be at least 30")
    return on_a_stack(measure, arguments)


def measure(stack: LocalStack, folder: Path, arguments: argparse.Namespace) -> int:
    document = yaml.safe_load(stack.config_text(source=SOURCE, folder=folder))
    document["lake"] = {"url": (folder / "lake").as_uri()}
    document["state"] = {"url": f"sqlite:///{folder / 'state.db'}"}
    document["spark"] = {"master": "local[2]", "driver_memory": "6g"}
    (folder / "tributary.yaml").write_text(yaml.safe_dump(document))
    names = [f"many_{number:04}" for number in range(arguments.tables)]
    ids = [TableId(SOURCE, "public", name) for name in names]
    with psycopg.connect(stack.env()["TRIBUTARY_PRIMARY_DSN"], autocommit=True) as source:
        for name in names:
            source.execute(DDL.format(table=name))
            source.execute(FILL.format(table=name, rows=ROWS))
        onboarded = onboard_all(folder)
        services = Services(Config.model_validate(document), NullProgress())
        try:
            plan = Fleet(services, source, ids, folder / "state.db", arguments.changes)
            whole = [plan.round(number, ids) for number in range(1 + arguments.whole)]
            light = []
            for number in range(arguments.rounds):
                first = number * arguments.active % len(ids)
                some = ids[first : first + arguments.active]
                light.append(plan.round(number + len(whole), some))
            compare(services, source, ids)
        finally:
            services.close()
    return report(arguments, onboarded, whole, light)


def onboard_all(folder: Path) -> float:
    """Onboard all tables by one command; return its seconds."""
    start = time.perf_counter()
    onboard = command(folder, "onboard", "public.*")
    subprocess.run(onboard, check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    print(f"all tables are onboarded, {seconds:.0f} s", flush=True)
    return seconds


@dataclass
class Fleet:
    """The tables, and what their rounds need.

    Args:
        services: The services of the runs.
        source: A connection to the source.
        ids: All tables.
        store: The state store's file.
        changes: Number of rows of a table that a round changes.
    """

    services: Services
    source: psycopg.Connection[Any]
    ids: list[TableId]
    store: Path
    changes: int

    def round(self, number: int, active: Sequence[TableId]) -> Round:
        """Change rows of some tables, and time the run that applies the changes."""
        for table in active:
            change = CHANGE.format(table=table.name, number=number, changes=self.changes)
            self.source.execute(change)
        wait_for_events(self.services, self.ids, self.source)
        wall, cpu = timed(lambda: self.run(len(active)))
        found = Round(wall, cpu, measured(psutil.Process()).total, self.store.stat().st_size)
        print(f"round {number}: {len(active)} tables, {wall:.1f} s, {cpu:.1f} CPU-s", flush=True)
        return found

    def run(self, active: int) -> None:
        results = run_tables(self.services.run_context, self.services.store.tables())
        assert not any(result.error for result in results), results
        committed = sum(bool(result.commits) for result in results)
        assert committed == active, f"{committed} commits, not {active}"


def compare(services: Services, source: psycopg.Connection[Any], ids: list[TableId]) -> None:
    """Check that each lake table has the rows of its source table, and no others."""
    names = ", ".join(COLUMNS)
    for table in ids:
        rows = set(source.execute(f"select {names} from {table.name}").fetchall())
        frame = read(services, path_of(services, table)).select(*COLUMNS)
        listed = [(*row[:5], row[5].astimezone(), *row[6:]) for row in frame.collect()]
        assert len(listed) == len(rows), f"{table}: {len(listed)} rows, not {len(rows)}"
        assert set(listed) == rows, f"{table}: {len(set(listed) ^ rows)} rows differ"
    print(f"{len(ids)} tables are equal on the source and in the lake", flush=True)


def report(
    arguments: argparse.Namespace, onboarded: float, whole: list[Round], light: list[Round]
) -> int:
    """Print the figures; return 0 if all gates are reached, otherwise 1."""
    early, last = light[EARLY], light[-10:]

    def median(rounds: list[Round], of: str) -> float:
        return float(statistics.median(getattr(one, of) for one in rounds))

    growth = {of: round(median(last, of) / median(early, of), 2) for of in MOST_GROWTH}
    share = arguments.tables / 1_000
    all_active_s = median(whole[1:], "wall")
    reached = {
        "onboard": onboarded <= ONBOARD_S * share,
        "all_active": all_active_s <= ALL_S * share,
        **{of: growth[of] <= most for of, most in MOST_GROWTH.items()},
    }
    figures = {
        "tables": arguments.tables,
        "onboard_s": round(onboarded),
        "all_active_s": round(all_active_s),
        "all_active_rounds": [{"wall": round(one.wall), "cpu": round(one.cpu)} for one in whole],
        "light_rounds": len(light),
        "active_of_a_light_round": arguments.active,
        "light_round_early": shown(early),
        "light_round_last": shown(last),
        "last_by_early": growth,
        "gates": {
            "wanted": {
                "onboard_s": ONBOARD_S * share,
                "all_active_s": ALL_S * share,
                "last_by_early": MOST_GROWTH,
            },
            "reached": reached,
        },
    }
    print(json.dumps(figures, indent=2))
    return 0 if all(reached.values()) else 1


def shown(rounds: list[Round]) -> dict[str, float]:
    """Return the medians of some rounds, in seconds and MiB."""
    return {
        "wall_s": round(statistics.median(one.wall for one in rounds), 2),
        "cpu_s": round(statistics.median(one.cpu for one in rounds), 2),
        "memory_mib": round(statistics.median(one.memory for one in rounds) / 2**20),
        "store_mib": round(statistics.median(one.store for one in rounds) / 2**20, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
