"""A database of a test's own with tables on their way to a lake, driven through `operate`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession

from cdc.config import Config
from cdc.progress import NullProgress
from cdc.run import RunResult, run_tables
from cdc.state import TableRecord
from operate.context import Services
from operate.onboard import onboard
from operate.outcome import Outcome
from operate.verify.table import Verification, verify_table
from schemas.table import TableId
from tests.integration.conftest import Database


@dataclass
class Shop:
    """What the commands work with, on one database.

    Args:
        database: The test's database; its name is the source's as well.
        spark: The session that all tests of a module share.
        folder: Holds state and lake.
        tables: The ``tables`` section of the configuration.
    """

    database: Database
    spark: SparkSession | None
    folder: Path
    tables: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.services = Services(self.config(), NullProgress(), spark=self.spark)

    def config(self, **changes: Any) -> Config:
        stack, name = self.database.stack, self.database.name
        document = yaml.safe_load(stack.config_text(source=name, database=name, folder=self.folder))
        return Config.model_validate({**document, "tables": self.tables, **changes})

    def reconfigure(self, **changes: Any) -> None:
        """Go on with another configuration, as a new process would."""
        self.services.close()
        self.services = Services(self.config(**changes), NullProgress(), spark=self.spark)

    def table(self, name: str) -> TableId:
        return TableId(self.database.name, "public", name)

    def record(self, name: str) -> TableRecord:
        record = self.services.store.get(self.table(name))
        assert record is not None
        return record

    def create(self, name: str, rows: int) -> None:
        self.database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v int NOT NULL, t text)",
            f"INSERT INTO {name} SELECT g, 0, 'row ' || g FROM generate_series(1, {rows}) g",
        )

    def onboard(self, *names: str, with_bootstrap: bool = True) -> list[Outcome]:
        wanted = [self.table(name) for name in names]
        return onboard(self.services, wanted, with_bootstrap=with_bootstrap)

    def run(self) -> list[RunResult]:
        return run_tables(self.services.run_context, self.services.store.tables())

    def verify(self, name: str) -> Verification:
        return verify_table(self.services, self.services.run_context, self.table(name))

    def scalar(self, query: str) -> Any:
        with self.database.connect() as connection:
            row = connection.execute(query.encode()).fetchone()
        return row[0] if row is not None else None

    @contextmanager
    def writing(self, *statements: str, pause_s: float = 0.002) -> Iterator[list[int]]:
        """Run the statements again and again while the block runs; the list holds how often."""
        stop, done = threading.Event(), [0]

        def work() -> None:
            with self.database.connect() as connection:
                while not stop.wait(pause_s):
                    for statement in statements:
                        connection.execute(statement.encode())
                    done[0] += 1

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield done
        finally:
            stop.set()
            thread.join()


def succeeded(outcomes: Sequence[Outcome]) -> None:
    """All tables went through; shows the errors of those that did not."""
    assert not [(str(one.table), one.error) for one in outcomes if one.failed]
