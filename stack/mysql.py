"""MySQL and MariaDB of the stack, each a primary and a replica that follows it by GTID."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pymysql

from stack.errors import StackError
from stack.mysql_data import DataDirectory, Instance
from stack.mysql_settings import REPLICA_SETTINGS, ROLES, SUPERUSER, roles_sql
from stack.mysql_software import MYSQL, Installation
from stack.ports import HOST
from stack.process import Command
from stack.roles import REPLICATOR
from stack.secrets import Passwords
from stack.servers import Server
from stack.unprivileged import Unprivileged

_STEP_LIMIT_S = 300.0
_PROBE_LIMIT_S = 5.0
_CONNECT_LIMIT_S = 10

Row = tuple[Any, ...]


class MysqlServer:
    """The common parts of the stack's primary and replica of MySQL or MariaDB.

    Args:
        instance: The server.
        installation: The programs.
        user: The user that runs the server.
        passwords: Passwords of the roles.
    """

    stop_signal = signal.SIGTERM
    stop_limit_s = 60.0
    ready_limit_s = 180.0

    def __init__(
        self,
        instance: Instance,
        *,
        installation: Installation,
        user: Unprivileged,
        passwords: Passwords,
    ) -> None:
        self.name = instance.name
        self.port = instance.port
        self.folder = instance.folder
        self.program = installation.program
        self.data = DataDirectory(
            instance, installation=installation, user=user, passwords=passwords
        )
        self._installation = installation
        self._kind = installation.kind
        self._user = user
        self._passwords = passwords

    def command(self) -> Command:
        """The command that starts the stack's MySQL or MariaDB."""
        argv = (
            *self._user.prefix,
            *self._installation.command,
            f"--defaults-file={self.data.options}",
        )
        if self.data.unfinished:
            argv = (*argv, f"--init-file={self.data.first}")
        return Command(argv, self.folder, self._installation.environment)

    def unhealthy(self) -> str | None:
        """The reason why the stack's MySQL or MariaDB is not ready; None when it is ready."""
        try:
            self.sql("SELECT 1", limit_s=_PROBE_LIMIT_S)
        except StackError as error:
            return error.message
        return None

    def sql(
        self, *statements: str, database: str | None = None, limit_s: float = _STEP_LIMIT_S
    ) -> list[Row]:
        """Run statements as superuser of the stack's MySQL or MariaDB, each in its own transaction.

        Args:
            statements: The statements.
            database: The database to run the statements in.
            limit_s: Bound of each statement, in seconds.

        Returns:
            The rows of the last statement.

        Raises:
            StackError: A statement failed or took too long.
        """
        rows, _ = self._sql(statements, database, limit_s)
        return rows

    def _sql(
        self, statements: Iterable[str], database: str | None, limit_s: float
    ) -> tuple[list[Row], list[str]]:
        rows: list[Row] = []
        names: list[str] = []
        try:
            with (
                pymysql.connect(
                    host=HOST,
                    port=self.port,
                    user=SUPERUSER,
                    password=self._passwords.get(SUPERUSER),
                    database=database,
                    autocommit=True,
                    connect_timeout=_CONNECT_LIMIT_S,
                    read_timeout=limit_s,
                    write_timeout=limit_s,
                ) as connection,
                connection.cursor() as cursor,
            ):
                for statement in statements:
                    cursor.execute(statement)
                    rows = list(cursor.fetchall())
                    names = [column[0] for column in cursor.description or ()]
        except pymysql.MySQLError as error:
            raise StackError(
                f"{self.name}: {error.args[-1] if error.args else error}",
                remedy="Look at the server's log, or try the statement with a client.",
            ) from None
        return rows, names


class MysqlPrimary(MysqlServer):
    """The stack's primary of MySQL or MariaDB, whose changes are captured."""

    def prepare(self) -> None:
        """Write the option file of the stack's MySQL primary.

        Also create the data directory, unless a complete one exists.
        """
        if self.data.unfinished:
            self.data.make()
        self.data.configure({})

    def initialise(self) -> None:
        """Create the roles and the database on a new MySQL or MariaDB server of the stack."""
        if not self.data.unfinished:
            return
        passwords = {role: self._passwords.get(role) for role in ROLES}
        self.sql(*(text.format(**passwords) for text in roles_sql(self._kind, HOST)))
        self.data.finish()


class MysqlReplica(MysqlServer):
    """The stack's replica of MySQL or MariaDB, whose transactions have the primary's GTIDs."""

    joining = False
    """Whether the replica is being created and does not follow a primary yet."""

    def prepare(self) -> None:
        """Write the option file of the stack's MySQL replica.

        Also create the data directory, unless a complete one exists.
        """
        if self.data.unfinished:
            self.data.make()
            # A read-only server could not run its first statements.
            self.data.configure({})
        else:
            self.data.configure(REPLICA_SETTINGS[self._kind])

    def follow(self, primary: MysqlPrimary) -> None:
        """Let the stack's MySQL replica follow the primary, unless the replica already does."""
        if not self.data.unfinished and self._state().get("port") == str(primary.port):
            return
        password = self._passwords.get(REPLICATOR)
        if self._kind == MYSQL:
            statements = [
                "STOP REPLICA",
                f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='{HOST}', SOURCE_PORT={primary.port},"
                f" SOURCE_USER='{REPLICATOR}', SOURCE_PASSWORD='{password}',"
                " SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1,"
                # With 0, the replica tries for ever. By default, newer servers give up.
                " SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=0",
                "START REPLICA",
            ]
        else:
            statements = [
                "STOP SLAVE",
                f"CHANGE MASTER TO MASTER_HOST='{HOST}', MASTER_PORT={primary.port},"
                f" MASTER_USER='{REPLICATOR}', MASTER_PASSWORD='{password}',"
                " MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1",
                "START SLAVE",
            ]
        only = REPLICA_SETTINGS[self._kind]
        self.sql(*statements, *(f"SET GLOBAL {name} = {value}" for name, value in only.items()))
        self.data.configure(only)
        self.data.finish()

    def unhealthy(self) -> str | None:
        """Return why the stack's MySQL replica is not ready; None if it answers and replicates."""
        if (problem := super().unhealthy()) or self.joining or self.data.unfinished:
            return problem
        try:
            state = self._state()
        except StackError as error:
            return error.message
        if not state:
            return "it is no longer a replica"
        if state["io"] == state["sql"] == "Yes":
            return None
        reason = state["io_error"] or state["sql_error"] or "no error"
        return f"it does not replicate (receiver {state['io']}, applier {state['sql']}): {reason}"

    def _state(self) -> dict[str, str]:
        """Return the status of the replication; empty if the server does not replicate.

        The keys are ``port`` (the primary's), ``io`` and ``sql`` (the states of the two threads),
        and ``io_error`` and ``sql_error``.
        """
        new = self._kind == MYSQL
        statement = "SHOW REPLICA STATUS" if new else "SHOW SLAVE STATUS"
        rows, names = self._sql([statement], None, _PROBE_LIMIT_S)
        if not rows:
            return {}
        row = dict(zip(names, map(str, rows[0]), strict=True))
        side, part = ("Source", "Replica") if new else ("Master", "Slave")
        return {
            "port": row[f"{side}_Port"],
            "io": row[f"{part}_IO_Running"],
            "sql": row[f"{part}_SQL_Running"],
            "io_error": row["Last_IO_Error"],
            "sql_error": row["Last_SQL_Error"],
        }


class MysqlPair:
    """The stack's primary of MySQL or MariaDB with its replica.

    Args:
        folder: Holds both data directories.
        ports: Ports of primary and replica.
        installation: The programs.
        user: The user that runs both servers.
        passwords: Passwords of the roles.
    """

    def __init__(
        self,
        *,
        folder: Path,
        ports: tuple[int, int],
        installation: Installation,
        user: Unprivileged,
        passwords: Passwords,
    ) -> None:
        self.folder = folder
        self.user = user
        kind = installation.kind
        common: dict[str, Any] = {
            "installation": installation,
            "user": user,
            "passwords": passwords,
        }
        self.primary = MysqlPrimary(
            Instance(kind, folder / "primary", ports[0], server_id=1), **common
        )
        self.replica = MysqlReplica(
            Instance(f"{kind}_replica", folder / "replica", ports[1], server_id=2), **common
        )

    def start(self, ensure: Callable[[Server], None], end: Callable[[Server], None]) -> None:
        """Start the stack's MySQL primary, and then the replica that follows it.

        Args:
            ensure: Starts a server unless it runs, and waits until the server is ready.
            end: Ends a server if it runs.
        """
        for server in (self.primary, self.replica):
            if server.data.unfinished:
                end(server)
        self.primary.prepare()
        ensure(self.primary)
        self.primary.initialise()
        self.replica.prepare()
        self.replica.joining = True
        ensure(self.replica)
        self.replica.follow(self.primary)
        self.replica.joining = False
        ensure(self.replica)
