"""Tables without a key on the real stack, and writers whose transactions overlap every phase."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from operate.table_outcome import Outcome
from tests.integration.rigs.at_work import at_work
from tests.integration.rigs.bootstrapping import Watch
from tests.integration.rigs.databases import OwnDatabase
from tests.integration.rigs.shop import Shop, run_without_error

COLUMNS = ("kind", "n", "t")
ROWS = 5_000


@dataclass
class Log:
    """One table without a key, and the shop that it is in."""

    shop: Shop
    name: str = "events"

    @property
    def settings(self) -> dict[str, Any]:
        """The table's section of the configuration; a test may change it in place."""
        found: dict[str, Any] = self.shop.tables[self.shop.database.label(self.name)]
        return found

    def insert(self, *values: int) -> None:
        for value in values:
            self.shop.database.execute(f"INSERT INTO {self.name} VALUES ('one', {value}, NULL)")

    def onboard(self, watch: Watch | None = None) -> list[Outcome]:
        if watch is not None:
            self.shop.services.progress = watch
        return self.shop.onboard(self.name)

    def run(self) -> None:
        self.shop.settle(self.name)
        run_without_error(self.shop)

    @property
    def attempt(self) -> Any:
        attempt = self.shop.record(self.name).attempt
        assert attempt is not None
        return attempt

    def in_lake(self, *columns: str, where: str = "true") -> list[tuple[Any, ...]]:
        frame = self.shop.lake(self.name).where(where)
        return [tuple(row) for row in frame.select(*(columns or COLUMNS)).collect()]

    def at_source(self) -> Counter[tuple[Any, ...]]:
        return bag(self.shop.database.rows(f"SELECT {', '.join(COLUMNS)} FROM {self.name}"))

    def assert_equal(self) -> None:
        source, lake = self.at_source(), bag(self.in_lake())
        assert lake == source, f"missing {source - lake}, extra {lake - source}"
        keys = self.in_lake("_hoodie_record_key")
        assert len(set(keys)) == len(keys), "each row has a key of its own"


@pytest.fixture
def log(database: OwnDatabase, spark: SparkSession, tmp_path: Path) -> Iterator[Log]:
    """A table without a key, with many equal rows; asserts at the end that the replica replays."""
    tables = {database.label("events"): {"mode": "append"}}
    shop = Shop(database, spark, tmp_path, tables=tables)
    create_log(database, "events", ROWS)
    database.let_pause()
    yield Log(shop)
    source = shop.services.source(database.name)
    try:
        assert not source.replay_paused(), "the replica does not replay"
    finally:
        shop.services.close()


def create_log(database: OwnDatabase, name: str, rows: int) -> None:
    """Create a table without a key in which many rows are equal."""
    database.execute(f"CREATE TABLE {name} (kind varchar(20), n int, t text)")
    database.load(name, (("old", n % 100, "x" * 100) for n in range(1, rows + 1)))


@contextmanager
def inserters(database: OwnDatabase, name: str, count: int = 4) -> Iterator[list[int]]:
    """Insert rows in threads; the list holds the number of committed rows of each thread.

    A transaction has up to 8 rows and stays open for up to half a second. One thread rolls
    back every fifth transaction. Another thread uses savepoints in every second transaction,
    because a PostgreSQL standby that has replayed savepoints may export inconsistent snapshots.
    """
    done = [0] * count

    def write(number: int, stop: threading.Event) -> None:
        chance = random.Random(number)
        with database.begin() as connection, connection.cursor() as cursor:
            turn = 0
            while not stop.is_set():
                turn += 1
                rows = chance.randint(1, 8)
                for row in range(rows):
                    if number == 1 and turn % 2:
                        cursor.execute("SAVEPOINT s")
                    cursor.execute(f"INSERT INTO {name} VALUES ('new', %s, %s)", (turn % 7, "same"))
                    if row == rows // 2:
                        stop.wait(chance.choice((0.0, 0.005, 0.05, 0.5)))
                if number == 2 and turn % 5 == 0:
                    connection.rollback()
                    continue
                connection.commit()
                done[number] += rows

    with at_work(write, count):
        yield done


def bag(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """The number of occurrences of each row."""
    return Counter(tuple(row) for row in rows)
