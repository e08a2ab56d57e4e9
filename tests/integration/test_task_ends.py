"""The connector's task ends between two events of one record of the log.

A row that is too large for the connector's producer ends the task at a known place. Each event is
in a Kafka transaction of its own, so the events before that row are in Kafka, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.debezium import CaptureNames, connector_config, names
from cdc.debezium.task_ends import task_of
from cdc.run import RunResult
from cdc.store.table_state import State
from operate.onboard import bootstrap
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.running import spark as spark
from tests.integration.rigs.servers import connect_rest
from tests.integration.rigs.shop import Shop, succeeded

LARGE = 60_000
SINGLE = {"max.batch.size": "1"}
LIMIT = {**SINGLE, "producer.override.max.request.size": "20000"}


@dataclass
class Tasks:
    """A table, and the tasks of the connector that captures it."""

    shop: Shop

    @property
    def names(self) -> CaptureNames:
        record = self.shop.record("t")
        source = self.shop.services.config.source(record.table.source)
        return names(record.table.source, source, record.tier)

    @property
    def connector(self) -> str:
        return self.names.connector

    @property
    def task(self) -> str | None:
        """The task that has sent the newest heartbeat."""
        beat = self.shop.services.kafka.latest_record(self.names.heartbeat_topic)
        return None if beat is None else task_of(beat)

    def configure(self, more: dict[str, str]) -> None:
        """Change the connector as an operator does who does not use Tributary."""
        config, record = self.shop.services.config, self.shop.record("t")
        name, database = record.table.source, self.shop.database
        assert isinstance(database, Database)
        source = config.source(name)
        made = connector_config(name, source, record.tier, config.kafka, config.connect)
        with connect_rest(database.stack) as rest:
            path = f"/connectors/{self.connector}/config"
            rest.put(path, json={**made, "name": self.connector, **more}).raise_for_status()

    def begin(self) -> None:
        """Onboard the table; from then on, each event is sent alone, and none that is large."""
        succeeded(self.shop.onboard("t"))
        self.configure(LIMIT)
        self.shop.services.connect.wait_running(self.connector)
        self.run()

    def fail_within(self, *statements: str) -> None:
        """Run statements of which the connector cannot send an event, until its task has ended."""
        self.shop.database.execute(*statements)
        self.wait_failed()

    def wait_failed(self) -> None:
        self._wait(failed=True)

    def go_on(self) -> None:
        """Start the next task, which can send all, and wait until it has sent all."""
        former = self.task
        self.configure(SINGLE)
        self._wait(failed=False)
        self.shop.settle("t")
        wait_until(lambda: self.task != former, "a heartbeat of the next task")

    def _wait(self, *, failed: bool) -> None:
        connect = self.shop.services.connect

        def is_there() -> bool:
            status = connect.status(self.connector)
            return status is not None and (status.failure is not None if failed else status.running)

        wait_until(is_there, f"{self.connector}: failed={failed}", 90)

    def copy(self, ids: Sequence[int], large: int) -> None:
        """Insert rows by one COPY, with a large one among them."""
        database = self.shop.database
        assert isinstance(database, Database)
        with database.connect() as session, session.cursor().copy("COPY t FROM STDIN") as sink:
            for n in ids:
                sink.write_row((n, 0, "x" * LARGE if n == large else f"row {n}"))

    def offset(self) -> dict[str, Any]:
        return dict(self.shop.services.connect.offset(self.connector) or {})

    def run(self) -> RunResult | None:
        return next(iter(self.shop.run()), None)

    def assert_lost(self, *words: str) -> None:
        """The next run stops the table, and another copy is equal."""
        stopped = self.run()
        assert stopped is not None
        assert stopped.error is not None, self.shop.verify("t")
        for word in words:
            assert word in stopped.error.message
        assert self.shop.record("t").state is State.NEEDS_BOOTSTRAP
        succeeded(bootstrap(self.shop.services, [self.shop.table("t")]))
        self.shop.assert_equal("t")


@pytest.fixture
def tasks(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Tasks]:
    shop = Shop(database, spark, tmp_path)
    shop.create("t", 10)
    with closing(shop.services):
        yield Tasks(shop)


def test_the_rest_of_a_copy_that_the_connector_leaves_out_is_found(tasks: Tasks) -> None:
    tasks.begin()
    # The keys are in the topic from an earlier life, which says nothing about the rows of the COPY.
    tasks.shop.database.execute(
        "INSERT INTO t SELECT n, 0, 'earlier' FROM generate_series(101, 105) n",
        "DELETE FROM t WHERE id > 100",
    )
    tasks.copy(range(101, 106), large=102)
    tasks.wait_failed()
    assert (tasks.offset()["messageType"], tasks.offset()["lsn_events_processed"]) == ("INSERT", 1)
    tasks.go_on()
    tasks.shop.database.execute("UPDATE t SET v = 1 WHERE id = 1")
    tasks.shop.settle("t")
    tasks.assert_lost("left out rows that COPY inserted", "key 102")


@pytest.mark.breadth
def test_a_task_that_ended_elsewhere_in_a_copy_loses_nothing(tasks: Tasks) -> None:
    tasks.begin()
    tasks.copy(range(101, 106), large=103)
    tasks.wait_failed()
    assert (tasks.offset()["messageType"], tasks.offset()["lsn_events_processed"]) == ("INSERT", 2)
    tasks.go_on()
    applied = tasks.run()
    assert applied is not None
    assert applied.error is None
    tasks.shop.assert_equal("t")


@pytest.mark.breadth
def test_a_row_with_a_changed_key_that_the_connector_leaves_out_is_found(tasks: Tasks) -> None:
    tasks.begin()
    tasks.fail_within(f"UPDATE t SET id = 200, t = repeat('x', {LARGE}) WHERE id = 2")
    tasks.go_on()
    tasks.assert_lost("left out the row with the changed key")


@pytest.mark.breadth
def test_a_row_that_is_sent_again_to_an_append_table_is_found(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    database.let_pause()
    shop = Shop(database, spark, tmp_path, tables={"public.t": {"mode": "append"}})
    shop.create("t", 10)
    with closing(shop.services):
        tasks = Tasks(shop)
        tasks.begin()
        tasks.copy(range(101, 106), large=103)
        tasks.wait_failed()
        tasks.go_on()
        tasks.assert_lost("sent that row again")
