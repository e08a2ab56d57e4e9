"""Times runs, a `foreachBatch` job and a bare upsert on many small tables of which few change.

One process, one Spark session, one stack. Three sides write the same changes:

- ours: a run over all tables;
- the stock job: one stream over all topics, with Hudi's default table settings;
- the bare upsert: Hudi's writer alone, for rows that are in memory already, into tables with the
  settings of ours, as many at a time as in a run.

Three kinds of rounds take turns: no table changes, one table changes, or ``--active`` tables
change. The order of the sides alternates. The first five rounds of each kind warm the JVM up and do
not count. Before a figure is printed, the changed tables of all sides are compared with the source.

    python -m benchmarks.fleet [--tables 500] [--active 10] [--changes 20] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import foreach_batch_peer as peer
from benchmarks.bare_upsert import BareTable, bare_tables, new_rows, path_of, read, upsert
from benchmarks.environment import on_a_stack
from benchmarks.incremental import (
    COLUMNS,
    DDL,
    FILL,
    SOURCE,
    TABLES_AT_ONCE,
    latest_schema,
    opened,
    peers,
    timed,
    wait_for_events,
)
from cdc.run import run_tables
from operate.context import Services
from operate.onboard import onboard
from schemas.table import TableId
from stack.local import LocalStack

ROWS = 1_000
WARM_UP = 5
GATES = {
    "stock_to_ours_many": 10.0,
    "commit_to_bare_one": 1.3,
    "commit_to_stock_batch_one": 0.5,
    "ours_to_stock_one": 0.5,
    "idle_table_cpu_ms": 2.0,
}
"""Limits of figures: a minimum for the first, a maximum for the others.

All but the last are ratios of elapsed seconds. `idle_table_cpu_ms` is the CPU time of a run without
changes, in milliseconds for each table. `commit_to_stock_batch_one` compares a table's commit with
the stock job's batch, without the start of its stream. `ours_to_stock_one` compares whole runs,
with their looks at all tables. Two ratios have no gate: `ours_to_bare_one`, and
`stock_to_bare_many`, the most that a writer can reach if it calls Hudi's upsert.
"""
CHANGE = (
    "update {table} set quantity = quantity + 1, status = 'r{number}' "
    "where id in (select id from {table} order by hashint8(id + {number}) limit {changes})"
)


@dataclass
class Sides:
    """The tables of the sides, and the seconds of each counted round.

    The seconds are by the number of changed tables and by the side.
    """

    services: Services
    folder: Path
    source: psycopg.Connection[Any]
    ids: list[TableId]
    stock: list[peer.PeerTable]
    bare: list[BareTable]
    seconds: dict[tuple[int, str], list[tuple[float, float]]]
    commit_s: float = 0.0
    batch_s: float = 0.0

    def round(self, number: int, active: int, *, counted: bool, changes: int) -> None:
        """Change rows of the first ``active`` tables, and time the sides one after another."""
        for table in self.ids[:active]:
            self.source.execute(CHANGE.format(table=table.name, number=number, changes=changes))
        wait_for_events(self.services, self.ids, self.source)
        sides = [("ours", lambda: self.run(active)), ("stock", self.follow)]
        for name, act in sides if number % 2 else reversed(sides):
            self.note(active, name, timed(act), counted)
        self.note(active, "commit", (self.commit_s, 0.0), counted)
        self.note(active, "stock batch", (self.batch_s, 0.0), counted)
        bare = self.bare[:active]
        with new_rows(self.services, bare) as rows:
            taken = timed(lambda: upsert(bare, rows, TABLES_AT_ONCE))
            self.note(active, "bare", taken, counted)

    def note(self, active: int, side: str, taken: tuple[float, float], counted: bool) -> None:
        if counted:
            self.seconds.setdefault((active, side), []).append(taken)

    def run(self, active: int) -> None:
        results = run_tables(self.services.run_context, self.services.store.tables())
        assert not any(result.error for result in results), results
        committed = [result for result in results if result.commits]
        assert len(committed) == active, f"{len(committed)} commits, not {active}"
        self.commit_s = max((result.seconds for result in committed), default=0.0)

    def follow(self) -> None:
        servers = self.services.config.kafka.bootstrap_servers
        checkpoints = str(self.folder / "checkpoints")
        spark = self.services.spark
        self.batch_s = peer.consume_together(spark, self.stock, servers, checkpoints)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=500, help="tables that are followed")
    parser.add_argument("--active", type=int, default=10, help="tables that change in a round")
    parser.add_argument("--changes", type=int, default=20, help="changed rows of an active table")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds of each kind")
    return on_a_stack(measure, parser.parse_args())


def measure(stack: LocalStack, folder: Path, arguments: argparse.Namespace) -> int:
    dsn = stack.env()["TRIBUTARY_PRIMARY_DSN"]
    names = [f"fleet_{number:04}" for number in range(arguments.tables)]
    with psycopg.connect(dsn, autocommit=True) as source, opened(stack, folder) as services:
        for name in names:
            source.execute(DDL.format(table=name))
            source.execute(FILL.format(table=name, rows=ROWS))
        ids = [TableId(SOURCE, "public", name) for name in names]
        outcomes = onboard(services, ids)
        assert not [outcome for outcome in outcomes if outcome.failed], outcomes
        active = ids[: arguments.active]
        sides = Sides(
            services, folder, source, ids, stock_tables(services, source, ids, active, folder),
            bare_tables(services, active, folder), {},
        )  # fmt: skip
        number = 0
        for turn in range(WARM_UP + arguments.rounds):
            for changing in (0, 1, len(active)):
                number += 1
                counted = turn >= WARM_UP
                sides.round(number, changing, counted=counted, changes=arguments.changes)
            print(f"round {turn}: done", flush=True)
        compare(sides, active)
        return report(sides.seconds, arguments)


def stock_tables(
    services: Services,
    source: psycopg.Connection[Any],
    ids: list[TableId],
    active: list[TableId],
    folder: Path,
) -> list[peer.PeerTable]:
    """Return the stock job's tables; tables that never change have a topic, but no rows.

    Each table changes once first, since the first event of a topic registers the topic's schema.
    """
    created = {table.topic: table for table in peers(services, folder, active)}
    for table in ids:
        record = services.store.get(table)
        assert record is not None
        start = services.kafka.stable_offsets(record.topic)[0]
        idle = peer.PeerTable(record.topic, start, "", COLUMNS, "id", "")
        created.setdefault(record.topic, idle)
        source.execute(CHANGE.format(table=table.name, number=0, changes=1))
    wait_for_events(services, ids, source)
    run_tables(services.run_context, services.store.tables())
    registry = services.config.kafka.registry.url
    # From here on, tables that never change have nothing new for the stock job, either.
    return [
        replace(
            table,
            avro_schema=latest_schema(registry, topic),
            start=table.start if table.path else table.start + 1,
        )
        for topic, table in created.items()
    ]


def compare(sides: Sides, active: list[TableId]) -> None:
    """Check that the changed tables of all sides equal those of the source, row for row."""
    names = ", ".join(COLUMNS)
    stock = {table.topic: table.path for table in sides.stock}
    for table, bare in zip(active, sides.bare, strict=True):
        record = sides.services.store.get(table)
        assert record is not None
        rows = set(sides.source.execute(f"select {names} from {table.name}").fetchall())
        paths = {"ours": path_of(sides.services, table), "stock": stock[record.topic]}
        for side, path in {**paths, "bare": bare.path}.items():
            frame = read(sides.services, path).select(*COLUMNS)
            found = {(*row[:5], row[5].astimezone(), *row[6:]) for row in frame.collect()}
            assert found == rows, f"{side} {table}: {len(found ^ rows)} rows differ"
    print(f"{len(active)} changed tables are equal on the source and all sides")


def medians_of(taken: list[tuple[float, float]]) -> dict[str, float]:
    """Return the medians of a side's elapsed seconds, and of its CPU seconds if measured."""
    wall, cpu = (round(statistics.median(one), 3) for one in zip(*taken, strict=True))
    return {"wall": wall, "cpu": cpu} if cpu else {"wall": wall}


def report(
    seconds: dict[tuple[int, str], list[tuple[float, float]]], arguments: argparse.Namespace
) -> int:
    """Print the figures; return 0 if all gates are reached, otherwise 1."""
    medians = {
        f"{side}, {active} active": medians_of(taken)
        for (active, side), taken in sorted(seconds.items())
        if active or side not in ("bare", "commit", "stock batch")
    }

    def ratio(above: str, below: str, active: int) -> float:
        pairs = zip(seconds[active, above], seconds[active, below], strict=True)
        return round(statistics.median(one[0] / other[0] for one, other in pairs), 2)

    ratios = {
        "stock_to_ours_many": ratio("stock", "ours", arguments.active),
        "stock_to_bare_many": ratio("stock", "bare", arguments.active),
        "commit_to_bare_one": ratio("commit", "bare", 1),
        "commit_to_stock_batch_one": ratio("commit", "stock batch", 1),
        "ours_to_bare_one": ratio("ours", "bare", 1),
        "ours_to_stock_one": ratio("ours", "stock", 1),
    }
    idle = statistics.median(cpu for _, cpu in seconds[0, "ours"]) / arguments.tables * 1000
    found = ratios | {"idle_table_cpu_ms": round(idle, 2)}
    reached = {
        name: (found[name] >= limit if name == "stock_to_ours_many" else found[name] <= limit)
        for name, limit in GATES.items()
    }
    figures = {
        "tables": arguments.tables,
        "active": arguments.active,
        "medians": medians,
        "ratios": ratios,
        "idle_table_cpu_ms": found["idle_table_cpu_ms"],
        "gates": {"wanted": GATES, "reached": reached},
    }
    print(json.dumps(figures, indent=2))
    return 0 if all(reached.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
