"""Ends the sessions of an exact view if the replica's replication waits for them.

A session holds a metadata lock on the table that it reads, until its transaction ends. A statement
such as ALTER TABLE, which the replica's applier executes, waits for this lock, and all later
transactions wait behind the statement. The sessions of an exact view can read for hours.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pymysql
from pymysql.constants import ER

from cdc.errors import SnapshotLostError, SourceError
from cdc.sources.mysql.connection import Connections, Session, quoted
from cdc.sources.mysql.lock_gate import Gate
from schemas.errors import TributaryError
from schemas.table import TableId

WATCH_S = 20.0
"""Seconds between two checks of the replica.

If two checks in a row find that replication waits, the sessions are ended.
"""

_END_S = 60.0
_PROBE_S = 1.0
_SHOWN = 200
_UNKNOWN = "a statement that changes the table, such as ALTER TABLE"

_log = logging.getLogger(__name__)


class LockWatch(threading.Thread):
    """A thread that checks whether replication waits for an exact view's sessions.

    Args:
        connections: The source's servers.
        gate: The gate at which the sessions opened the view.
        table: The table that the sessions read.
        spoil: Called before the sessions are ended, with the error that explains their end.
    """

    def __init__(
        self,
        connections: Connections,
        gate: Gate,
        table: TableId,
        spoil: Callable[[TributaryError], None],
    ) -> None:
        super().__init__(name="tributary-watch-locks", daemon=True)
        self._connections = connections
        self._gate = gate
        self._table = table
        self._spoil = spoil
        self._ended = threading.Event()

    def end(self) -> None:
        """End the checks of the MySQL or MariaDB replica."""
        self._ended.set()
        self.join(_END_S)

    def run(self) -> None:
        """Check the MySQL or MariaDB replica until `end` is called or the sessions are ended."""
        waited, level = False, logging.WARNING
        while not self._ended.wait(WATCH_S):
            try:
                statement = self._waiting()
                if waited and statement is not None and self._end_sessions(statement):
                    return
                waited = statement is not None
            except SourceError as error:
                what = "cannot see whether replication of the %s waits for a copy of %s: %s"
                _log.log(level, what, self._where, self._table, error)
                level = logging.DEBUG

    def _waiting(self) -> str | None:
        """Return the replicated statement that waits for the sessions that read the table.

        The result is None if replication does not wait, or waits for another table. To find out, a
        query of this table is tried: the query has to wait behind a statement that waits for the
        table's lock. If the server does not show the statement, the result is a general
        description.
        """
        # Only this login may see the threads of others.
        with self._connections.open("admin", on_replica=True) as session:
            waiting = session.rows(
                "SELECT INFO FROM information_schema.PROCESSLIST WHERE USER = 'system user'"
                " AND STATE LIKE 'Waiting for % metadata lock'"
            )
        if not waiting:
            return None
        opened = self._connections.open("snapshot", on_replica=True, lock_timeout_s=_PROBE_S)
        with opened as session:
            if not self._is_locked(session):
                return None
        return next((str(shown) for (shown,) in waiting if shown), _UNKNOWN)

    def _is_locked(self, session: Session) -> bool:
        """Whether a new query of the table has to wait for a lock in MySQL or MariaDB."""
        table = f"{quoted(self._table.schema)}.{quoted(self._table.name)}"
        try:
            session.rows(f"SELECT 1 FROM {table} LIMIT 0")  # noqa: S608 - quoted
        except pymysql.MySQLError as error:
            if error.args[:1] == (ER.LOCK_WAIT_TIMEOUT,):
                return True
            raise
        return False

    def _end_sessions(self, statement: str) -> bool:
        """End the sessions that have the view; return whether there were any."""
        with self._connections.open("snapshot", on_replica=True) as session:
            sessions = self._gate.holders(session)
            if not sessions:
                return False
            self._spoil(self._error(statement))
            for number in sessions:
                try:
                    session.rows(f"KILL {number}")
                except pymysql.MySQLError as error:  # it has just ended by itself
                    _log.debug("session %d is not ended: %s", number, error)
        return True

    def _error(self, statement: str) -> SnapshotLostError:
        shown = " ".join(statement.split())
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        return SnapshotLostError(
            f"replication of the {self._where} waited for the sessions that read table"
            f" {self._table}, so they were ended: {shown}",
            remedy="Run the command again: it reads the rows under a new view. Alter a table while"
            " no copy or verification of it runs.",
            table=self._table,
        )

    @property
    def _where(self) -> str:
        return self._connections.where(on_replica=True)
