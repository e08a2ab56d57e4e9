"""A database of a test's own on the PostgreSQL of the shared stack."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import yaml

from cdc.sources.postgres.exact_view import grant_sql
from stack.errors import StackError
from stack.local import LocalStack
from stack.postgres import POSTGRES
from stack.roles import ADMIN, SNAPSHOT
from tests.integration.rigs.databases import OwnDatabase
from tests.integration.rigs.servers import connect_rest

_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Database(OwnDatabase):
    """A database of one test on PostgreSQL."""

    schema = "public"
    quote = '"'
    waits_for_open_transactions = True

    def document(self, folder: Path) -> dict[str, Any]:
        """A configuration with this database as the one source; lake and state in the folder."""
        text = self.stack.config_text(
            source=self.name, database=self.name, folder=folder, kinds=[POSTGRES]
        )
        document: dict[str, Any] = yaml.safe_load(text)
        return document

    def dsn(self, role: str = ADMIN, *, replica: bool = False) -> str:
        """A libpq URI without a password in it."""
        return self.stack.addresses(self.name).dsn(role, replica=replica)

    @contextlib.contextmanager
    def connect(
        self, role: str = ADMIN, *, replica: bool = False
    ) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """A connection in autocommit mode."""
        with psycopg.connect(self.dsn(role, replica=replica), autocommit=True) as connection:
            yield connection

    def begin(self) -> AbstractContextManager[psycopg.Connection[tuple[Any, ...]]]:
        """A connection whose transaction ends by ``commit`` or ``rollback`` only."""
        return contextlib.closing(psycopg.connect(self.dsn()))

    def retype(self, table: str, column: str, definition: str) -> str:
        """The statement that gives a column another type."""
        return f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {definition}"

    def let_pause(self) -> None:
        """Grant the snapshot role the right to pause replay, also on the replica."""
        self.stack.psql(grant_sql(SNAPSHOT), database=self.name)
        self.catch_up()

    def catch_up(self) -> None:
        """Wait until the replica has replayed what the primary has written."""
        written = self.stack.psql("SELECT pg_current_wal_lsn()").strip()
        behind = f"SELECT pg_last_wal_replay_lsn() < '{written}'"
        deadline = time.monotonic() + 60
        while self.stack.psql(behind, replica=True).strip() != "f":
            assert time.monotonic() < deadline, f"the replica does not reach {written}"
            time.sleep(0.1)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the replica's replay while a block runs."""
        self.stack.psql("SELECT pg_wal_replay_pause()", replica=True)
        try:
            yield
        finally:
            self.stack.psql("SELECT pg_wal_replay_resume()", replica=True)

    def on_replica(self, statement: str) -> None:
        """Run a statement on the replica as its superuser."""
        self.stack.psql(statement, replica=True)

    @contextlib.contextmanager
    def commits_hang(self) -> Iterator[Callable[[], None]]:
        """Let commits with ``synchronous_commit`` on wait for a missing standby.

        The yielded function releases them.
        """

        def settings(*statements: str) -> None:
            for statement in (*statements, "SELECT pg_reload_conf()"):
                self.stack.psql(statement)

        def release() -> None:
            settings("ALTER SYSTEM RESET synchronous_standby_names")

        settings("ALTER SYSTEM SET synchronous_commit = local")
        # A heartbeat that commits meanwhile would hang too, and the connector with it.
        time.sleep(2)
        settings("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        try:
            yield release
        finally:
            release()
            settings("ALTER SYSTEM RESET synchronous_commit")

    def end_snapshots(self) -> int:
        """End every session that reads on the replica, as a recovery conflict does."""
        ended = self.stack.psql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            f" WHERE application_name = 'tributary' AND datname = '{self.name}'"
            " AND (state = 'idle in transaction'"
            " OR state = 'active' AND query LIKE '%source_rows%')",
            replica=True,
        )
        return int(ended)

    def lose_log(self) -> None:
        """Drop the replication slots, so that the server no longer keeps the log for them."""
        _drop_slots(self.stack, self.name)


@contextlib.contextmanager
def own_database(stack: LocalStack) -> Iterator[Database]:
    """An empty database for a block, dropped with its connectors and slots."""
    stack.up()  # the test before may have left a server dead
    name = f"t{os.getpid()}_{next(_NUMBERS)}"
    stack.psql(f'CREATE DATABASE "{name}" OWNER {ADMIN}')
    try:
        created = Database(stack, name, POSTGRES)
        _wait_for_replica(created)
        yield created
    finally:
        stack.up()
        _delete_connectors(stack, name)
        _drop_slots(stack, name, then=f'DROP DATABASE "{name}" WITH (FORCE)')


def _wait_for_replica(database: Database) -> None:
    """Wait until the replica has the new database, too."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with database.connect(replica=True):
                return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _delete_connectors(stack: LocalStack, name: str) -> None:
    """Delete the connectors that capture the database."""
    with connect_rest(stack) as connect:
        listed = connect.get("/connectors", params={"expand": "info"})
        for connector, found in listed.raise_for_status().json().items():
            if found["info"]["config"].get("database.dbname") == name:
                connect.delete(f"/connectors/{connector}").raise_for_status()


def _drop_slots(stack: LocalStack, name: str, then: str = "SELECT") -> None:
    """Drop the slots of a database, and run a statement once the database has no slots.

    Both are tried again for up to a minute. If a connector is stopped or deleted while its task
    still starts, the task may hold a slot for a moment, or create a dropped slot again.
    """
    deadline = time.monotonic() + 60
    while True:
        try:
            stack.psql(
                f"""
                SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots
                 WHERE database = '{name}' AND active_pid IS NOT NULL;
                SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
                 WHERE database = '{name}';
                """
            )
            stack.psql(then)
        except StackError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return
