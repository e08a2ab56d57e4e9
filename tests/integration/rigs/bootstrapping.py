"""Tables that are captured and registered on the real stack, and bootstraps that are watched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import psycopg

from bootstrap.handoff import BootstrapResult, Limits, bootstrap_table
from cdc.lake.publish import current_path
from cdc.runtime.progress import NullTask, Task
from cdc.store.table_state import State, TableRecord
from schemas.table import TableId
from tests.integration.rigs.at_work import at_work
from tests.integration.rigs.postgres import Database
from tests.integration.rigs.replication import Replication
from tests.records import table_record

LIMITS = Limits(
    older_transactions_s=20.0,
    replica_s=20.0,
    captured_s=30.0,
    readable_s=20.0,
    lease_s=5.0,
)
WIDE = "repeat(md5(g::text), 8)"


@dataclass
class Watch:
    """Progress that calls functions when certain tasks start or advance.

    Args:
        on_start: Functions by a text. Each is called once, when a task starts whose name contains
            the text. The text ``a > b`` means: a task with b starts after a task with a.
        on_advance: Functions by a text. Each is called once, when a task whose name contains the
            text counts something.
    """

    on_start: dict[str, Callable[[], Any]] = field(default_factory=dict)
    on_advance: dict[str, Callable[[], Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def start(self, task: str, total: int | None = None, unit: str = "rows") -> Task:
        self._once(self.on_start, task)
        return _WatchedTask(self, task)

    def _once(self, actions: dict[str, Callable[[], Any]], task: str) -> None:
        for key in list(actions):
            first, _, later = key.partition(" > ")
            if first in task and later:
                actions[later] = actions.pop(key)
            elif first in task:
                actions.pop(key)()


class _WatchedTask(NullTask):
    def __init__(self, watch: Watch, name: str) -> None:
        self._watch = watch
        self._name = name

    def advance(self, count: int = 1) -> None:
        self._watch._once(self._watch.on_advance, self._name)

    def note(self, text: str) -> None:
        self._watch.notes.append(text)


@dataclass
class Bootstrapping(Replication):
    """Captured tables that wait for their bootstrap."""

    def _hand_over(self, table: TableId) -> TableRecord:
        return self.store.put(
            table_record(
                table=table,
                state=State.REGISTERED,
                base_path=self.config.table_path(table),
                topic=self.capture.topic(table),
                updated_at=datetime.now(timezone.utc),
            )
        )

    def bootstrap(
        self, name: str, watch: Watch | None = None, *, limits: Limits = LIMITS, **changes: Any
    ) -> BootstrapResult:
        context = self.context(progress=watch or Watch(), **changes)
        return bootstrap_table(context, self.connect, self.record(name), limits=limits)

    def published(self, name: str) -> str | None:
        """The path that readers of the table see."""
        return current_path(self.record(name).base_path)

    def catch_up_and_compare(self, name: str, *columns: str) -> None:
        """Apply all changes that were captured, then compare source and lake row for row."""
        self.settle()
        for result in self.run():
            assert result.error is None, result.error
        self.assert_equal(name, columns)
        path = self.published(name)
        assert path is not None
        frame = self.spark.read.format("hudi").load(path)
        assert frame.count() == frame.select("_hoodie_record_key").distinct().count()

    def without_replica(self) -> None:
        """Remove the replica from the source's configuration."""
        section = self.config.source(self.database.name).model_copy(update={"replica": None})
        config = self.config.model_copy(update={"sources": {self.database.name: section}})
        self.config = config
        self.source = type(self.source)(self.database.name, section)


def limits(**changes: float) -> Limits:
    return replace(LIMITS, **changes)  # type: ignore[arg-type]


def fill(database: Database, name: str, rows: int) -> None:
    """Create a table with that many rows of about 300 bytes."""
    database.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, v int NOT NULL, t text)",
        f"INSERT INTO {name} SELECT g, 0, {WIDE} FROM generate_series(1, {rows}) g",
    )


def fill_wide(database: Database, name: str, rows: int) -> None:
    """Create a table with that many rows of 8 kB, which PostgreSQL does not compress."""
    database.execute(
        f"CREATE TABLE {name} (id int PRIMARY KEY, v int NOT NULL, t text)",
        f"ALTER TABLE {name} ALTER t SET STORAGE EXTERNAL",
        f"INSERT INTO {name} SELECT g, 0, repeat(md5(g::text), 250)"
        f" FROM generate_series(1, {rows}) g",
    )


@contextmanager
def writers(database: Database, name: str, rows: int, count: int = 3) -> Iterator[list[int]]:
    """Change the table in threads while the block runs, some hundred times a second.

    The list holds the number of statements of each thread.
    """
    done = [0] * count

    def write(number: int, stop: threading.Event) -> None:
        with database.connect() as connection:
            turn = number
            while not stop.is_set():
                turn += count
                key = turn * 7919 % rows + 1
                for statement in (
                    f"UPDATE {name} SET v = v + 1 WHERE id = {key}",
                    f"DELETE FROM {name} WHERE id = {(key * 31) % rows + 1}",
                    f"INSERT INTO {name} VALUES ({(key * 17) % rows + 1}, -1, 'again')"
                    " ON CONFLICT DO NOTHING",
                    f"UPDATE {name} SET id = {rows + turn} WHERE id = {(key * 13) % rows + 1}",
                ):
                    connection.execute(statement.encode())
                    done[number] += 1
                # Faster ones would outrun a loaded machine, and the test would not end.
                stop.wait(0.02)

    with at_work(write, count):
        yield done


@contextmanager
def open_transaction(
    database: Database, statement: str
) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A transaction that has run the statement and stays open until the caller commits."""
    with psycopg.connect(database.dsn()) as connection:
        connection.execute(statement.encode())
        yield connection
