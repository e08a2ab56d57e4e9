"""How fresh a tier is beside another tier that lags and fails, on real servers.

`run --continuous` follows two tiers with a steady load, twice. The first time both are healthy. The
second time each table of the other tier has a backlog that outlasts the load, and each run of one
of them fails. The backlog is in Kafka before the second run begins, so that the connectors do the
same work both times. The critical tier's changes must not be older than 1.1 times their age of the
first time.

    python -m benchmarks.isolation [--tables 10] [--rate 200] [--seconds 300] [--warm-up 120]
      [--target 60] [--rows 200000] [--backlog 2500000]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import yaml

from benchmarks.cold_start import command
from benchmarks.environment import on_a_stack
from benchmarks.freshness import (
    DDL,
    FILL,
    LIMIT_S,
    UPDATE,
    caught_up,
    continuous_run,
    inserts_of,
    percentiles,
    write,
)
from benchmarks.incremental import SOURCE, wait_for_events
from cdc.config import Config
from cdc.runtime.progress import NullProgress
from operate.context import Services
from schemas.table import TableId
from stack.local import LocalStack

MOST_GROWTH = 1.1
"""The greatest age beside the unhealthy tier, as a multiple of the age beside the healthy one."""
SHARE = 0.5
"""The critical tier's part of the work, more than its tables need."""
CRITICAL_ROWS = 10_000
"""The number of rows of each critical table at the start."""
OTHER_TARGETS = 10
"""The other tier's freshness target, as a multiple of the critical tier's."""
PARALLEL = 4
"""The number of tables that run at the same time."""


@dataclass(frozen=True)
class Fleet:
    """The tables of two tiers, with as many tables in each.

    Args:
        critical: The tables whose freshness is measured.
        others: The tables of the tier that becomes unhealthy. All but the last get a backlog; each
            run of the last one fails.
    """

    critical: Sequence[str]
    others: Sequence[str]

    @classmethod
    def of(cls, count: int) -> Fleet:
        numbers = range(count)
        return cls([f"critical_{n:02}" for n in numbers], [f"other_{n:02}" for n in numbers])

    @property
    def lagging(self) -> Sequence[str]:
        return self.others[:-1]

    def turns(self) -> Iterator[str]:
        """Yield the table of each write: one of either tier in turn."""
        return itertools.cycle(
            name for pair in zip(self.critical, self.others, strict=True) for name in pair
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=10, help="tables of each tier")
    parser.add_argument("--rate", type=int, default=200, help="events a second, of both tiers")
    parser.add_argument("--seconds", type=int, default=300, help="length of each counted load")
    parser.add_argument("--warm-up", type=int, default=120, help="length of the load before it")
    parser.add_argument("--target", type=int, default=60, help="the critical tier's target")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of each other table")
    parser.add_argument("--backlog", type=int, default=2_500_000, help="updates of each of them")
    return on_a_stack(measure, parser.parse_args())


def measure(stack: LocalStack, folder: Path, arguments: argparse.Namespace) -> int:
    fleet = Fleet.of(arguments.tables)
    document = settings(stack, folder, arguments.target)
    with psycopg.connect(stack.env()["TRIBUTARY_PRIMARY_DSN"], autocommit=True) as source:
        for names, rows in ((fleet.critical, CRITICAL_ROWS), (fleet.others, arguments.rows)):
            for name in names:
                source.execute(DDL.format(table=name))
                source.execute(FILL.format(table=name, rows=rows))
        subprocess.run(command(folder, "onboard", "public.*"), check=True, timeout=LIMIT_S)
        services = Services(Config.model_validate(document), NullProgress())
        try:
            healthy = played(services, folder, source, fleet, arguments)
            for name in fleet.lagging:
                left = arguments.backlog
                while left > 0:  # one statement updates a row once
                    update = UPDATE.format(table=name, count=left, rows=arguments.rows)
                    updated = source.execute(update).rowcount
                    assert updated > 0, f"{name} has no rows"
                    left -= updated
            wait_for_events(services, ids(fleet.others), source)
            document["tables"] |= {
                f"public.{fleet.others[-1]}": {"tier": "other", "mode": "append"}
            }
            (folder / "tributary.yaml").write_text(yaml.safe_dump(document))
            beside = played(services, folder, source, fleet, arguments)
            left = events_left(services, ids(fleet.lagging))
        finally:
            services.close()
    compared = [f"public.{name}" for name in fleet.critical]
    subprocess.run(command(folder, "verify", *compared), check=True, timeout=LIMIT_S)
    return told(healthy, beside, left, arguments)


def settings(stack: LocalStack, folder: Path, target: int) -> dict[str, Any]:
    """Write the settings of the two tiers, and return them."""
    document: dict[str, Any] = yaml.safe_load(stack.config_text(source=SOURCE, folder=folder))
    document |= {
        "lake": {"url": (folder / "lake").as_uri()},
        "state": {"url": f"sqlite:///{folder / 'state.db'}"},
        "spark": {"master": "local[2]", "driver_memory": "4g", "parallel_tables": PARALLEL},
        "tiers": {
            "critical": {"freshness_target_s": target, "pool_share": SHARE},
            "other": {"freshness_target_s": OTHER_TARGETS * target},
        },
        "tables": {
            "public.critical_*": {"tier": "critical"},
            "public.other_*": {"tier": "other"},
        },
    }
    (folder / "tributary.yaml").write_text(yaml.safe_dump(document))
    return document


def played(
    services: Services,
    folder: Path,
    source: psycopg.Connection[Any],
    fleet: Fleet,
    arguments: argparse.Namespace,
) -> list[float]:
    """Write to all tables during runs; return the ages of the critical tier's counted inserts."""
    turns = fleet.turns()
    with continuous_run(folder) as watch:
        write(source, turns, arguments.warm_up, arguments.rate)
        counted_from = time.time()
        write(source, turns, arguments.seconds, arguments.rate)
        counted_until = time.time()
        wait_for_events(services, ids(fleet.critical), source)
        caught_up(services, ids(fleet.critical))
    found = inserts_of(services, fleet.critical, watch.ended, counted_from, counted_until)
    return sorted(age for one in found.values() for _, age in one)


def ids(names: Sequence[str]) -> list[TableId]:
    return [TableId(SOURCE, "public", name) for name in names]


def events_left(services: Services, tables: Sequence[TableId]) -> int:
    """Return the number of offsets of the tables' topics that no commit has."""
    left = 0
    for table in tables:
        record = services.store.get(table)
        assert record is not None
        assert record.last_commit is not None
        ends = services.kafka.stable_offsets(record.topic)
        left += sum(end - record.last_commit.offsets[at] for at, end in ends.items())
    return left


def told(
    healthy: Sequence[float], beside: Sequence[float], left: int, arguments: argparse.Namespace
) -> int:
    """Print the figures, and return the exit code."""
    ages = {
        name: percentiles(one) | {"mean": round(statistics.mean(one), 1)}
        for name, one in (("beside_healthy_tier", healthy), ("beside_unhealthy_tier", beside))
    }
    first, second = ages.values()
    growth = {name: round(second[name] / first[name], 2) for name in first}
    # A healthy tier also leaves some events, but no more than come within its target.
    lagged = left > arguments.rate / 2 * OTHER_TARGETS * arguments.target
    reached = lagged and max(growth["mean"], growth["p95"]) <= MOST_GROWTH
    figures = {
        "tables_of_each_tier": arguments.tables,
        "events_per_second": arguments.rate,
        "target_seconds": arguments.target,
        "pool_share": SHARE,
        "age_seconds": ages,
        "growth": growth,
        "events_left_of_the_backlog": left,
        "gate": {"growth_wanted": MOST_GROWTH, "lagged_to_the_end": lagged, "reached": reached},
    }
    print(json.dumps(figures, indent=2))
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
