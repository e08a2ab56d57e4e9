"""How many events a second one connector of Debezium sends to Kafka, with other settings beside.

A fleet ends at its connectors first: all tables of a source and tier share one. The connector is
paused while rows are written, so it then sends a backlog as fast as it can. The sides take turns,
each with other properties of the connector, and the first round does not count. Each side must send
each row once, which the topic's keys show.

    python -m benchmarks.capture [--events 300000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition

from benchmarks.environment import on_a_stack
from benchmarks.incremental import DDL, SOURCE, opened
from operate.context import Services
from operate.onboard import onboard
from schemas.table import TableId
from stack.local import LocalStack

TABLE = "captured"
QUIET_S = 3.0
"""Seconds without growth after which a topic with enough events counts as complete."""
LIMIT_S = 600.0
SIDES: dict[str, dict[str, str]] = {
    "as shipped": {},
    "batch 8192, queue 32768": {"max.batch.size": "8192", "max.queue.size": "32768"},
    "poll interval 500 ms": {"poll.interval.ms": "500"},
    "producer batch 256 KiB, linger 20 ms": {
        "producer.override.batch.size": "262144",
        "producer.override.linger.ms": "20",
    },
    "without compression": {"producer.override.compression.type": "none"},
}
INSERT = """
insert into {table}
select {first} + g, g % 5000, 'new', g * 0.01, g % 9, now(), md5(g::text)
from generate_series(1, {events}) g
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=300_000, help="rows of a round")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds of each side")
    return on_a_stack(measure, parser.parse_args())


def measure(stack: LocalStack, folder: Path, arguments: argparse.Namespace) -> int:
    dsn, table = stack.env()["TRIBUTARY_PRIMARY_DSN"], TableId(SOURCE, "public", TABLE)
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    with psycopg.connect(dsn, autocommit=True) as source, opened(stack, folder) as services:
        source.execute(DDL.format(table=TABLE))
        outcomes = onboard(services, [table])
        assert not outcomes[0].failed, outcomes
        connector = services.capture(table).connector
        shipped = services.connect.connector(connector)
        assert shipped is not None
        first = 0
        for number in range(arguments.rounds + 1):
            for side, properties in SIDES.items():
                services.connect.put_connector(connector, {**shipped, **properties})
                services.connect.wait_running(connector)
                services.connect.pause(connector)
                source.execute(INSERT.format(table=TABLE, first=first, events=arguments.events))
                rate = drained(services, connector, table, arguments.events)
                first += arguments.events
                if number > 0:
                    rates[side].append(rate)
            print(f"round {number}: done", flush=True)
        compare(services, table, first)
    return report(rates)


def drained(services: Services, connector: str, table: TableId, events: int) -> float:
    """Resume the connector; return the events per second from its first one to its last one."""
    record = services.store.get(table)
    assert record is not None
    before = services.kafka.stable_offsets(record.topic)[0]
    services.connect.resume(connector)
    began = grown = 0.0
    end, start = before, time.monotonic()
    while end < before + events or time.monotonic() - grown < QUIET_S:
        assert time.monotonic() - start < LIMIT_S, f"{end - before} of {events} events"
        time.sleep(0.05)
        now = services.kafka.stable_offsets(record.topic)[0]
        if now > end:
            end, grown = now, time.monotonic()
            began = began or grown
    return events / (grown - began)


def compare(services: Services, table: TableId, rows: int) -> None:
    """Count the topic's events by key: each row must be there once."""
    record = services.store.get(table)
    assert record is not None
    servers = services.config.kafka.bootstrap_servers
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "benchmark", "enable.auto.commit": False}
    )
    seen: set[Any] = set()
    try:
        end = services.kafka.stable_offsets(record.topic)[0]
        consumer.assign([TopicPartition(record.topic, 0, 0)])
        count, at = 0, 0
        while at < end - 1:
            messages = consumer.consume(10_000, timeout=10.0)
            if not messages:
                break  # only the end of a transaction is left
            for message in messages:
                assert message.error() is None, message.error()
                seen.add(message.key())
                count, at = count + 1, message.offset() or at
        assert count == len(seen) == rows, f"{count} events of {len(seen)} keys, not {rows}"
    finally:
        consumer.close()
    print(f"{table}: {rows:,} rows, one event each")


def report(rates: dict[str, list[float]]) -> int:
    """Print the figures; this benchmark has no gate."""
    shipped = rates["as shipped"]
    sides = {
        side: {
            "events_per_second": round(statistics.median(found)),
            "ratio": round(
                statistics.median(b / a for a, b in zip(shipped, found, strict=True)), 2
            ),
        }
        for side, found in rates.items()
    }
    print(json.dumps({"sides": sides}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
