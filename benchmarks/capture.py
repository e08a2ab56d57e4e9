"""What one connector of Debezium sends to Kafka: its most events a second, and its lag below that.

A fleet ends at its connectors first: all tables of a source and tier share one. In the first part,
the connector is paused while rows are written, and then sends this backlog as fast as it can. The
sides take turns, each with other properties of the connector; the first round does not count. The
rate of the side `as shipped` is the value for `connect.events_per_s`.

In the second part, the shipped connector gets rows at shares of that rate, ten times a second. The
lag of a row is the time from the end of its commit at the source until a reader of committed
records has its event. Its median in the fourth quarter of the time, beside that in the second,
shows whether the lag grows.

The property `snapshot.mode` has no side: `cdc/debezium/kind.py` fixes it to `no_data`, since
Tributary copies the tables itself, and rows of a connector's snapshot would arrive after newer
changes.

Before a figure counts, the topic's keys are read: each side must have sent each row once, in order.

    python -m benchmarks.capture [--kind postgres|mysql|mariadb] [--events 200000] [--rounds 5]
        [--sides "as shipped;heartbeat 10 s"] [--loads 0.5,0.8,1.0] [--seconds 120]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from confluent_kafka import Consumer, KafkaError, TopicPartition

from benchmarks.environment import on_a_stack
from benchmarks.freshness import percentiles
from benchmarks.incremental import DDL, SOURCE, opened
from cdc.debezium.kind import COMMON_REASONS, COMMON_SETTINGS
from operate.context import Services
from operate.onboard import onboard
from schemas.table import TableId
from stack.layout import KINDS
from stack.local import LocalStack
from stack.ports import HOST
from stack.postgres import POSTGRES
from stack.roles import ADMIN, DATABASE

TABLE = "captured"
QUIET_S = 3.0
"""Seconds without growth after which a topic with enough events counts as complete."""
LIMIT_S = 600.0
TICK_S = 0.1
POLL_S = 0.02
"""The longest time, in seconds, by which the reader notes an event late."""
GROWS_S = 1.0
"""A lag grows if its median in the fourth quarter is longer by this than in the second."""
KEY_AT = 5
"""The place of the key's value in a message's key, after a zero and the number of the schema."""
SHIPPED = "as shipped"
SIDES: dict[str, dict[str, str]] = {
    SHIPPED: {},
    "batch 8192, queue 32768": {"max.batch.size": "8192", "max.queue.size": "32768"},
    "poll interval 500 ms": {"poll.interval.ms": "500"},
    "heartbeat 100 ms": {"heartbeat.interval.ms": "100"},
    "heartbeat 10 s": {"heartbeat.interval.ms": "10000"},
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
MYSQL_DDL = """
create table {table} (
  id bigint primary key, customer int not null, status varchar(20) not null, amount decimal(12,2),
  quantity int not null, placed_at timestamp(6) not null, note text)
"""
# Both servers let a recursion go 1000 deep.
MYSQL_INSERT = """
insert into {table}
with recursive u as (select 0 as n union all select n + 1 from u where n < 999),
  k as (select 0 as n union all select n + 1 from k where n < {events} div 1000),
  numbers as (select k.n * 1000 + u.n + 1 as g from k cross join u)
select {first} + g, g % 5000, 'new', g * 0.01, g % 9, now(6), md5(g)
from numbers where g <= {events} order by g
"""


@dataclass
class Captured:
    """The captured table, and what writes to it and follows its topic.

    Args:
        services: The services.
        connector: Name of the table's connector.
        topic: The table's topic.
        execute: Runs a statement at the source, in a transaction of its own.
        statement: The statement that inserts rows.
        rows: Number of rows that were inserted so far; their ids begin at 1.
    """

    services: Services
    connector: str
    topic: str
    execute: Callable[[str], object]
    statement: str
    rows: int = 0

    def end(self) -> int:
        """Return the offset up to which the topic's events are committed."""
        return self.services.kafka.stable_offsets(self.topic)[0]

    def insert(self, events: int) -> None:
        """Insert rows in one transaction."""
        self.execute(self.statement.format(table=TABLE, first=self.rows, events=events))
        self.rows += events

    def arrivals(self) -> Arrivals:
        """Return a reader of the events after those that the topic has now."""
        return Arrivals(self.services.config.kafka.bootstrap_servers, self.topic, self.end())

    def require(self, ids: list[int], events: int) -> None:
        """Check that these are the ids of the newest rows, each once and in order."""
        assert len(ids) == events, f"{len(ids)} events of {events} rows"
        assert ids == list(range(self.rows - events + 1, self.rows + 1)), "other rows, or disorder"


@dataclass
class Arrivals:
    """Reads a topic's committed events, and notes each one's id and the time when it came.

    Args:
        servers: Kafka's bootstrap servers.
        topic: The topic.
        start: The offset of the first event to read.
        ids: The id in each event's key.
        at: For each event, the time when the reader had it, in seconds since 1970.
        complete: Whether the reader has just had the topic's last event.
    """

    servers: str
    topic: str
    start: int
    ids: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    complete: bool = False

    def read(self, wanted: Callable[[], bool]) -> None:
        """Read events for as long as ``wanted`` returns true."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        try:
            consumer.assign([TopicPartition(self.topic, 0, self.start)])
            while wanted():
                messages = consumer.consume(1_000, timeout=POLL_S)
                now = time.time()
                for message in messages:
                    error, key = message.error(), message.key()
                    self.complete = error is not None
                    if error is not None:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        continue
                    assert key is not None, "an event without a key"
                    self.ids.append(id_of(key))
                    self.at.append(now)
        finally:
            consumer.close()

    def read_all(self) -> None:
        """Read all events that the topic has."""
        deadline = time.monotonic() + LIMIT_S

        def wanted() -> bool:
            assert time.monotonic() < deadline, f"{len(self.ids)} events, and no end"
            return not self.complete

        self.read(wanted)


def id_of(key: bytes) -> int:
    """Return the id in an event's key; Avro writes a long in groups of seven bits."""
    value = 0
    for place, byte in enumerate(key[KEY_AT:]):
        value |= (byte & 0x7F) << (7 * place)
    return value >> 1  # ids are positive


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, default=POSTGRES, help="kind of the source")
    parser.add_argument("--events", type=int, default=200_000, help="rows of a round")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds of each side")
    parser.add_argument("--sides", help="sides, with a semicolon between them; by default all")
    parser.add_argument("--loads", default="0.5,0.8,1.0", help="shares of the shipped rate")
    parser.add_argument("--seconds", type=int, default=120, help="length of each load")
    arguments = parser.parse_args()
    arguments.sides = arguments.sides.split(";") if arguments.sides else list(SIDES)
    if SHIPPED not in arguments.sides or set(arguments.sides) - set(SIDES):
        parser.error(f"--sides must have {SHIPPED!r}, and others of {', '.join(SIDES)} only")
    return on_a_stack(measure, arguments, kind=arguments.kind)


def measure(stack: LocalStack, folder: Path, arguments: argparse.Namespace) -> int:
    with captured(stack, folder, arguments.kind) as one:
        rates = backlogs(one, arguments)
        shipped = statistics.median(rates[SHIPPED])
        loads = {
            f"{float(load):.0%}": steady(one, round(shipped * float(load)), arguments.seconds)
            for load in arguments.loads.split(",")
        }
    figures = {
        "kind": arguments.kind,
        "version": stack.versions()[arguments.kind],
        "events_per_round": arguments.events,
        "backlog": {
            side: {
                "events_per_second": round(statistics.median(found)),
                "ratio": round(median_ratio(found, rates[SHIPPED]), 2),
            }
            for side, found in rates.items()
        },
        "lag_by_load": loads,
        "fixed": {
            "snapshot.mode": COMMON_SETTINGS["snapshot.mode"],
            "because": f"otherwise {COMMON_REASONS['snapshot.mode']}",
        },
    }
    print(json.dumps(figures, indent=2))
    return 0  # this benchmark has no gate


@contextlib.contextmanager
def captured(stack: LocalStack, folder: Path, kind: str) -> Iterator[Captured]:
    """Create the table on a source of this kind, and onboard it."""
    execute: Callable[[str], object]
    with contextlib.ExitStack() as opening:
        services = opening.enter_context(opened(stack, folder))
        if kind == POSTGRES:
            dsn = stack.env()["TRIBUTARY_PRIMARY_DSN"]
            execute = opening.enter_context(psycopg.connect(dsn, autocommit=True)).execute
            table, ddl, statement = TableId(SOURCE, "public", TABLE), DDL, INSERT
        else:
            execute = opening.enter_context(mysql_session(stack, kind)).cursor().execute
            table = TableId(f"{SOURCE}_{kind}", DATABASE, TABLE)
            ddl, statement = MYSQL_DDL, MYSQL_INSERT
        execute(ddl.format(table=TABLE))
        outcomes = onboard(services, [table])
        assert not outcomes[0].failed, outcomes
        record = services.store.get(table)
        assert record is not None
        connector = services.capture(table).connector
        yield Captured(services, connector, record.topic, execute, statement)


def mysql_session(stack: LocalStack, kind: str) -> pymysql.connections.Connection[Any]:
    return pymysql.connect(
        host=HOST,
        port=stack.addresses().ports[kind],
        user=ADMIN,
        password=stack.passwords.get(ADMIN),
        database=DATABASE,
        autocommit=True,
    )


def backlogs(one: Captured, arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Return, by side, the events per second of each counted round."""
    connect, sides = one.services.connect, list(arguments.sides)
    shipped = connect.connector(one.connector)
    assert shipped is not None
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(arguments.rounds + 1):
        first = number % len(sides)
        for side in sides[first:] + sides[:first]:
            connect.put_connector(one.connector, {**shipped, **SIDES[side]})
            connect.wait_running(one.connector)
            connect.pause(one.connector)
            found = one.arrivals()
            one.insert(arguments.events)
            rate = drained(one, found.start, arguments.events)
            found.read_all()
            one.require(found.ids, arguments.events)
            if number > 0:
                rates[side].append(rate)
        print(f"round {number}: done", flush=True)
    connect.put_connector(one.connector, shipped)
    connect.wait_running(one.connector)
    return rates


def drained(one: Captured, before: int, events: int) -> float:
    """Resume the connector; return the events per second after those that come first."""
    one.services.connect.resume(one.connector)
    began = grown = 0.0
    end, first, start = before, before, time.monotonic()
    while end < before + events or time.monotonic() - grown < QUIET_S:
        assert time.monotonic() - start < LIMIT_S, f"{end - before} of {events} events"
        time.sleep(0.05)
        now = one.end()
        if now > end:
            end, grown = now, time.monotonic()
            if not began:
                began, first = grown, now
    assert grown > began, f"{events} events are too few: all came at once"
    return (end - first) / (grown - began)


def steady(one: Captured, rate: int, seconds: int) -> dict[str, Any]:
    """Insert rows at a rate; return the lag of their events."""
    found = one.arrivals()
    written, stop = one.rows, threading.Event()
    reader = threading.Thread(target=found.read, args=(lambda: not stop.is_set(),))
    reader.start()
    committed: list[tuple[int, float]] = []
    late_s, start, count = 0.0, time.monotonic(), max(1, round(rate * TICK_S))
    try:
        for tick in range(round(seconds / TICK_S)):
            at = start + tick * TICK_S
            if (early := at - time.monotonic()) > 0:
                time.sleep(early)
            one.insert(count)
            committed.append((count, time.time()))
            late_s = max(late_s, time.monotonic() - at)
        took = time.monotonic() - start
        deadline = time.monotonic() + LIMIT_S
        while len(found.ids) < one.rows - written:
            assert time.monotonic() < deadline, f"{len(found.ids)} of {one.rows - written} events"
            time.sleep(TICK_S)
        time.sleep(QUIET_S)  # for events that should not come
    finally:
        stop.set()
        reader.join()
    one.require(found.ids, one.rows - written)
    ends = [end for count, end in committed for _ in range(count)]
    lags = [at - end for at, end in zip(found.at, ends, strict=True)]
    quarter = max(1, len(lags) // 4)
    medians = [statistics.median(lags[i * quarter : (i + 1) * quarter]) for i in range(4)]
    print(f"{rate} events a second: median lags {medians} s", flush=True)
    return {
        "events_per_second": round(len(lags) / took),
        "writer_late_seconds": round(late_s, 2),
        "lag_seconds": percentiles(sorted(lags), digits=3),
        "p50_by_quarter": [round(one, 3) for one in medians],
        "grows": medians[3] - medians[1] > GROWS_S,
    }


def median_ratio(found: Sequence[float], shipped: Sequence[float]) -> float:
    """Return the median of the ratios of a side's rates to the shipped side's, by round."""
    return statistics.median(one / other for one, other in zip(found, shipped, strict=True))


if __name__ == "__main__":
    sys.exit(main())
