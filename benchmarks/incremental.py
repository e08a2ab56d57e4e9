"""Change events over some tables: incremental runs beside a hand-written foreachBatch job.

One process, one Spark session, one stack. Three sides start from the same snapshot: the runs, the
job with the streams of all topics at once, and the job with one stream after the other. They
consume the same topics in rounds: each round makes the same number of new events, waits until they
are in Kafka, and times one side after the other, in an order that turns. Then Hudi's upsert alone
writes the round's rows from memory, without the deletes: this is the limit of each writer that
calls it. The first two rounds warm all sides up with a tenth of the events, and do not count.
Before a figure is printed, the tables of all sides are compared with the source.

    python -m benchmarks.incremental [--tables 5] [--events 200000] [--rows 200000] [--rounds 6]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import yaml

from benchmarks import foreach_batch_peer as peer
from benchmarks.bare_upsert import BareTable, bare_tables, new_rows, read, upsert
from benchmarks.environment import on_a_stack
from cdc.config import Config
from cdc.log.position import Lsn
from cdc.run import run_tables
from cdc.runtime.progress import NullProgress
from cdc.sources.postgres.slot_capture import Slot
from operate.context import Services
from operate.onboard import onboard
from schemas.table import TableId
from stack.local import LocalStack

SOURCE = "bench"
WARM_UP = 2
"""The number of first rounds that do not count, since the JVM still compiles the code in them."""
TABLES_AT_ONCE = 8
"""The number of tables that `run` and Hudi's upsert alone write at the same time."""
GATE = 2.5
"""The least speed of the runs, as a multiple of that of the job with all streams at once."""
OURS, TOGETHER, IN_TURN = "ours", "peer", "peer, one topic after the other"
BARE = "Hudi's upsert alone"
DDL = """
create table {table} (
  id bigint primary key, customer int not null, status text not null, amount numeric(12,2),
  quantity int not null, placed_at timestamptz not null, note text)
"""
FILL = """
insert into {table}
select g, g % 5000, 'new', g * 0.01, g % 9, timestamptz '2026-01-01' + g * interval '1 s',
  md5(g::text)
from generate_series(1, {rows}) g
"""
# What each column of an event's row image is in the lake.
COLUMNS = {
    "id": "row.id",
    "customer": "row.customer",
    "status": "row.status",
    "amount": "cast(row.amount as decimal(12,2))",
    "quantity": "row.quantity",
    "placed_at": "cast(row.placed_u005fat as timestamp)",
    "note": "row.note",
}


@dataclass
class Times:
    """Elapsed seconds and CPU seconds (this process and its JVM) of each counted round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, taken: tuple[float, float], *, counted: bool) -> None:
        if counted:
            self.wall.append(taken[0])
            self.cpu.append(taken[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=5, help="tables that change")
    parser.add_argument("--events", type=int, default=200_000, help="events per round, all tables")
    parser.add_argument("--rows", type=int, default=200_000, help="rows per table at the start")
    parser.add_argument("--rounds", type=int, default=6, help="counted rounds")
    return on_a_stack(measure, parser.parse_args())


def measure(stack: LocalStack, folder: Path, arguments: argparse.Namespace) -> int:
    dsn, names = (
        stack.env()["TRIBUTARY_PRIMARY_DSN"],
        [f"bench_{n}" for n in range(arguments.tables)],
    )
    with psycopg.connect(dsn, autocommit=True) as source:
        for table in names:
            source.execute(DDL.format(table=table))
            source.execute(FILL.format(table=table, rows=arguments.rows))
            source.execute(f"analyze {table}")
        with opened(stack, folder) as services:
            ids = [TableId(SOURCE, "public", table) for table in names]
            outcomes = onboard(services, ids)
            failed = [outcome for outcome in outcomes if outcome.failed]
            assert not failed, failed
            tables = {
                TOGETHER: peers(services, folder / "together", ids),
                IN_TURN: peers(services, folder / "in_turn", ids),
            }
            sides: dict[str, Callable[[], None]] = {
                OURS: lambda: run(services),
                TOGETHER: lambda: follow(services, tables[TOGETHER], folder / "together"),
                IN_TURN: lambda: follow(services, tables[IN_TURN], folder / "in_turn", at_once=1),
            }
            bare = bare_tables(services, ids, folder)
            times = {side: Times() for side in (*sides, BARE)}
            for number in range(arguments.rounds + WARM_UP):
                events = arguments.events // (1 if number >= WARM_UP else 10)
                change(source, names, events // len(names), number)
                wait_for_events(services, ids, source)
                first = number // 2 % len(sides)
                turned = [*sides, *sides][first : first + len(sides)]
                for side in turned if number % 2 else reversed(turned):
                    times[side].add(timed(sides[side]), counted=number >= WARM_UP)
                with new_rows(services, bare) as rows:
                    took = timed(lambda: upsert(bare, rows, TABLES_AT_ONCE))
                times[BARE].add(took, counted=number >= WARM_UP)
                print(f"round {number}: done", flush=True)
            compare(services, source, ids, tables)
            compare_bare(services, source, bare)
    return report(times, arguments)


@contextlib.contextmanager
def opened(stack: LocalStack, folder: Path) -> Iterator[Services]:
    document = yaml.safe_load(stack.config_text(source=SOURCE, folder=folder))
    document["lake"] = {"url": (folder / "lake").as_uri()}
    document["state"] = {"url": f"sqlite:///{folder / 'state.db'}"}
    document["spark"] = {
        "master": "local[2]",
        "driver_memory": "6g",
        "parallel_tables": TABLES_AT_ONCE,
        "conf": {"spark.sql.shuffle.partitions": "4"},
    }
    services = Services(Config.model_validate(document), NullProgress())
    try:
        yield services
    finally:
        services.close()


def run(services: Services) -> None:
    results = run_tables(services.run_context, services.store.tables())
    assert len(results) == len(services.store.tables()), "not every table had changes"
    assert not any(result.error for result in results), results


def follow(
    services: Services, tables: list[peer.PeerTable], folder: Path, at_once: int | None = None
) -> None:
    registry = services.config.kafka.registry.url
    known = [replace(table, avro_schema=latest_schema(registry, table.topic)) for table in tables]
    servers = services.config.kafka.bootstrap_servers
    for first in range(0, len(known), at_once or len(known)):
        some = known[first : first + (at_once or len(known))]
        peer.consume(services.spark, some, servers, str(folder / "checkpoints"))


def latest_schema(registry: str, topic: str) -> str:
    """The only writer schema of the topic, which the first event registers."""
    found = httpx.get(f"{registry}/subjects/{topic}-value/versions/latest", timeout=30)
    return str(found.raise_for_status().json()["schema"])


def peers(services: Services, folder: Path, ids: list[TableId]) -> list[peer.PeerTable]:
    """The peer's tables, created from the rows that the bootstrap copied."""
    created = []
    for table in ids:
        record = services.store.get(table)
        assert record is not None
        assert record.attempt is not None
        image = services.spark.read.format("hudi").load(record.attempt.path)
        columns = [*peer.META, *COLUMNS]
        offsets = services.kafka.stable_offsets(record.topic)
        mine = peer.PeerTable(
            topic=record.topic,
            start=offsets[0],
            avro_schema="",  # registered with the first event, see follow
            columns=COLUMNS,
            key="id",
            path=(folder / "peer" / table.name).as_uri(),
        )
        peer.create(mine, image.select(*columns))
        created.append(mine)
    return created


def change(source: psycopg.Connection[Any], names: Sequence[str], events: int, number: int) -> None:
    """Make events: 70 % updates, 20 % inserts, 10 % deletes, of keys from the whole table.

    Some keys change more than once.
    """
    base = 10_000_000 * (number + 1)
    for table in names:
        updates, inserts, deletes = events * 7 // 10, events * 2 // 10, events // 10
        source.execute(
            f"insert into {table} select {base} + g, g % 5000, 'new', g * 0.01, g % 9, now(), "
            f"md5(g::text) from generate_series(1, {inserts}) g"
        )
        for part in range(2):
            source.execute(
                f"update {table} set quantity = quantity + 1, status = 'r{number}.{part}' "
                f"where id in (select id from {table} tablesample bernoulli (100) "
                f"order by hashint8(id + {number}) limit {updates // 2})"
            )
        source.execute(
            f"delete from {table} where id in (select id from {table} "
            f"order by hashint8(id * 7 + {number}) limit {deletes})"
        )


def wait_for_events(
    services: Services, ids: list[TableId], source: psycopg.Connection[Any]
) -> None:
    """Wait until readers of Kafka see all changes that were written.

    Kafka answers the connector's commit before it has written the markers that end a transaction
    to all partitions. Until then, readers of committed records see only a part of the changes.
    """
    row = source.execute("select pg_current_wal_insert_lsn()").fetchone()
    assert row is not None
    adapter = services.source(SOURCE)
    adapter.write_marker()
    target = Lsn.parse(row[0])
    kept = adapter.capture(services.capture(ids[0])).kept_log
    assert isinstance(kept, Slot), kept
    deadline = time.monotonic() + 900
    while True:
        health = kept.health()
        captured = None if health is None else health.confirmed_flush_lsn
        if captured is not None and captured >= target:
            break
        assert time.monotonic() < deadline, f"the connector did not get to {target}: {health}"
        time.sleep(0.2)
    topics = [record.topic for table in ids if (record := services.store.get(table)) is not None]
    kafka = services.kafka
    while (open_from := kafka.stable_offsets_many(topics)) != kafka.high_watermarks_many(topics):
        assert time.monotonic() < deadline, f"transactions did not end: {open_from}"
        time.sleep(0.2)


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Elapsed seconds, and CPU seconds of this process and the JVM that it started."""
    before, start = cpu_seconds(), time.perf_counter()
    act()
    return time.perf_counter() - start, cpu_seconds() - before


def cpu_seconds() -> float:
    me = psutil.Process(os.getpid())
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process is me or "org.apache.spark.deploy.SparkSubmit" in process.cmdline():
                used = process.cpu_times()
                total += used.user + used.system
    return total


def compare(
    services: Services,
    source: psycopg.Connection[Any],
    ids: list[TableId],
    tables: dict[str, list[peer.PeerTable]],
) -> None:
    """Compare the source with the tables of all sides, row for row; raises if they differ."""
    names = ", ".join(COLUMNS)
    for place, table in enumerate(ids):
        record = services.store.get(table)
        assert record is not None
        assert record.attempt is not None
        rows = set(source.execute(f"select {names} from {table.name}").fetchall())
        paths = {side: others[place].path for side, others in tables.items()}
        for side, path in {OURS: record.attempt.path, **paths}.items():
            frame = services.spark.read.format("hudi").load(path).select(*COLUMNS)
            found = [tuple(row) for row in frame.collect()]
            utc = [(*row[:5], row[5].astimezone(), *row[6:]) for row in found]
            assert len(utc) == len(rows), f"{side} {table}: {len(utc)} rows, source {len(rows)}"
            assert set(utc) == rows, f"{side} {table}: rows differ"
        print(f"{table}: {len(rows)} rows are equal on the source and all sides")


def compare_bare(
    services: Services, source: psycopg.Connection[Any], tables: list[BareTable]
) -> None:
    """Check that the copies of Hudi's upsert have the source's rows, beside those deleted since."""
    for table in tables:
        names = ", ".join(COLUMNS)
        rows = set(source.execute(f"select {names} from {table.record.name}").fetchall())
        found = read(services, table.path).select(*COLUMNS).collect()
        lost = rows - {(*row[:5], row[5].astimezone(), *row[6:]) for row in found}
        assert not lost, f"{table.path} lacks {len(lost)} rows"


def report(times: dict[str, Times], arguments: argparse.Namespace) -> int:
    """Print the figures; the exit code says whether the gate is reached."""

    def ratio(above: str, below: str, of: str) -> float:
        pairs = zip(getattr(times[above], of), getattr(times[below], of), strict=True)
        return round(float(statistics.median(one / other for one, other in pairs)), 2)

    reached = ratio(TOGETHER, OURS, "wall") >= GATE
    figures = {
        "tables": arguments.tables,
        "events_per_round": arguments.events,
        "seconds": {side: [round(one, 1) for one in took.wall] for side, took in times.items()},
        "cpu_seconds": {side: [round(one, 1) for one in took.cpu] for side, took in times.items()},
        "speedup_median": {
            side: {"wall": ratio(side, OURS, "wall"), "cpu": ratio(side, OURS, "cpu")}
            for side in (TOGETHER, IN_TURN)
        },
        "most_speedup": ratio(TOGETHER, BARE, "wall"),
        "ours_by_upsert_alone": {
            "wall": ratio(OURS, BARE, "wall"),
            "cpu": ratio(OURS, BARE, "cpu"),
        },
        "gate": {"wanted": GATE, "reached": reached},
    }
    print(json.dumps(figures, indent=2))
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
