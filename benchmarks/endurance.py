"""An hour of `run --continuous` over 300 tables beside a giant backlog and a table that fails.

Few of the tables have almost all of the changes, as in `benchmarks.freshness`. When the counted
load begins, one more table gets millions of rows at once, and each run of another one fails. Every
other table must keep its freshness target for 99 of 100 of its changes, and the memory of the
command must not grow.

    python -m benchmarks.endurance [--tables 300] [--rate 300] [--seconds 3600] [--warm-up 300]
      [--target 300] [--giant 2000000]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.environment import on_a_stack
from benchmarks.freshness import Scenario, percentiles, play
from stack.local import LocalStack

MOST_GROWTH = 1.1
"""The most memory in the last third of the time, as a multiple of that in the second third."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=300, help="tables that must be fresh")
    parser.add_argument("--rate", type=int, default=300, help="events a second, of all tables")
    parser.add_argument("--seconds", type=int, default=3_600, help="length of the counted load")
    parser.add_argument("--warm-up", type=int, default=300, help="length of the load before it")
    parser.add_argument("--target", type=int, default=300, help="the tier's freshness target")
    parser.add_argument("--giant", type=int, default=2_000_000, help="rows of the backlog")
    return on_a_stack(measure, parser.parse_args())


def measure(stack: LocalStack, folder: Path, arguments: argparse.Namespace) -> int:
    scenario = Scenario(**vars(arguments), heavy_tail=True, failing=True)
    found = play(stack, folder, scenario)
    by_table = {name: percentiles(ages)["p99"] for name, ages in found.ages.items() if ages}
    late = {name: p99 for name, p99 in by_table.items() if p99 > scenario.target}
    assert found.growth is not None, "the load was too short for a look at the memory"
    reached = not late and found.growth.factor <= MOST_GROWTH
    figures = {
        "tables": scenario.tables,
        "tables_with_changes": len(by_table),
        "target_seconds": scenario.target,
        "events_per_second": round(found.events / scenario.seconds),
        "writer_late_seconds": round(found.late_s, 1),
        "age_seconds": percentiles(sorted(age for ages in found.ages.values() for age in ages)),
        "greatest_p99_of_a_table": max(by_table.values()),
        "tables_above_target": late,
        "memory_growth": round(found.growth.factor, 2),
        "memory_mib": found.growth.mib,
        "memory_grown_mib": found.growth.grown,
        "gate": {"p99_within_target": not late, "memory_wanted": MOST_GROWTH, "reached": reached},
    }
    print(json.dumps(figures, indent=2))
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
