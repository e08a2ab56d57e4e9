"""A table, and tasks of its connector that end at a known place in the log.

A row that is too large for the connector's producer ends the task at a known place. Each event is
in a Kafka transaction of its own, so the events before that row are in Kafka, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cdc.debezium import CaptureNames, names
from cdc.debezium.task_ends import task_of
from cdc.kafka import KafkaRecord
from cdc.run import RunResult
from cdc.store.table_state import State
from operate.onboard import bootstrap
from operate.status import status
from tests.integration.rigs.captured import wait_until
from tests.integration.rigs.postgres import Database
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
        """Change the connector's configuration through Connect itself, past the product."""
        made = self.shop.services.connect.connector(self.connector)
        assert made is not None
        kept = {name: value for name, value in made.items() if name not in LIMIT}
        with connect_rest(self.shop.database.stack) as rest:
            path = f"/connectors/{self.connector}/config"
            rest.put(path, json={**kept, "name": self.connector, **more}).raise_for_status()

    def begin(self) -> None:
        """Onboard the table, then let the connector send events singly and fail at large ones."""
        succeeded(self.shop.onboard("t"))
        self.configure(LIMIT)
        self.shop.services.connect.wait_running(self.connector)
        self.run()

    def fail_within(self, *statements: str) -> None:
        """Run statements with a row that is too large to send, until the connector's task fails."""
        self.shop.database.execute(*statements)
        self.wait_failed()

    def wait_failed(self) -> None:
        self._wait(failed=True)

    def go_on(self) -> None:
        """Start the next task without the size limit, and wait until it has sent all events."""
        former = self.task
        self.configure(SINGLE)
        self._wait(failed=False)
        self.shop.settle("t")
        wait_until(lambda: self.task != former, "a heartbeat of the next task")

    def forget(self) -> None:
        """Delete the connector's stored position, as if it started in another Connect cluster."""
        path = f"/connectors/{self.connector}"
        with connect_rest(self.shop.database.stack) as rest:
            rest.put(f"{path}/stop").raise_for_status()
            deleted = lambda: rest.delete(f"{path}/offsets").is_success  # noqa: E731
            wait_until(deleted, "the stored position is gone", 60)
            rest.put(f"{path}/resume").raise_for_status()

    def _wait(self, *, failed: bool) -> None:
        connect = self.shop.services.connect

        def is_there() -> bool:
            status = connect.status(self.connector)
            return status is not None and (status.failure is not None if failed else status.running)

        wait_until(is_there, f"{self.connector}: failed={failed}", 180)

    def copy(self, ids: Sequence[int], large: int) -> None:
        """Insert rows by one COPY; one of the rows is too large to send."""
        database = self.shop.database
        assert isinstance(database, Database)
        with database.connect() as session, session.cursor().copy("COPY t FROM STDIN") as sink:
            for n in ids:
                sink.write_row((n, 0, "x" * LARGE if n == large else f"row {n}"))

    def offset(self) -> dict[str, Any]:
        return dict(self.shop.services.connect.offset(self.connector) or {})

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes on the table that `status` shows."""
        return status(self.shop.services, [self.shop.table("t")]).tables[0].notes

    def sent(self, name: str) -> list[KafkaRecord]:
        """The records in a table's topic, as the connector has sent them."""
        kafka, topic = self.shop.services.kafka, self.shop.record(name).topic
        return [*kafka.read(topic, 0, 0, kafka.stable_offsets(topic)[0])]

    def run(self) -> RunResult | None:
        return next(iter(self.shop.run()), None)

    def assert_lost(self, *words: str) -> None:
        """Assert that the next run stops the table, and that a new copy equals the source."""
        stopped = self.run()
        assert stopped is not None
        assert stopped.error is not None, self.shop.verify("t")
        for word in words:
            assert word in stopped.error.message
        assert self.shop.record("t").state is State.NEEDS_BOOTSTRAP
        succeeded(bootstrap(self.shop.services, [self.shop.table("t")]))
        self.shop.assert_equal("t")
