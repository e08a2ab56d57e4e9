"""Sessions on a source for the demo, with the same interface for every kind of source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from cdc.config import MysqlSourceConfig, PostgresSourceConfig, SourceConfig
from cdc.sources.mysql import connection as mysql
from cdc.sources.postgres import connection as postgres


class AdminSession(Protocol):
    """A demo's session of the login ``admin`` on the primary, in autocommit mode."""

    def run(self, statement: str, values: Mapping[str, int] | None = None) -> None:
        """Run a statement of the demo.

        Args:
            statement: The statement.
            values: The values of the parameters ``%(name)s``. If there are values, a literal
                percent sign in the statement must be doubled.
        """

    def first(self, query: str) -> Sequence[object] | None:
        """Return the first row of a demo's query; None if there is no row."""

    def transaction(self) -> AbstractContextManager[object]:
        """Return a context manager for a demo's transaction, which an error rolls back."""


Sessions = Callable[[], AbstractContextManager[AdminSession]]
"""Opens a session for a ``with`` block; raises `cdc.errors.SourceError` if the source fails."""


def sessions(source: str, config: SourceConfig) -> Sessions:
    """Return a function that opens the demo's sessions on a source, from any thread.

    Args:
        source: Key of the source in the configuration.
        config: The source's configuration.
    """
    if isinstance(config, PostgresSourceConfig):
        return _sessions_on_postgres(postgres.Connections(source, config))
    return _sessions_on_mysql(source, config)


def _sessions_on_postgres(connections: postgres.Connections) -> Sessions:
    """Return a function that opens the demo's sessions on PostgreSQL."""

    @contextmanager
    def opened() -> Iterator[AdminSession]:
        with connections.open("admin") as session:
            yield _PostgresSession(session)

    return opened


class _PostgresSession:
    def __init__(self, session: postgres.Session) -> None:
        self._session = session

    def run(self, statement: str, values: Mapping[str, int] | None = None) -> None:
        self._session.execute(statement.encode(), values)

    def first(self, query: str) -> Sequence[object] | None:
        return self._session.execute(query.encode()).fetchone()

    def transaction(self) -> AbstractContextManager[object]:
        return self._session.transaction()


def _sessions_on_mysql(source: str, config: MysqlSourceConfig) -> Sessions:
    """Return a function that opens the demo's sessions on MySQL or MariaDB."""
    connections = mysql.Connections(source, config)

    @contextmanager
    def opened() -> Iterator[AdminSession]:
        with connections.open("admin") as session:
            # At the default level, a DELETE that finds no row blocks inserts of nearby keys.
            session.rows("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            yield _MysqlSession(session)

    return opened


class _MysqlSession:
    def __init__(self, session: mysql.Session) -> None:
        self._session = session

    def run(self, statement: str, values: Mapping[str, int] | None = None) -> None:
        # This driver takes values only by position. They are numbers, which need no quotes.
        self._session.rows(statement if values is None else statement % values)

    def first(self, query: str) -> Sequence[object] | None:
        return next(iter(self._session.rows(query)), None)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._session.rows("START TRANSACTION")
        yield
        # After an error the session is closed, which rolls back.
        self._session.rows("COMMIT")
