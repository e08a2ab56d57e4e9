"""Captures that send no changes, for example of binlogs: a run names each, with its reason."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa

from cdc.capture.recovery import Recovery
from cdc.kafka import KafkaAdmin
from cdc.run import RunContext, Silence, silences
from cdc.store.tables import restart_rows
from operate.lifecycle import retry
from stack.mysql_software import MARIADB, MYSQL
from stack.ports import HOST
from stack.roles import CAPTURE
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.kinds import database_of, kinds
from tests.integration.rigs.logs import create_log
from tests.integration.rigs.mysql import MysqlDatabase, mysql_of
from tests.integration.rigs.mysql import mysql_stack as mysql_stack
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.shop import Shop, succeeded

pytestmark = pytest.mark.breadth

LARGE = 60_000
"""A number of rows that a connector needs several seconds to send."""


class Watched:
    """Captured tables, and the messages of a run on their captures."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        services = shop.services
        self.connect = services.connect
        self._context = RunContext(
            config=services.config,
            session=cast("Any", None),
            store=services.store,
            kafka=services.kafka,
            registry=services.registry,
            sources={name: services.source(name) for name in services.config.sources},
            leases=services.leases,
            progress=services.progress,
            run_id="run",
            connect=services.connect,
        )
        self.recovery = Recovery(
            services.connect,
            services.leases,
            services.store,
            services.kafka,
            services.config,
            services.sent,
        )

    def let_restart(self) -> None:
        """Allow the next look to restart a failed connector at once."""
        with self.shop.services.store.transaction() as connection:
            connection.execute(sa.update(restart_rows).values(next_at=0, times=0))

    def silences(self) -> list[Silence]:
        """The silences that a look finds, at which failed connectors may be restarted at once."""
        self.let_restart()
        return silences(self._context, self.shop.services.store.tables())

    def told(self) -> str:
        return " | ".join(f"{one.message}. {one.remedy}" for one in self.silences())

    def until(self, says: str) -> str:
        """Wait until the messages contain the text ``says``; returns the messages."""
        said: list[str] = []

        def tells() -> bool:
            said.append(self.told())
            return says in said[-1]

        try:
            wait_until(tells, says, 120)
        except AssertionError as error:
            raise AssertionError(f"not {says!r}, but {said[-1]!r}") from error
        return said[-1]

    def until_changes_come(self) -> None:
        wait_until(lambda: self.told() == "", "changes", 120)


@pytest.fixture
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    """A captured table ``orders`` on a server with a binlog."""
    with database_of(request, request.param) as database:
        shop = Shop(database, None, tmp_path)
        shop.create("orders", 1)
        succeeded(shop.onboard("orders", with_bootstrap=False))
        yield Watched(shop)
        shop.services.close()


@pytest.mark.parametrize("watched", kinds(of=(MARIADB, MYSQL)), indirect=True)
def test_a_binlogs_capture_that_sends_nothing_is_told_with_its_reason(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, connect = watched.shop, watched.connect
    database = shop.database
    assert isinstance(database, MysqlDatabase)
    table = shop.table("orders")
    name = shop.services.capture(table).connector
    watched.until_changes_come()

    password = database.stack.passwords.get(CAPTURE)
    database.root(f"ALTER USER {CAPTURE}@'{HOST}' IDENTIFIED BY 'another-one'")
    try:
        connect.restart(name, only_failed=False)
        said = watched.until("failed: ")
    finally:
        database.root(f"ALTER USER {CAPTURE}@'{HOST}' IDENTIFIED BY '{password}'")
    assert f"connector {name} failed: " in said
    assert "Access denied for user" in said
    assert "credentials.capture" in said
    assert str(table) in said
    assert password not in said
    assert "another-one" not in said
    assert not re.search(r"\bat (?:org|io|java)\.|\n", said), "no Java stack"
    watched.until_changes_come()

    connect.pause(name)
    assert f"connector {name} is PAUSED" in watched.told()
    assert "tributary retry" in watched.told()
    retry(shop.services, table)
    watched.until_changes_come()

    monkeypatch.setattr("cdc.capture.connector_activity.silence_bound_s", lambda _: 2.0)
    with database.begin() as session, session.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM tributary.heartbeat WHERE source = '{name}' FOR UPDATE")
        assert "tributary.heartbeat" in watched.until("runs, and its last heartbeat")
    monkeypatch.undo()
    watched.until_changes_come()

    connect.stop(name)
    assert f"connector {name} is STOPPED" in watched.told()
    database.execute("UPDATE orders SET v = 2 WHERE id = 1")
    database.lose_log()
    connect.resume(name)
    said = watched.until("failed: ")
    assert "not restarted, since" in said
    assert "tributary bootstrap" in said

    connect.delete(name)
    assert f"there is no connector {name}" in watched.told()


LOCAL = "START TRANSACTION; {first}; SAVEPOINT s; {others}; COMMIT"
XA = "XA START 'a'; {first}; {others}; XA END 'a'; XA COMMIT 'a' ONE PHASE"
OTHERS = (
    "INSERT INTO orders SELECT {least} + row_number() OVER (), 0, repeat('x', 500)"
    " FROM (SELECT 1 FROM information_schema.columns a, information_schema.columns b"
    " LIMIT {rows}) n"
)
DISTURBED = {
    MARIADB: ((LOCAL, "stalled"), (LOCAL, "lost"), (XA, "restarted")),
    MYSQL: ((XA, "stalled"), (XA, "restarted"), (LOCAL, "lost"), (LOCAL, "restarted")),
}
"""By kind of source: the transactions, and what happens to the connector while it reads each.

Before a restart, the connector has also lost its connection and begun to read again.
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("watched", kinds(of=(MARIADB, MYSQL)), indirect=True)
def test_a_large_transaction_arrives_whole_although_the_connector_of_its_binlog_is_disturbed(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement makes the connector's client believe that it has read the whole transaction."""
    monkeypatch.setattr("cdc.capture.connector_activity.lost_after_s", lambda *_: 20.0)
    shop, kafka = watched.shop, watched.shop.services.kafka
    database, topic = mysql_of(shop.database), shop.record("orders").topic
    name = shop.services.capture(shop.table("orders")).connector
    heartbeat = f"SELECT 1 FROM tributary.heartbeat WHERE source = '{name}' FOR UPDATE"
    watched.until_changes_come()
    lost: dict[str, int] = {}
    for turn, (statements, what) in enumerate(DISTURBED[database.kind], 1):
        least = turn * 100_000
        first = f"INSERT INTO orders VALUES ({least}, 0, 'in front')"
        others = OTHERS.format(least=least, rows=LARGE)
        before = end_of(kafka, topic)
        with database.connect() as session, session.cursor() as cursor:
            for statement in statements.format(first=first, others=others).split("; "):
                cursor.execute(statement)
        wait_until(partial(grew, kafka, topic, before), "its first rows", 120)
        with database.begin() as session, session.cursor() as cursor:
            cursor.execute(heartbeat)  # keeps the connector from reading on
            if what != "stalled":
                database.lose_connection()
            time.sleep(25)  # longer than two intervals of keep-alive
            held = end_of(kafka, topic)
        watched.let_restart()
        if what == "restarted":
            with suppress(AssertionError):  # if no more rows come, the number below is wrong
                wait_until(partial(read_on, watched, topic, held), "its next reading", 90)
            watched.connect.restart(name, only_failed=False)
        shop.settle("orders")
        end = kafka.stable_offsets(topic)[0]
        found = {record.key for record in kafka.read(topic, 0, 0, end, timeout_s=120)}
        lost[f"{what}: {statements}"] = turn * (1 + LARGE) - len(found)
    assert not any(lost.values()), f"rows are lost: {lost}"

    watched.until_changes_come()
    database.lose_connection()
    before = end_of(kafka, topic)
    database.execute("UPDATE orders SET v = 2 WHERE id = 1")
    assert "restarted, time 1" in watched.until("runs, but has lost its connection")
    wait_until(partial(grew, kafka, topic, before), "the change", 60)
    watched.until_changes_come()


def end_of(kafka: KafkaAdmin, topic: str) -> int:
    return kafka.high_watermarks(topic)[0]


def grew(kafka: KafkaAdmin, topic: str, before: int) -> bool:
    return end_of(kafka, topic) > before


def read_on(watched: Watched, topic: str, held: int) -> bool:
    """Whether the topic has more records than the connector had in memory.

    If the connector has failed, it is restarted first.
    """
    shop = watched.shop
    names = shop.services.capture(shop.table("orders"))
    on_source = shop.services.source(names.source).capture(names)
    watched.recovery.restart_if_failed(names, on_source)
    return grew(shop.services.kafka, topic, held + 12_000)


def test_the_connector_of_logs_is_told_apart_from_that_of_tables(
    database: Database, tmp_path: Path
) -> None:
    shop = Shop(database, None, tmp_path, tables={"public.events": {"mode": "append"}})
    database.let_pause()
    create_log(database, "events", 10)
    shop.create("orders", 1)
    succeeded(shop.onboard("events", "orders", with_bootstrap=False))
    watched, connect = Watched(shop), shop.services.connect
    logs, orders = shop.table("events"), shop.table("orders")
    name, other = (shop.services.capture(table).connector for table in (logs, orders))
    assert name != other
    watched.until_changes_come()

    def only(says: str) -> str:
        said = watched.until(says)
        assert name in said
        assert other not in said.replace(name, "")
        assert (str(logs) in said, str(orders) in said) == (True, False)
        return said

    for stop, says in ((connect.pause, "is PAUSED"), (connect.stop, "is STOPPED")):
        stop(name)
        only(f"connector {name} {says}")
        assert len(watched.silences()) == 1
        retry(shop.services, logs)
        watched.until_changes_come()

    database.stack.psql("ALTER ROLE tributary_capture NOLOGIN")
    try:
        connect.restart(name, only_failed=False)
        assert "not permitted to log in" in only("failed: ")
    finally:
        database.stack.psql("ALTER ROLE tributary_capture LOGIN")
    watched.until_changes_come()

    connect.delete(name, forget_offsets=False)
    assert len(watched.silences()) == 1
    only(f"there is no connector {name}")
    shop.services.close()
