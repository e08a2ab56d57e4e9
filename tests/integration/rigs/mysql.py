"""MySQL and MariaDB for tests: the stack that has them, and a database of a test's own."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest
import yaml

from stack.errors import UnavailableError
from stack.local import LocalStack
from stack.mysql_software import MARIADB, MYSQL, PRODUCTS, find_installation
from stack.ports import HOST
from stack.postgres import POSTGRES
from stack.roles import ADMIN, CAPTURE, SNAPSHOT
from tests.conftest import SERVERS, running_stack, used
from tests.integration.rigs.databases import OwnDatabase
from tests.integration.rigs.servers import connect_rest, converters

_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class MysqlDatabase(OwnDatabase):
    """A database of one test on MySQL or MariaDB."""

    quote = "`"
    waits_for_open_transactions = False

    @property
    def schema(self) -> str:
        """The database's own name, since MySQL and MariaDB have no schemas in a database."""
        return self.name

    def document(self, folder: Path) -> dict[str, Any]:
        """A configuration with this database as the one source; lake and state in the folder."""
        text = self.stack.config_text(folder=folder, kinds=[self.kind])
        document: dict[str, Any] = yaml.safe_load(text)
        (section,) = document["sources"].values()
        # Names of its own: another test's capture is another's.
        document["sources"] = {self.name: {**section, "databases": [self.name]}}
        return document

    @contextlib.contextmanager
    def connect(
        self, role: str = ADMIN, *, replica: bool = False, autocommit: bool = True
    ) -> Iterator[pymysql.connections.Connection[Any]]:
        """A connection, by default in autocommit mode."""
        server = f"{self.kind}_replica" if replica else self.kind
        with pymysql.connect(
            host=HOST,
            port=self.stack.addresses().ports[server],
            user=role,
            password=self.stack.passwords.get(role),
            database=self.name,
            autocommit=autocommit,
        ) as connection:
            yield connection

    def begin(self) -> contextlib.AbstractContextManager[pymysql.connections.Connection[Any]]:
        """A connection whose transaction ends by ``commit`` or ``rollback`` only."""
        return self.connect(autocommit=False)

    def retype(self, table: str, column: str, definition: str) -> str:
        """The statement that gives a column another type, and keeps whether NULL is allowed."""
        nullable = self.rows(
            "SELECT is_nullable FROM information_schema.columns WHERE table_schema = database()"
            f" AND table_name = '{table}' AND column_name = '{column}'"
        )
        null = "" if nullable == [("YES",)] else " NOT NULL"
        return f"ALTER TABLE {table} MODIFY {column} {definition}{null}"

    def let_pause(self) -> None:
        """Let the snapshot role stop the replica's applier."""
        right = "REPLICATION_SLAVE_ADMIN" if self.kind == MYSQL else "REPLICATION SLAVE ADMIN"
        self.root(f"GRANT {right} ON *.* TO {SNAPSHOT}@'{HOST}'")
        self.catch_up()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the replica's applier while a block runs."""
        self.root("STOP REPLICA SQL_THREAD", replica=True)
        try:
            yield
        finally:
            self.root("START REPLICA SQL_THREAD", replica=True)

    def on_replica(self, statement: str) -> None:
        """Run a statement on the replica as its superuser."""
        self.root(statement, replica=True)

    def end_snapshots(self) -> int:
        """End every session on the replica that has begun to read."""
        found = self.root(
            "SELECT ID FROM information_schema.PROCESSLIST"
            f" WHERE USER = '{SNAPSHOT}' AND INFO LIKE '%source_rows%'",
            replica=True,
        )
        for (number,) in found:
            self.root(f"KILL {number}", replica=True)
        return len(found)

    def lose_log(self) -> None:
        """Start a new binlog file, and purge all older ones."""
        self.catch_up()
        self.root("FLUSH BINARY LOGS")
        newest = self.root("SHOW BINARY LOGS")[-1][0]
        deadline = time.monotonic() + 60
        # The server keeps what a reader still has open, one that has just gone among them.
        while len(self.root("SHOW BINARY LOGS")) > 1:
            assert time.monotonic() < deadline, "the server still keeps older binlogs"
            self.root(f"PURGE BINARY LOGS TO '{newest}'")
            time.sleep(0.2)

    def query(self, text: str, role: str = ADMIN, *, replica: bool = False) -> list[Any]:
        """Run a statement in a session of its own; returns its rows."""
        with self.connect(role, replica=replica) as connection, connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())

    def position(self) -> str:
        """The transactions that the primary has executed, as a GTID set."""
        name = "gtid_executed" if self.kind == MYSQL else "gtid_binlog_pos"
        return str(self.query(f"SELECT @@global.{name}")[0][0])

    def catch_up(self) -> None:
        """Wait until the replica has executed all transactions of the primary."""
        function = "WAIT_FOR_EXECUTED_GTID_SET" if self.kind == MYSQL else "MASTER_GTID_WAIT"
        reached = self.root(f"SELECT {function}('{self.position()}', 60)", replica=True)
        assert reached == [(0,)], "the replica does not follow"

    def lose_connection(self) -> None:
        """End the binlog session of the connector, which must be the server's only connector."""
        (dump,) = [
            row[0]
            for row in self.root("SHOW PROCESSLIST")
            if "Dump" in str(row[4]) and "capture" in str(row[1])
        ]
        self.root(f"KILL {dump}")

    def root(self, *statements: str, replica: bool = False) -> list[Any]:
        """Run statements as the superuser."""
        return self.stack.mysql(self.kind, *statements, replica=replica)


def available(config: pytest.Config, kind: str) -> bool:
    """Whether this machine has the server or can fetch it.

    If MySQL is not available, the report of the test run says so. If MariaDB is not available,
    the error is raised.
    """
    try:
        find_installation(kind)
    except UnavailableError as error:
        if kind == MARIADB:
            raise
        config.stash.setdefault(SERVERS, {})[kind] = f"NOT AVAILABLE: {error.message}"
        return False
    return True


@contextlib.contextmanager
def mysql_stack_of(
    config: pytest.Config, wanted: Sequence[str] = tuple(PRODUCTS)
) -> Iterator[LocalStack]:
    """A stack with those of the wanted kinds that are available on this machine."""
    kinds = [kind for kind in wanted if available(config, kind)]
    with running_stack(kinds) as running:
        used(config, running)
        yield running


def mysql_of(database: OwnDatabase) -> MysqlDatabase:
    """The database as a `MysqlDatabase`, for tests that run on MySQL and MariaDB only."""
    assert isinstance(database, MysqlDatabase)
    return database


@contextlib.contextmanager
def own_mysql_database(
    stack: LocalStack, kind: str, made_as: type[MysqlDatabase] = MysqlDatabase
) -> Iterator[MysqlDatabase]:
    """An empty database for a block; it is dropped afterwards, and its connectors are deleted."""
    stack.up()  # the test before may have left a server dead
    created = new_mysql_database(stack, kind, made_as)
    try:
        created.catch_up()
        yield created
    finally:
        stack.up()
        delete_connectors(stack, created.name)
        created.root(
            f"DROP DATABASE {created.name}",
            f"REVOKE ALL PRIVILEGES ON {created.name}.* FROM {ADMIN}@'{HOST}'",
            *(f"REVOKE SELECT ON {created.name}.* FROM {r}@'{HOST}'" for r in (CAPTURE, SNAPSHOT)),
        )


def new_mysql_database(
    stack: LocalStack, kind: str, made_as: type[MysqlDatabase] = MysqlDatabase
) -> MysqlDatabase:
    """An empty database that the roles may use."""
    # Topics of another kind's database on the same stack are another's, too.
    created = made_as(stack, f"{kind}{os.getpid()}_{next(_NUMBERS)}", kind)
    created.root(
        f"CREATE DATABASE {created.name}",
        f"GRANT ALL PRIVILEGES ON {created.name}.* TO {ADMIN}@'{HOST}'",
        *(f"GRANT SELECT ON {created.name}.* TO {role}@'{HOST}'" for role in (CAPTURE, SNAPSHOT)),
    )
    return created


def delete_connectors(stack: LocalStack, name: str) -> None:
    """Delete the connectors whose topics are named after a source."""
    with connect_rest(stack) as connect:
        listed = connect.get("/connectors", params={"expand": "info"}).raise_for_status().json()
        for connector, found in listed.items():
            if f"{found['info']['config']['topic.prefix']}_".startswith(f"{name}_"):
                connect.delete(f"/connectors/{connector}").raise_for_status()


def kind_of(item: pytest.Item) -> str | None:
    """The kind of source among the parameters of a test, or None."""
    params = getattr(getattr(item, "callspec", None), "params", {}).values()
    return next((str(one) for one in params if one in (POSTGRES, *PRODUCTS)), None)


@pytest.fixture(scope="module")
def mysql_stack(request: pytest.FixtureRequest) -> Iterator[LocalStack]:
    """A stack for one test module, with the kinds of source that the module's tests need."""
    module = [item for item in request.session.items if item.path == request.path]
    asked = [kind_of(item) for item in module]
    kinds = [kind for kind in PRODUCTS if None in asked or kind in asked]
    with mysql_stack_of(request.config, kinds) as running:
        yield running


@pytest.fixture(params=[pytest.param(MYSQL, marks=pytest.mark.breadth), MARIADB])
def database(request: pytest.FixtureRequest, mysql_stack: LocalStack) -> Iterator[MysqlDatabase]:
    """A test's own database on MySQL or MariaDB; the test is skipped if the stack lacks it."""
    with own_mysql_database(mysql_stack, had(mysql_stack, request.param)) as created:
        yield created


def had(stack: LocalStack, kind: str) -> str:
    """Return the kind if the stack has it; else skip the test, and the report says why."""
    if kind not in stack.versions():
        pytest.skip(f"no {PRODUCTS[kind].title} on this machine; see the report's end")
    return kind


def capture(database: MysqlDatabase, table: str, **settings: str) -> str:
    """Let Debezium capture a table of the database; returns its topic."""
    stack, name, kind = database.stack, database.name, database.kind
    addresses = stack.addresses()
    package = {MYSQL: "mysql.MySqlConnector", MARIADB: "mariadb.MariaDbConnector"}[kind]
    config = {
        "connector.class": f"io.debezium.connector.{package}",
        "database.hostname": HOST,
        "database.port": str(addresses.ports[kind]),
        "database.user": CAPTURE,
        "database.password": f"${{directory:{stack.passwords.folder}:{CAPTURE}.password}}",
        "database.server.id": "4711",
        "topic.prefix": name,
        "table.include.list": f"{name}.{table}",
        "snapshot.mode": "initial",
        "snapshot.locking.mode": "none",
        "schema.history.internal.kafka.bootstrap.servers": addresses.kafka,
        "schema.history.internal.kafka.topic": f"{name}.history",
        "include.schema.changes": "false",
        "exactly.once.support": "required",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        **converters(stack),
        **settings,
    }
    with connect_rest(stack) as connect:
        connect.put(f"/connectors/{name}/config", json=config).raise_for_status()
    return f"{name}.{name}.{table}"


def empty_transaction(kind: str, gtid: str) -> tuple[str, ...]:
    """The statements that execute, in one session, a transaction without rows under this GTID."""
    if kind == MARIADB:
        domain, number, sequence = gtid.split("-")
        return (
            f"SET SESSION gtid_domain_id = {domain}, server_id = {number}",
            # In strict mode, it is compared with the numbers of the domain that is set by then.
            f"SET SESSION gtid_seq_no = {sequence}",
            "CREATE DATABASE IF NOT EXISTS tributary",
        )
    return (f"SET GTID_NEXT = '{gtid}'", "BEGIN", "COMMIT", "SET GTID_NEXT = 'AUTOMATIC'")
