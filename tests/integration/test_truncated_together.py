"""One TRUNCATE of several PostgreSQL tables: one record in the log, and one event per table.

In the tests, the connector's task ends between these events, or before a later position is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from operate.lifecycle import retry
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.servers import alter_topic
from tests.integration.rigs.shop import Shop, run_without_error, succeeded
from tests.integration.rigs.tasks import SINGLE, Tasks

pytestmark = pytest.mark.breadth

TABLES = ("t", "u")
TRUNCATE = "TRUNCATE t, u"


@pytest.fixture
def tasks(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Tasks]:
    shop = Shop(database, spark, tmp_path)
    for name in TABLES:
        shop.create(name, 10)
    with closing(shop.services):
        yield Tasks(shop)


def begin(tasks: Tasks, *, heartbeat_ms: int) -> None:
    """Onboard the tables, then let the connector send each event alone."""
    succeeded(tasks.shop.onboard(*TABLES))
    run_without_error(tasks.shop)
    tasks.configure({**SINGLE, "heartbeat.interval.ms": str(heartbeat_ms)})
    tasks.shop.services.connect.wait_running(tasks.connector)


def assert_stored(tasks: Tasks, events: int) -> None:
    """Wait until the connector's stored offset is after this number of events of the TRUNCATE."""

    def is_stored() -> bool:
        stored = tasks.offset()
        return (stored["messageType"], stored.get("lsn_events_processed")) == ("TRUNCATE", events)

    wait_until(is_stored, f"the offset behind {events} events")


def assert_truncated(tasks: Tasks) -> None:
    """Assert that the lake has only the row that was inserted after the TRUNCATE."""
    tasks.shop.database.execute(*(f"INSERT INTO {name} VALUES (1, 0, 'new')" for name in TABLES))
    tasks.shop.settle("t")
    run_without_error(tasks.shop)
    tasks.shop.assert_equal(*TABLES)


def test_a_task_that_ended_within_a_truncate_of_several_tables_loses_nothing(
    tasks: Tasks,
) -> None:
    begin(tasks, heartbeat_ms=1000)
    kafka, topic = tasks.shop.services.config.kafka, tasks.shop.record("u").topic
    # The topic accepts the mark that ends a Kafka transaction, without which no task can start.
    alter_topic(kafka, topic, **{"max.message.bytes": "120"})
    tasks.shop.database.execute(TRUNCATE)
    tasks.wait_failed()
    assert_stored(tasks, 1)
    assert tasks.sent("t")
    assert not tasks.sent("u")
    alter_topic(kafka, topic, **{"max.message.bytes": "1048588"})
    tasks.shop.services.connect.restart(tasks.connector)
    assert_truncated(tasks)


def test_a_connector_that_cannot_start_behind_a_truncate_goes_on_after_it(tasks: Tasks) -> None:
    begin(tasks, heartbeat_ms=3_600_000)
    tasks.shop.database.execute(TRUNCATE)
    assert_stored(tasks, 2)
    tasks.configure({**SINGLE, "heartbeat.interval.ms": "1000"})  # restarts the task
    connect = tasks.shop.services.connect

    def refuses() -> bool:
        status = connect.status(tasks.connector)
        return status is not None and "not present among LSNs seen" in str(status.failure)

    wait_until(refuses, "the connector refuses the place where it starts")
    retry(tasks.shop.services, tasks.shop.table("t"))
    assert_truncated(tasks)
    assert [len(tasks.sent(name)) for name in TABLES] == [2, 2]
