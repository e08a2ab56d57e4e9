"""MySQL and MariaDB of the stack: a primary and a replica that follows it by GTID."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pymysql

from stack.errors import StackError
from stack.mysql_settings import (
    REPLICA_SETTINGS,
    ROLES,
    SETTINGS,
    SETTINGS_BY_KIND,
    SUPERUSER,
    roles_sql,
)
from stack.mysql_software import MARIADB, MYSQL, Installation
from stack.ports import HOST
from stack.process import Command
from stack.roles import REPLICATOR
from stack.secrets import Passwords, write_private
from stack.servers import Server
from stack.unprivileged import Unprivileged

_STEP_LIMIT_S = 300.0
_PROBE_LIMIT_S = 5.0
_CONNECT_LIMIT_S = 10

Row = tuple[Any, ...]


class MysqlServer:
    """What a primary and a replica have in common.

    Args:
        name: The server's name in the stack.
        data: Data directory.
        port: Port it listens on.
        server_id: Its number among the servers that replicate from each other.
        installation: The programs.
        user: Who runs it.
        passwords: Passwords of the roles.
    """

    stop_signal = signal.SIGTERM
    stop_limit_s = 60.0
    ready_limit_s = 180.0

    def __init__(
        self,
        name: str,
        *,
        data: Path,
        port: int,
        server_id: int,
        installation: Installation,
        user: Unprivileged,
        passwords: Passwords,
    ) -> None:
        self.name = name
        self.port = port
        self.folder = data
        self.program = installation.program
        self._server_id = server_id
        self._installation = installation
        self._kind = installation.kind
        self._user = user
        self._passwords = passwords

    def command(self) -> Command:
        """How to start it."""
        argv = (*self._user.prefix, *self._installation.command, f"--defaults-file={self._options}")
        return Command(argv, self.folder, self._installation.environment)

    def unhealthy(self) -> str | None:
        """Why it is not ready, or None when it is."""
        try:
            self.sql("SELECT 1", limit_s=_PROBE_LIMIT_S)
        except StackError as error:
            return error.message
        return None

    def sql(
        self, *statements: str, database: str | None = None, limit_s: float = _STEP_LIMIT_S
    ) -> list[Row]:
        """Run statements as the superuser, each in a transaction of its own.

        Args:
            statements: What to run.
            database: Where to run it.
            limit_s: How long each may take.

        Returns:
            The rows of the last one.

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

    def _make(self) -> None:
        """Make a data directory with one user, the superuser who comes over TCP."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self._user.own(self.folder)
        script = self.folder.parent / f".{self.name}-first.sql"
        write_private(script, self._first_statements())
        self._user.own(script)
        try:
            self._run(self._maker(script))
        finally:
            script.unlink()

    def _first_statements(self) -> str:
        password = self._passwords.get(SUPERUSER)
        # MariaDB makes its directories without grants, and refuses users until they are read.
        prelude = "FLUSH PRIVILEGES;\n" if self._kind == MARIADB else ""
        return (
            f"{prelude}RENAME USER '{SUPERUSER}'@'localhost' TO '{SUPERUSER}'@'{HOST}';\n"
            f"ALTER USER '{SUPERUSER}'@'{HOST}' IDENTIFIED BY '{password}';\n"
        )

    def _maker(self, script: Path) -> list[str]:
        """The command that makes a data directory, and runs the script in it."""
        places = [f"--{name}={path}" for name, path in self._installation.places.items()]
        if self._kind == MYSQL:
            return [
                *self._installation.command,
                *("--no-defaults", *places, f"--datadir={self.folder}"),
                *("--secure_file_priv=NULL", "--initialize-insecure", f"--init-file={script}"),
            ]
        prefix = self._installation.server.parent.parent
        programs = ("bin/mariadb-install-db", "scripts/mariadb-install-db")
        maker = next((path for name in programs if (path := prefix / name).exists()), None)
        if maker is None:
            raise StackError(
                f"{self._installation.title} in {prefix} lacks mariadb-install-db",
                remedy="Install the rest of MariaDB's server package.",
            )
        return [
            str(maker),
            *("--no-defaults", f"--basedir={prefix}", f"--datadir={self.folder}"),
            *("--auth-root-authentication-method=normal", "--skip-test-db"),
            *("--skip-name-resolve", f"--extra-file={script}"),
        ]

    def _run(self, argv: list[str]) -> None:
        answer = subprocess.run(  # noqa: S603 - an argument list of our own, no shell
            [*self._user.prefix, *argv],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=_STEP_LIMIT_S,
        )
        if answer.returncode != 0:
            said = (answer.stderr.strip() or answer.stdout.strip())[-2000:]
            raise StackError(
                f"{self.name}: its data directory cannot be made: {said}",
                remedy=f"Remove what it complains about, or use an empty --dir ({self.folder}).",
            )

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self._installation.environment}

    def _configure(self, extra: Mapping[str, str]) -> None:
        settings = {
            "bind_address": HOST,
            "port": str(self.port),
            # TCP only: a socket's path is limited to 107 bytes, and folders of tests are deep.
            "socket": "",
            "datadir": str(self.folder),
            "pid_file": "server.pid",
            "server_id": str(self._server_id),
            **{name: str(path) for name, path in self._installation.places.items()},
            **({"secure_file_priv": "NULL"} if self._kind == MYSQL else {}),
            **SETTINGS,
            **SETTINGS_BY_KIND[self._kind],
            **extra,
        }
        lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
        self._options.write_text(f"[mysqld]\n{lines}", "utf-8")
        self._user.own(self._options)

    @property
    def _options(self) -> Path:
        """Its option file; beside the data, since a data directory is made empty."""
        return self.folder.parent / f"{self.folder.name}.cnf"

    @property
    def _done(self) -> Path:
        """Marks a server whose first steps are all done; one that lacks it is made anew."""
        return self.folder.parent / f"{self.folder.name}.initialised"


class MysqlPrimary(MysqlServer):
    """The server that is captured."""

    def prepare(self) -> None:
        """Make its data directory when there is none, and write its option file."""
        if not self._done.exists():
            self._make()
        self._configure({})

    def initialise(self) -> None:
        """Create roles and database on a new server."""
        if self._done.exists():
            return
        passwords = {role: self._passwords.get(role) for role in ROLES}
        self.sql(*(text.format(**passwords) for text in roles_sql(self._kind, HOST)))
        self._done.touch()


class MysqlReplica(MysqlServer):
    """A replica: it has every transaction of the primary, under the primary's GTIDs."""

    def prepare(self) -> None:
        """Make its data directory when there is none, and write its option file."""
        if not self._done.exists():
            self._make()
        self._configure(REPLICA_SETTINGS[self._kind])

    def follow(self, primary: MysqlPrimary) -> None:
        """Let it replicate from the primary, from the primary's first transaction on."""
        if self._done.exists() and self._state().get("port") == str(primary.port):
            return
        password = self._passwords.get(REPLICATOR)
        if self._kind == MYSQL:
            statements = [
                "STOP REPLICA",
                f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='{HOST}', SOURCE_PORT={primary.port},"
                f" SOURCE_USER='{REPLICATOR}', SOURCE_PASSWORD='{password}',"
                " SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1,"
                # It tries for ever; newer servers would give up after some tries.
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
        self.sql(*statements)
        self._done.touch()

    def unhealthy(self) -> str | None:
        """Why it is not ready, or None when it answers and replicates."""
        if (problem := super().unhealthy()) or not self._done.exists():
            return problem
        try:
            state = self._state()
        except StackError as error:
            return error.message
        if not state:
            return "it is no replica any more"
        if state["io"] == state["sql"] == "Yes":
            return None
        reason = state["io_error"] or state["sql_error"] or "no error"
        return f"it does not replicate (receiver {state['io']}, applier {state['sql']}): {reason}"

    def _state(self) -> dict[str, str]:
        """What it says of its replication; empty when it has none."""
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
    """A primary with its replica.

    Args:
        folder: Takes both data directories.
        ports: Ports of primary and replica.
        installation: The programs.
        user: Who runs them.
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
            kind, data=folder / "primary", port=ports[0], server_id=1, **common
        )
        self.replica = MysqlReplica(
            f"{kind}_replica", data=folder / "replica", port=ports[1], server_id=2, **common
        )

    def start(self, ensure: Callable[[Server], None]) -> None:
        """Start both, the replica after what it copies.

        Args:
            ensure: Starts a server unless it runs, and waits until it is ready.
        """
        self.primary.prepare()
        ensure(self.primary)
        self.primary.initialise()
        self.replica.prepare()
        ensure(self.replica)
        self.replica.follow(self.primary)
        ensure(self.replica)
