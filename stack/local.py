"""Starts, stops and describes a whole stack, whose data is in one folder."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from cdc.runtime.jars import Report
from stack.artifacts import fetch_software
from stack.errors import StackError
from stack.layout import (
    KINDS,
    METASTORE,
    NEEDED,
    OPTIONAL,
    PAIRS,
    S3,
    SECRETS,
    SHARED,
    TRINO,
    Layout,
    Record,
    layout,
)
from stack.mysql import MysqlServer, Row
from stack.mysql_settings import write_option_file
from stack.mysql_software import Installation, find_installation
from stack.object_store import ACCESS_KEY, ObjectStore
from stack.ports import HOST, choose
from stack.postgres import POSTGRES, ROLES, find_binaries
from stack.process import ServerProcess
from stack.project import Addresses, project_text
from stack.roles import DATABASE
from stack.secrets import PGPASS, Passwords, private_folder
from stack.servers import Prepared, RunningServer, Server, ServerStatus, status_of, wait_ready
from stack.trino_software import fetch_trino

DEFAULT_FOLDER = Path(".tributary/stack")
_LOCK_LIMIT_S = 600.0


class LocalStack:
    """A stack in one folder: Kafka, Connect, a schema registry, and databases with their replicas.

    As a context manager, this class starts the stack before the block and stops it after the block.

    Args:
        folder: Holds all data, logs and secrets.
        cache: Cache of downloads; by default the cache of ``cdc.runtime.jars``.
        report: Receives lines of progress, unless a method is called with its own ``report``.
    """

    def __init__(
        self, folder: Path, *, cache: Path | None = None, report: Report | None = None
    ) -> None:
        self.folder = folder.resolve()
        self._cache = cache
        self._report: Report = report or _silent
        self.passwords = Passwords(self.folder / SECRETS)
        self._pgpass = self.passwords.folder / PGPASS

    def __enter__(self) -> LocalStack:
        try:
            self.up(self._report)
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.down()

    def up(
        self,
        report: Report | None = None,
        *,
        sources: Collection[str] = (),
        optional: Collection[str] = (),
    ) -> list[ServerStatus]:
        """Start the stack's servers that do not run, and wait until all servers are ready.

        Args:
            report: Receives lines of progress.
            sources: Kinds of source to add, from ``KINDS``. A new stack gets PostgreSQL if no kind
                is given. An existing stack keeps the kinds that it has.
            optional: Servers of ``OPTIONAL`` to add, together with the servers that they need.
                Every later start starts these servers, too.

        Returns:
            The status of each server.

        Raises:
            ServerDiedError: A server ended or did not become ready. The message has the end of the
                server's log.
            StackError: The stack cannot be started.
        """
        report = report or self._report
        optional = {one for name in optional for one in (name, *NEEDED.get(name, ()))}
        if unknown := sorted(set(sources) - set(KINDS)):
            raise StackError(
                f"unknown kinds of source: {', '.join(unknown)}",
                remedy=f"Name one or more of {', '.join(KINDS)}.",
            )
        with self._locked():
            before = self.status()
            had = Record.read(self.folder).kinds if before else ()
            wanted = {*had, *sources} or {POSTGRES}
            kinds = [kind for kind in KINDS if kind in wanted]
            lacking = optional - {server.name for server in before}
            fine = all(server.state == "healthy" for server in before)
            if before and fine and not lacking and len(kinds) == len(had):
                report(f"the stack in {self.folder} is already up")
                return before
            # Done first: a machine without Java, a network or one of these databases then fails
            # before anything is created.
            fetch_software(kinds, self._cache, report)
            if TRINO in lacking:
                fetch_trino(self._cache, report)
            installations = {
                kind: find_installation(kind, cache=self._cache, report=report)
                for kind in kinds
                if kind not in (*had, POSTGRES)
            }
            self._create(report, kinds, installations, optional)
            if before and len(kinds) > len(had):
                # Connect finds new connectors only at its start. It continues from its position.
                self.server("connect").stop()
            if S3 in lacking:
                self._stop_readers(before)
            self._start_all(report)
            return self.status()

    def down(self, *, delete: bool = False, report: Report | None = None) -> None:
        """Stop every server of the stack, with all of its processes.

        Args:
            delete: Whether to remove all data, logs and secrets, too.
            report: Receives lines of progress.
        """
        report = report or self._report
        if self._exists():
            with self._locked():
                layout = self._layout()
                # Clients end before the servers that they need, so that they end without errors.
                groups: tuple[tuple[Server, ...], ...] = (
                    (layout.connect, layout.registry, *layout.optional),
                    (*(pair.replica for pair in layout.pairs), layout.kafka),
                    tuple(pair.primary for pair in layout.pairs),
                )
                for group in groups:
                    with ThreadPoolExecutor(len(group)) as pool:
                        list(pool.map(lambda server: self._end(server, delete, report), group))
        if delete:
            shutil.rmtree(self.folder, ignore_errors=True)

    def status(self) -> list[ServerStatus]:
        """Return the status of each server; empty if there is no stack in the folder."""
        if not self._exists():
            return []
        servers = self._layout().servers
        with ThreadPoolExecutor(len(servers)) as pool:
            return list(pool.map(lambda server: status_of(server, self._process(server)), servers))

    def env(self) -> dict[str, str]:
        """Return the environment variables of ``stack env``; no value contains a password."""
        return self.addresses().env()

    def addresses(self, database: str = DATABASE) -> Addresses:
        """Return the addresses of this stack's servers.

        Args:
            database: The database that is captured.

        Raises:
            StackError: There is no stack in the folder.
        """
        record = Record.read(self.folder)
        return Addresses(record.ports, database, self.passwords, record.kinds)

    def config_text(
        self,
        *,
        source: str = DATABASE,
        database: str = DATABASE,
        folder: Path | None = None,
        kinds: Collection[str] = KINDS,
    ) -> str:
        """Return a ``tributary.yaml`` for this stack.

        Args:
            source: Name of the PostgreSQL source. The name of a source of another kind is this name
                followed by the kind, for example ``shop_mysql``.
            database: The database that is captured.
            folder: Folder of the lake and the state store; by default the stack's folder.
            kinds: Kinds of source to include; by default all that the stack has.
        """
        addresses = self.addresses(database)
        wanted = tuple(kind for kind in addresses.kinds if kind in kinds)
        return project_text(replace(addresses, kinds=wanted), folder or self.folder, source)

    def versions(self) -> dict[str, str]:
        """Return the versions of the stack's databases, as a mapping from the kind of database."""
        record = Record.read(self.folder)
        found = {} if record.binaries is None else {POSTGRES: record.binaries.version}
        return found | {kind: one.version for kind, one in record.installations.items()}

    def server(self, name: str) -> RunningServer:
        """Return a handle on one server of the stack.

        Args:
            name: The server's name in ``status``, for example ``primary`` or ``mariadb_replica``.

        Raises:
            StackError: There is no such server.
        """
        servers = {server.name: server for server in self._layout().servers}
        if name not in servers:
            raise StackError(
                f"the stack has no server {name!r}",
                remedy=f"Name one of {', '.join(servers)}.",
            )
        return RunningServer(servers[name], self._process(servers[name]))

    def psql(self, sql: str, *, database: str = DATABASE, replica: bool = False) -> str:
        """Run SQL as superuser of the stack's PostgreSQL.

        The logins that Tributary uses have fewer rights.

        Args:
            sql: The statements.
            database: The database to run the statements in.
            replica: Whether to run the statements on the replica and not on the primary.

        Returns:
            The output of psql, with one row per line and ``|`` between columns.
        """
        pair = self._layout().postgres
        if pair is None:
            raise self._lacks(POSTGRES)
        return (pair.replica if replica else pair.primary).psql(sql, database=database)

    def mysql(
        self, kind: str, *statements: str, database: str | None = None, replica: bool = False
    ) -> list[Row]:
        """Run statements as superuser of the stack's MySQL or MariaDB, each in its own transaction.

        Args:
            kind: ``mysql`` or ``mariadb``.
            statements: The statements.
            database: The database to run the statements in.
            replica: Whether to run the statements on the replica and not on the primary.

        Returns:
            The rows of the last statement.
        """
        pair = self._layout().mysql.get(kind)
        if pair is None:
            raise self._lacks(kind)
        server: MysqlServer = pair.replica if replica else pair.primary
        return server.sql(*statements, database=database)

    def write_config(self, path: Path) -> bool:
        """Write a ``tributary.yaml`` for this stack unless the file exists.

        Returns:
            Whether the file was written.
        """
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(self.config_text())
        except FileExistsError:
            return False
        return True

    def remove_config(self, path: Path) -> bool:
        """Remove a ``tributary.yaml`` if the stack wrote it and nobody has edited it.

        Returns:
            Whether the file was removed.
        """
        wrote = self.wrote(path)
        if wrote:
            path.unlink()
        return wrote

    def wrote(self, path: Path) -> bool:
        """Whether the stack exists and the file has exactly the text that the stack would write."""
        return self._exists() and path.is_file() and path.read_text("utf-8") == self.config_text()

    def _start_all(self, report: Report) -> None:
        """Start all servers of the stack in parallel, each as early as possible."""
        layout = self._layout()
        abort = threading.Event()

        def ensure(server: Server) -> None:
            """Start the server unless it runs, and wait until it is ready."""
            process = self._process(server)
            if process.find() is None:
                process.start(server.command())
            wait_ready(server, process, report, abort)

        def prepared(server: Prepared) -> None:
            if self._process(server).find() is None:
                server.prepare()
            ensure(server)
            if isinstance(server, ObjectStore):
                server.create_bucket()

        def end(server: Server) -> None:
            self._process(server).kill()

        # Connect waits for Kafka by itself.
        tasks: list[Callable[[], None]]
        tasks = [partial(pair.start, ensure, end) for pair in layout.pairs]
        tasks += [partial(prepared, server) for server in (layout.kafka, layout.connect)]
        tasks.append(partial(prepared, layout.registry))
        tasks += [partial(prepared, server) for server in layout.optional]
        with ThreadPoolExecutor(len(tasks)) as pool:
            started = [pool.submit(task) for task in tasks]
            try:
                done, _ = wait(started, return_when=FIRST_EXCEPTION)
            finally:
                # After an error or an interrupt, the other waits would only delay the command.
                abort.set()
        for future in (*done, *started):
            future.result()

    def _end(self, server: Server, delete: bool, report: Report) -> None:
        process = self._process(server)
        running = process.find() is not None
        if delete:
            process.kill()
        else:
            process.stop(server.stop_signal, server.stop_limit_s)
        if running:
            report(f"{server.name} stopped")

    def _process(self, server: Server) -> ServerProcess:
        return ServerProcess(
            server.name,
            program=server.program,
            folder=server.folder,
            record=self.folder / "run" / f"{server.name}.json",
            log=self.folder / "logs" / f"{server.name}.log",
        )

    def _create(
        self,
        report: Report,
        kinds: Sequence[str],
        installations: Mapping[str, Installation],
        optional: Collection[str],
    ) -> None:
        """Create the folders and logins of the servers, choose the ports, and write the record."""
        for name in kinds:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for name in ("run", "logs", SECRETS):
            private_folder(self.folder / name)
        kept = Record.read(self.folder) if self._exists() else Record({})
        binaries = kept.binaries
        if binaries is None and POSTGRES in kinds:
            binaries = find_binaries()
        others = [name for name in OPTIONAL if name in optional or name in kept.ports]
        names = (*(name for kind in kinds for name in PAIRS[kind]), *SHARED, *others)
        ports = choose(names, kept.ports, held=self._held(kept.ports))
        for name, port in kept.ports.items():
            if ports[name] != port:
                report(f"port {port} is in use, so {name} gets port {ports[name]}")
        Record(ports, binaries, {**kept.installations, **installations}).write(self.folder)
        if S3 in ports:
            self.passwords.get(ACCESS_KEY)  # the configuration names its file
        for pair in self._layout().pairs:
            pair.user.own(pair.folder)
        if POSTGRES in kinds:
            self.passwords.write_pgpass(self._pgpass, ROLES, host=HOST)
        for kind in installations.keys() | kept.installations.keys():
            write_option_file(kind, ports, self.passwords)

    def _stop_readers(self, servers: Sequence[ServerStatus]) -> None:
        """Stop metastore and Trino; they read how to reach the lake only when they start."""
        for name in {METASTORE, TRINO} & {server.name for server in servers}:
            self.server(name).stop()

    def _lacks(self, kind: str) -> StackError:
        """Return the error for a kind of source that the stack does not have."""
        return StackError(
            f"the stack in {self.folder} has no {kind}",
            remedy=f"Run `tributary stack up --source {kind}`.",
        )

    def _held(self, kept: Mapping[str, int]) -> set[int]:
        """Return the recorded ports on which running servers of this stack listen."""
        if not kept:
            return set()
        held = {s.port for s in self._layout().servers if self._process(s).find() is not None}
        return held | ({kept["kafka_controller"]} if kept["kafka"] in held else set())

    def _exists(self) -> bool:
        return Record.file(self.folder).exists()

    def _layout(self) -> Layout:
        record = Record.read(self.folder)
        return layout(
            self.folder,
            record,
            lambda: fetch_software(record.kinds, self._cache, self._report),
            lambda: fetch_trino(self._cache, self._report),
        )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the stack's lock during a block, since `up` and `down` must not overlap."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.folder / "stack.lock", timeout=_LOCK_LIMIT_S):
                yield
        except Timeout as error:
            raise StackError(
                f"another command has held the lock of {self.folder} for {_LOCK_LIMIT_S:.0f} s",
                remedy="Wait for that command or end it, then run again.",
            ) from error


def _silent(_line: str) -> None:
    """Ignore the stack's progress, for callers that pass no reporter."""
