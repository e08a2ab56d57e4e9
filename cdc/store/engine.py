"""Opens the state store's database, so that writers wait for each other instead of failing."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from stat import S_ISREG
from typing import Any
from urllib.parse import unquote

import sqlalchemy as sa
import stamina
from sqlalchemy.engine import URL, Connection, Engine, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError

from cdc.config.value_types import is_sensitive
from cdc.errors import StateError
from cdc.store.timeouts import Connection as BoundedConnection
from cdc.store.timeouts import (
    connect_args,
    idle_limit_of_session,
    idle_limit_of_transaction,
    takes_no_writes,
)
from schemas.redaction import keep_secret

BUSY_TIMEOUT_S = 30
"""Bound of a statement's wait for another writer of a SQLite store, in seconds."""


LEAST_KEPT = 5
"""Minimum number of idle connections that stay open. A command without workers has this number."""
_BESIDE_WORKERS = 10
"""Number of connections for the main thread, watchers and scrapes, besides two for each worker."""


def _pool_sizes(threads: int) -> dict[str, int]:
    """Return pool sizes with which no worker waits for another worker's state store connection.

    A worker has one connection, and the thread that renews its lease has another one. Connections
    are opened when they are needed, so a large pool costs nothing.

    Args:
        threads: Number of workers.
    """
    return {"pool_size": max(LEAST_KEPT, threads), "max_overflow": threads + _BESIDE_WORKERS}


def open_engine(url: str, threads: int = LEAST_KEPT) -> Engine:
    """Return an engine for the state store's SQLAlchemy URL.

    The engine does not connect yet.

    Args:
        url: The URL.
        threads: Number of workers of this process that use the store at the same time.

    Raises:
        StateError: ``url`` is not a URL; the URL's driver is missing; or, for SQLite, the file or
            the file's folder cannot be created.
    """
    try:
        parsed = _parsed_url(url)
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() == "sqlite":
            return _sqlite_engine(parsed, threads)
        # In InnoDB's default isolation level, all processes that look for a missing lease lock its
        # place, and then each waits for the others before it can insert the lease.
        engine = sa.create_engine(
            parsed,
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args=connect_args(parsed),
            **_pool_sizes(threads),
        )
    except (ArgumentError, ImportError, ValueError) as error:
        # The library's own text can repeat the URL, which includes the password.
        reason = f"no driver: {error}" if isinstance(error, ImportError) else "it is not a URL"
        raise StateError(
            f"state.url cannot be used: {reason}",
            remedy="Give a SQLAlchemy URL, such as sqlite:///state.db or "
            "postgresql+psycopg://user:${PASSWORD}@host/database, and install its driver; in a"
            " password, @ is written %40.",
            field="state.url",
        ) from None
    if parsed.get_backend_name() in ("mysql", "mariadb"):
        sa.event.listen(engine, "connect", _set_session_to_utc)
    if engine.driver == "psycopg":
        sa.event.listen(engine, "do_connect", _bound_new_connection)
    if (statement := idle_limit_of_session(parsed)) is not None:
        sa.event.listen(engine, "connect", _session_listener(statement))
    if (statement := idle_limit_of_transaction(parsed)) is not None:
        sa.event.listen(engine, "begin", _transaction_listener(statement))
    sa.event.listen(engine, "handle_error", _drop_read_only_connections)
    return engine


def _bound_new_connection(_dialect: object, _record: object, places: Any, named: Any) -> Any:
    """Connect to the state store's PostgreSQL server, with a time limit for each answer."""
    return BoundedConnection.connect(*places, **named)


def _session_listener(statement: str) -> Callable[[Any, object], None]:
    """Return a listener that executes SQL in each new session of the state store."""

    def run(connection: Any, _record: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    return run


def _transaction_listener(statement: str) -> Callable[[Connection], None]:
    """Return a listener that executes SQL at the beginning of each state store transaction."""

    def run(connection: Connection) -> None:
        connection.exec_driver_sql(statement)

    return run


def _drop_read_only_connections(failed: ExceptionContext) -> None:
    """Drop the state store's pooled connections if a read-only server refused a statement.

    Such a server passes the pool's check of idle connections, so the pool would use connections
    to this server again and again. New connections reach the server to which the host's name now
    resolves.
    """
    if takes_no_writes(failed.original_exception):
        failed.is_disconnect = True


def _set_session_to_utc(connection: Any, _record: object) -> None:
    """Set a state store session's time zone to UTC, in which no hour ever repeats."""
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")


def shown(url: URL) -> str:
    """Return the state store's URL for messages, without the password and other possible secrets.

    The only query parameters that stay are host and port. Any other parameter can be a secret: only
    the driver knows what it means.
    """
    place = {name: value for name, value in url.query.items() if name in ("host", "port")}
    # The library does not render this part, since it would write a path as %2Fvar%2Frun.
    bare = url.set(query={}).render_as_string(hide_password=True)
    parameters = "&".join(f"{name}={value}" for name, value in place.items())
    return f"{bare}?{parameters}" if parameters else bare


def _parsed_url(text: str) -> URL:
    """Return the state store's parsed URL; register its secrets, so that no error shows them."""
    url = make_url(text)
    named = [url.normalized_query[name] for name in url.query if is_sensitive(name)]
    for secret in (str(url.password or ""), *(value for values in named for value in values)):
        keep_secret(secret)
    if "@" in (url.host or ""):
        raise ValueError("what follows an @ in the password is taken for the host")
    return url


def exposed_file(url: URL) -> Path | None:
    """Return a SQLite state store's file if other users may access it, and otherwise None."""
    file = _sqlite_file(url)
    return file if file is not None and file.exists() and _open_to_others(file) else None


def _sqlite_file(url: URL) -> Path | None:
    """Return the file of a SQLite state store; None for a server or a store in memory."""
    name = url.database or ""
    if name.startswith("file:"):
        name = unquote(name.removeprefix("file:"))
    in_memory = name in ("", ":memory:") or url.query.get("mode") == "memory"
    return None if in_memory or url.get_backend_name() != "sqlite" else Path(name)


def _open_to_others(file: Path) -> bool:
    """Whether the mode of the state store's file gives its group or other users any access."""
    return bool(file.stat().st_mode & 0o077)


def _close_to_others(file: Path) -> None:
    """Let no user but the owner access the state store's file; create it if it is missing.

    The file can hold whole messages, in the quarantine.

    SQLite gives the same permissions to its other files beside this file.

    Raises:
        OSError: The folder or the file cannot be created.
    """
    if not file.parent.is_dir():
        file.parent.parent.mkdir(parents=True, exist_ok=True)
        file.parent.mkdir(mode=0o700, exist_ok=True)
    if not file.exists():
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    for path in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
        with contextlib.suppress(FileNotFoundError):  # its last user has just removed it
            found = path.stat()
            ours = S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if ours and _open_to_others(path):
                path.chmod(0o600)


def _is_locked(error: Exception) -> bool:
    """Whether an error means that another connection locks the state store's SQLite file."""
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def _sqlite_engine(url: URL, threads: int) -> Engine:
    """Return a SQLite state store's engine; create its file, closed to other users."""
    if (file := _sqlite_file(url)) is not None:
        try:
            _close_to_others(file)
        except OSError as error:
            raise StateError(
                f"the state store {file} cannot be created: {error.strerror}",
                remedy="Name a file in a folder that you can write as state.url.",
                field="state.url",
            ) from None
    # A store in memory has one connection for each thread, without a limit.
    sizes = {} if file is None else _pool_sizes(threads)
    engine = sa.create_engine(
        url, connect_args={"timeout": BUSY_TIMEOUT_S}, hide_parameters=True, **sizes
    )

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        # The listener below begins transactions; the driver must not begin its own.
        connection.isolation_level = None
        # SQLite's busy timeout does not wait for a process that makes the file's tables meanwhile.
        for attempt in stamina.retry_context(
            on=_is_locked, attempts=None, timeout=BUSY_TIMEOUT_S, wait_initial=0.02, wait_max=0.5
        ):
            with attempt:
                connection.execute("PRAGMA journal_mode = WAL").close()
        for pragma in ("synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that first reads and then writes fails at once if another has written since,
        # in spite of the busy timeout. A transaction that begins as a writer waits for its turn.
        # Source: https://www.sqlite.org/lang_transaction.html
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine
