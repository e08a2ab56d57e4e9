"""One scrape of thousands of tables: the time that `tributary metrics serve` takes for it.

One table is onboarded, so its connector runs and sends heartbeats. The others are on record only:
the store's own methods give each one a record with a commit, a run and a result of `verify`. Each
has a topic in Kafka. No scrape uses the facts of an earlier one.

    python -m benchmarks.scrape [--tables 3000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import time
import urllib.request
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from benchmarks.environment import on_a_stack
from benchmarks.incremental import DDL, FILL, SOURCE, opened
from cdc.store.attempt import Attempt
from cdc.store.history import RunEntry
from cdc.store.table_state import CommitSummary, CommitWrites, LakeSize, State, TableRecord
from cdc.store.verifications import Verifications, VerifyRecord
from operate.context import Services
from operate.metrics.exposing import serving
from operate.onboard import onboard
from schemas.table import TableId
from stack.local import LocalStack

FOLLOWED = "followed"
"""The table that is onboarded."""
PROMETHEUS = {
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5",
    "Accept-Encoding": "gzip",
}
"""The HTTP headers of Prometheus' requests."""
WARM_S = 120.0
"""Limit, in seconds, for the first scrapes, until one of them finds the facts in time."""
PORTION = 250
"""The number of topics that are created at a time."""
GATE_S = 2.0
"""The most CPU seconds of the cheapest scrape; other processes change its elapsed time."""


@dataclass(frozen=True)
class Scrape:
    """The elapsed seconds of one scrape, its CPU seconds, and the answer's text."""

    wall: float
    cpu: float
    text: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=3_000, help="tables on the plan")
    parser.add_argument("--rounds", type=int, default=5, help="counted scrapes")
    return on_a_stack(measure, parser.parse_args())


def measure(stack: LocalStack, folder: Path, arguments: argparse.Namespace) -> int:
    with opened(stack, folder) as services:
        follow(stack.env()["TRIBUTARY_PRIMARY_DSN"], services)
        topics = [f"scraped.public.t{number}" for number in range(1, arguments.tables)]
        for first in range(0, len(topics), PORTION):
            services.kafka.ensure_topics({name: {} for name in topics[first : first + PORTION]})
        for number, topic in enumerate(topics, 1):
            fill(services, number, topic)
    print(f"{arguments.tables} tables are on record", flush=True)
    with serving(services.config, host="127.0.0.1", port=0, cache_s=0.0) as port:
        warm(port)
        taken = [timed(port) for _ in range(arguments.rounds)]
    return report(taken, arguments.tables)


def follow(dsn: str, services: Services) -> None:
    """Create a table at the source, and onboard it."""
    with psycopg.connect(dsn, autocommit=True) as source:
        source.execute(DDL.format(table=FOLLOWED))
        source.execute(FILL.format(table=FOLLOWED, rows=1_000))
    outcomes = onboard(services, [TableId(SOURCE, "public", FOLLOWED)])
    assert not outcomes[0].failed, outcomes


def fill(services: Services, number: int, topic: str) -> None:
    """Put a table on the plan, with a commit, a run and a result of `verify` on record."""
    now = datetime.now(timezone.utc).replace(microsecond=0)
    table = TableId(SOURCE, "public", f"t{number}")
    attempt = Attempt(
        UUID(int=number + 1), now, "path", start_offsets={0: 0}, handoff_offsets={0: 0}
    )
    writes = CommitWrites(1.5, 7_000_000, inserts=10, updates=90, deletes=0)
    record = TableRecord(
        *(table, State.INCREMENTAL),
        base_path=f"/lake/{table.name}",
        tier="default",
        topic=topic,
        updated_at=now,
        attempt=attempt,
        last_commit=CommitSummary({0: 0}, "0/9", now, "20260102110000000", now, writes=writes),
        size=LakeSize(10_000_000, 2_000_000, 0, now),
    )
    services.store.put(record)
    began = now - timedelta(seconds=2)
    run = (services.run_id, table, 1, State.INCREMENTAL, began, 1.5, 1, 100, {"c": 10, "u": 90})
    services.store.record_run(RunEntry(*run, {0: 0}))
    proven = VerifyRecord(str(attempt.id), now, 9, {}, "0/9", 1.0, now)
    Verifications(services.store).keep(table, proven)


def warm(port: int) -> None:
    """Scrape until the facts are there; the first scrape is slow, since it reads each document."""
    until = time.monotonic() + WARM_S
    while "tributary_facts_duration_seconds " not in timed(port).text:
        assert time.monotonic() < until, "no scrape finds the facts"


def timed(port: int) -> Scrape:
    """Scrape once; returns the times and the answer."""
    began, cpu = time.perf_counter(), time.process_time()
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=PROMETHEUS)
    with urllib.request.urlopen(asked, timeout=60) as answered:
        packed = answered.read()
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    text = gzip.decompress(packed).decode()
    return Scrape(wall, cpu, text)


def value(text: str, name: str) -> float:
    return float(next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[1])


def report(taken: list[Scrape], tables: int) -> int:
    """Print the figures; the exit code says whether the gate is reached."""
    text = taken[-1].text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    behind = sum(line.startswith("tributary_table_events_behind") for line in lines)
    known = value(text, "tributary_tables")
    assert known == tables == behind, f"{known:.0f} tables, {behind} with events behind"
    assert value(text, "tributary_scrape_success") == 1
    beats = [line for line in lines if line.startswith("tributary_heartbeat_timestamp_seconds{")]
    assert len(beats) == 1, "the connector has not sent a heartbeat"
    seconds = min(one.cpu for one in taken)
    figures: dict[str, Any] = {
        "tables": tables,
        "series": len(lines),
        "bytes": len(text),
        "least_cpu_seconds": round(seconds, 2),
        "median_seconds": {
            "scrape": round(statistics.median(one.wall for one in taken), 2),
            "cpu": round(statistics.median(one.cpu for one in taken), 2),
            "facts": round(
                statistics.median(
                    value(one.text, "tributary_facts_duration_seconds") for one in taken
                ),
                2,
            ),
        },
        "gate": {"wanted_cpu_seconds": GATE_S, "reached": seconds <= GATE_S},
    }
    print(json.dumps(figures, indent=2))
    return 0 if seconds <= GATE_S else 1


if __name__ == "__main__":
    sys.exit(main())
