"""A test's own database, whose tables are replicated to a lake with the functions of `operate`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from bootstrap.capture_proof import Capture
from cdc.capture.recovery import Recovery
from cdc.config import Config
from cdc.debezium import Definitions
from cdc.lake.publish import current_path
from cdc.lake.write import LakeTable
from cdc.run import RunResult, run_tables
from cdc.runtime.progress import NullProgress, Progress
from cdc.store.table_state import State, TableRecord
from operate.context import Services
from operate.onboard import onboard
from operate.table_outcome import Outcome
from operate.verify.result import Verification
from operate.verify.table import verify_table
from schemas.table import TableId
from tests.integration.rigs.at_work import at_work
from tests.integration.rigs.databases import OwnDatabase

CAPTURE_TIMEOUT_S = 150.0
"""Seconds to wait for changes: longer than a connector takes to recover from a lost connection."""


@dataclass
class Shop:
    """The services of the commands, on one database of any kind of source.

    Args:
        database: The test's database. The source has the name of the database.
        spark: The Spark session that all tests of a module share, or None for no Spark.
        folder: Holds the state store and the lake.
        tables: The ``tables`` section of the configuration.
    """

    database: OwnDatabase
    spark: SparkSession | None
    folder: Path
    tables: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.services = Services(self.config(), NullProgress(), spark=self.spark)

    def config(self, **changes: Any) -> Config:
        document = self.database.document(self.folder)
        return Config.model_validate({**document, "tables": self.tables, **changes})

    def reconfigure(self, progress: Progress | None = None, **changes: Any) -> None:
        """Open new services with another configuration, as a new process would."""
        self.services.close()
        self.services = Services(
            self.config(**changes), progress or NullProgress(), spark=self.spark
        )

    def table(self, name: str) -> TableId:
        return self.database.table(name)

    def record(self, name: str) -> TableRecord:
        record = self.services.store.get(self.table(name))
        assert record is not None
        return record

    def create(self, name: str, rows: int) -> None:
        """Create a table with a key, a number that is always 0, and a text."""
        self.database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int NOT NULL, t text)")
        self.database.load(name, ((n, 0, f"row {n}") for n in range(1, rows + 1)))

    def onboard(self, *names: str, with_bootstrap: bool = True) -> list[Outcome]:
        wanted = [self.table(name) for name in names]
        return onboard(self.services, wanted, with_bootstrap=with_bootstrap)

    def run(self) -> list[RunResult]:
        return run_tables(self.services.run_context, self.services.store.tables())

    def asks_for_copy(self, name: str) -> bool:
        """Run all tables; returns whether the table needs a bootstrap afterwards."""
        self.run()
        return self.record(name).state is State.NEEDS_BOOTSTRAP

    def verify(self, name: str) -> Verification:
        return verify_table(self.services, self.services.run_context, self.table(name))

    def assert_equal(self, *names: str) -> None:
        """Update the lake, and assert that source and lake are equal row for row and not empty."""
        for name in names:
            found = self.verify(name)
            assert found.equal, found
            assert found.rows_compared > 0

    def settle(self, name: str) -> None:
        """Wait until readers of the table's topic see all that is committed on the source."""
        settle(self.services, self.table(name))

    def lake(self, name: str) -> DataFrame:
        """The rows that readers of the table see."""
        path = current_path(self.record(name).base_path)
        assert path is not None
        assert self.spark is not None
        return self.spark.read.format("hudi").load(path)

    def scalar(self, query: str) -> Any:
        rows = self.database.rows(query)
        return rows[0][0] if rows else None

    @contextmanager
    def writing(self, *statements: str, pause_s: float = 0.002) -> Iterator[list[int]]:
        """Run the statements again and again while the block runs.

        The yielded list holds the number of finished rounds. In the statements, ``{turn}`` stands
        for this number.
        """
        done = [0]

        def work(_: int, stop: threading.Event) -> None:
            with self.database.connect() as connection, connection.cursor() as cursor:
                while not stop.wait(pause_s):
                    for statement in statements:
                        cursor.execute(statement.replace("{turn}", str(done[0])))
                    done[0] += 1

        with at_work(work):
            yield done


@pytest.fixture
def shop(database: OwnDatabase, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    """A shop on the test's database; the test module chooses the kinds of source."""
    shop = Shop(database, spark, tmp_path)
    yield shop
    shop.services.close()


@pytest.fixture
def cold(database: OwnDatabase, tmp_path: Path) -> Iterator[Shop]:
    """A shop without a Spark session, for commands that need none."""
    shop = Shop(database, None, tmp_path)
    yield shop
    shop.services.close()


def settle(services: Services, table: TableId) -> None:
    """Wait until readers of the table's topic see all that is committed on the source."""
    record = services.store.get(table)
    assert record is not None
    source = services.source(table.source)
    capture = Capture(
        table=table,
        topic=record.topic,
        names=services.capture_of(record),
        source=source,
        connect=services.connect,
        kafka=services.kafka,
        definitions=Definitions(services.kafka, services.schemas),
        sent=services.sent,
        recovery=Recovery(
            services.connect,
            services.leases,
            services.store,
            services.kafka,
            services.config,
            services.sent,
        ),
        progress=NullProgress(),
    )
    capture.wait_until_captured(source.write_marker().position, timeout_s=CAPTURE_TIMEOUT_S)
    until = services.kafka.high_watermarks(record.topic)
    capture.wait_until_readable(until, timeout_s=CAPTURE_TIMEOUT_S)


def succeeded(outcomes: Sequence[Outcome]) -> None:
    """Assert that no table failed; the message shows the errors of failed tables."""
    failed = [(str(one.table), one.error) for one in outcomes if one.failed]
    assert not failed, failed


def run_without_error(shop: Shop) -> None:
    """Run all tables, and assert that none has an error."""
    errors = [result.error for result in shop.run() if result.error]
    assert not errors, errors


def overlook_the_catalog(shop: Shop, name: str) -> None:
    """Let the table go on although the source's catalog shows that changes were lost.

    An empty commit takes the present fingerprint of the catalog over as the known one.
    """
    record = shop.record(name)
    source = shop.services.source(shop.database.name)
    described, now = source.capture(shop.services.capture_of(record)).described(record.table)
    assert record.attempt is not None
    assert record.attempt.fingerprint is not None
    assert record.attempt.fingerprint.digest != now.digest
    settings = shop.services.config.table_settings(record.table)
    lake = LakeTable(
        shop.services.spark, record.attempt.path, source.schema(described, settings), settings
    )
    latest = lake.timeline().latest_offsets()
    assert latest is not None
    handoff = replace(latest.record.require_handoff(), fingerprint=now)
    lake.empty_commit(replace(latest.record, handoff=handoff), lambda _timeline: None)
