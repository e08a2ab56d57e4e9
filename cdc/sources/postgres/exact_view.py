"""Opens exact views: views at a known log position, which separates a copy from its stream.

In a table with a key, a change that the copy already contains can be applied again without harm. In
an append table, such a change would double a row. So the view of an append table must contain
exactly the transactions that end at or before one position. A replica has such a view while its
replay is paused. A primary has such a view at the start of a logical slot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from uuid import UUID, uuid4

import psycopg
from psycopg import sql

from cdc.errors import ReplicaError, SourceError
from cdc.log.position import Lsn
from cdc.runtime.progress import Progress
from cdc.runtime.waiting import wait_while
from cdc.sources.postgres.connection import Connections, Session
from cdc.sources.postgres.primary import write_marker
from cdc.sources.postgres.replica import (
    Exported,
    Exporter,
    export,
    exported_now,
    exporting,
    proven,
    wait_for_marker,
)
from cdc.sources.source_facts import Marker

PAUSE_LIMIT_S = 20.0
"""Maximum duration of a pause of replay, in seconds. After it, the server itself resumes replay."""

_STATE_S = 10.0
_POLL_S = 0.01
_TRIES = 3
_VIEWS = 10
_VIEW_PAUSE_S = 0.3
"""Seconds by which the wait between two tries to open a view grows from one try to the next."""
_PAUSED, _NOT_PAUSED = "paused", "not paused"
_FROM_PRIMARY = "set snapshot_from: primary for the table"
_WITHOUT_ONE_VIEW = "remove one_view from the table's settings"
_FUNCTIONS = ("pg_wal_replay_pause()", "pg_wal_replay_resume()")


def grant_sql(role: str) -> str:
    """Return the GRANT statement that allows a role to pause and resume PostgreSQL's replay.

    A superuser must run the statement.
    """
    functions = ", ".join(f"pg_catalog.{name}" for name in _FUNCTIONS)
    statement = sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(
        sql.SQL(functions), sql.Identifier(role)
    )
    return f"{statement.as_string(None)};"


def obstacle(connections: Connections, *, on_replica: bool) -> tuple[str, str] | None:
    """Return why no exact view can be opened on the PostgreSQL server, and the remedy.

    The result is None if an exact view can be opened.
    """
    with connections.open("snapshot", on_replica=on_replica) as session:
        where = connections.where(on_replica=on_replica)
        if not on_replica:
            return None
        row = session.execute(
            "SELECT bool_and(has_function_privilege('pg_catalog.' || name, 'EXECUTE'))"
            " FROM unnest(%s::text[]) AS name",
            (list(_FUNCTIONS),),
        ).fetchone()
    if row and row[0]:
        return None
    role = connections.credential("snapshot").user
    return (
        f"{role} may not pause the replay of the {where}, so it is unknown which events a copy"
        " already contains",
        f"Choose: 1. on the primary, in this database, as a superuser: {grant_sql(role)} (replay"
        " stops for a moment when a copy or a verification starts); 2. snapshot_from: primary"
        " for the table, which is then read from the primary.",
    )


def replay_state(connections: Connections) -> str:
    """Return PostgreSQL's state of replay: ``paused``, ``pause requested`` or ``not paused``."""
    with connections.open("snapshot", on_replica=True) as session:
        return _state(session)


def resume(connections: Connections) -> None:
    """Resume the PostgreSQL replica's replay, even if another process or an operator paused it.

    The function waits until replay has resumed.

    Raises:
        ReplicaError: Replay is still paused.
    """
    with connections.open("snapshot", on_replica=True) as session:
        row = session.execute("SELECT pg_is_in_recovery()").fetchone()
        if row is None or not row[0]:
            return  # it was promoted, which also resumed replay
        session.execute("SELECT pg_wal_replay_resume()")
        if not _wait_for(session, _NOT_PAUSED):
            raise ReplicaError(
                f"replay of the {connections.where(on_replica=True)} was resumed, but is still"
                f" {_state(session)!r}",
                remedy="Run SELECT pg_wal_replay_resume() on the replica.",
            )


@contextmanager
def replica_view(
    connections: Connections,
    marker: Marker,
    *,
    resuming: Callable[[], AbstractContextManager[None]],
    timeout_s: float,
    progress: Progress,
) -> Iterator[Exporter]:
    """Open a view of the PostgreSQL replica at one known position, while its replay is paused.

    Args:
        connections: The source's servers.
        marker: The marker that the view must contain.
        resuming: Returns a context manager. `replica_view` pauses replay in the context manager's
            block. The context manager resumes replay at the end of the block. If this process dies
            in the block, the server or the next command resumes replay.
        timeout_s: Bound of each wait for the replica, in seconds.
        progress: Shows the waits.

    Raises:
        ReplicaError: Replay cannot be paused, replay did not stay paused during the export, or the
            replica exports no exact view.
        SnapshotLostError: The replica cancelled the session.
    """

    def paused(session: Session) -> Exported:
        with _server_resumes(connections) as watchdog, resuming():
            watchdog()
            return _taken(connections, session)

    fence = _Fence(connections, timeout_s, progress)
    with _tested(connections, marker, fence, paused, _FROM_PRIMARY) as exporter:
        yield exporter


@contextmanager
def shared_view(
    connections: Connections, marker: Marker, *, timeout_s: float, progress: Progress
) -> Iterator[Exporter]:
    """Open a view of the PostgreSQL replica that sessions can import; replay is not paused.

    Args:
        connections: The source's servers.
        marker: The marker that the view must contain.
        timeout_s: Bound of each wait for the replica, in seconds.
        progress: Shows the waits.

    Raises:
        ReplicaError: Each snapshot that the replica exported lacks its list of transactions in
            progress.
        SnapshotLostError: The replica cancelled the session.
    """

    def at_once(session: Session) -> Exported:
        return exported_now(connections, session, on_replica=True)

    fence = _Fence(connections, timeout_s, progress)
    with _tested(connections, marker, fence, at_once, _WITHOUT_ONE_VIEW) as exporter:
        yield exporter


@dataclass(frozen=True)
class _Fence:
    """Waits until a PostgreSQL replica has replayed the primary's log.

    Args:
        connections: The source's servers.
        timeout_s: Bound of each wait, in seconds.
        progress: Shows the waits.
    """

    connections: Connections
    timeout_s: float
    progress: Progress

    def wait(self) -> None:
        """Wait until the PostgreSQL replica has replayed the log up to the current position."""
        with self.connections.open("marker") as session:
            marker = write_marker(session)
        wait_for_marker(self.connections, marker, timeout_s=self.timeout_s, progress=self.progress)


@contextmanager
def _tested(
    connections: Connections,
    marker: Marker,
    fence: _Fence,
    take: Callable[[Session], Exported],
    otherwise: str,
) -> Iterator[Exporter]:
    """Open a PostgreSQL standby's view whose snapshot has the list of transactions in progress.

    A standby can export a snapshot without this list. This happens if a transaction in progress has
    reported subtransactions to the standby; with wal_level logical, a savepoint is enough. If a
    session imports a snapshot without the list, it sees the changes of the transactions in progress
    as soon as they commit. If the session reads rows of these transactions before they commit, it
    marks the rows as rolled back (see `replica.own_snapshots`).

    The list is exported whole or not at all. So this function keeps a test transaction open during
    the export, and commits it afterwards. The function uses the snapshot only if a session that
    imports the snapshot does not see the test transaction.
    """
    for tried in range(_VIEWS):
        time.sleep(_VIEW_PAUSE_S * tried)
        with exporting(connections, on_replica=True) as session:
            with _in_progress(connections, fence) as probe:
                taken = take(session)
            fence.wait()
            if not _shows(connections, taken.snapshot, probe):
                view = proven(connections, session, taken, marker, on_replica=True)
                yield Exporter(session, view)
                return
    raise ReplicaError(
        f"the {connections.where(on_replica=True)} exported {_VIEWS} views, and each lacks the"
        " transactions that were in progress: long transactions with savepoints were open",
        remedy=f"Run the command again when fewer long transactions are open; or {otherwise}.",
    )


@contextmanager
def _in_progress(connections: Connections, fence: _Fence) -> Iterator[UUID]:
    """Write a marker in a PostgreSQL transaction that stays open until the block ends.

    The block begins after the replica has replayed the write.

    Yields:
        The marker's id.
    """
    probe = uuid4()
    with connections.open("marker") as session, session.transaction():
        session.execute("INSERT INTO tributary.marker (id) VALUES (%s)", (probe,))
        fence.wait()
        yield probe


def _shows(connections: Connections, snapshot: str, marker: UUID) -> bool:
    """Whether a PostgreSQL session that imports the given snapshot sees the marker.

    The marker's transaction must have ended. The session finds the marker by the primary key's
    index, so that it reads no rows of other transactions. If the snapshot lacks the list of
    transactions in progress, reading rows of these transactions would mark the rows as rolled back
    (see `_tested`).
    """
    with exporting(connections, on_replica=True) as session:
        session.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        session.execute("SET LOCAL enable_seqscan = off")
        query = "SELECT 1 FROM tributary.marker WHERE id = %s"
        return session.execute(query, (marker,)).fetchone() is not None


def _taken(connections: Connections, session: Session) -> Exported:
    """Pause PostgreSQL's replay; return a snapshot that is exported during the pause.

    The snapshot's position is the position at which replay is paused.
    """
    where = connections.where(on_replica=True)
    for _ in range(_TRIES):
        with connections.open("snapshot", on_replica=True) as control:
            control.execute("SELECT pg_wal_replay_pause()")
            if not _wait_for(control, _PAUSED):
                continue  # it was resumed, or the record that is being replayed takes long
            # The exporting session itself reads the position, since another session can be on
            # another server.
            if _state(session) == _PAUSED:
                before = _replayed_position(session)
                snapshot = export(session)
                # If a transaction was replayed meanwhile, the snapshot could contain it or lack it.
                if _state(session) == _PAUSED and _replayed_position(session) == before:
                    return Exported(snapshot, before, exact=True)
        session.rollback()
    raise ReplicaError(
        f"replay of the {where} did not stay paused in any of {_TRIES} tries",
        remedy="Find out what else resumes replay (pg_wal_replay_resume), then run the command"
        " again.",
    )


@contextmanager
def _server_resumes(connections: Connections) -> Iterator[Callable[[], None]]:
    """Make PostgreSQL resume replay by itself if this process dies while replay is paused.

    A session of the server executes a countdown. The countdown is one query string: settings, a
    wait of `PAUSE_LIMIT_S`, and the call that resumes replay. The end of the block cancels the
    countdown, but the death of this process does not.

    Yields:
        A function that begins the countdown.
    """
    with connections.open("snapshot", on_replica=True, statement_timeout_s=0) as session:
        raw = session.pgconn

        def begin() -> None:
            # The server executes the string in one transaction, for which the settings are.
            later = (
                "SET LOCAL statement_timeout = 0; SET LOCAL client_connection_check_interval = 0;"
                f" SELECT pg_sleep({PAUSE_LIMIT_S}); SELECT pg_wal_replay_resume()"
            )
            raw.send_query(later.encode())
            if wait_while(raw.flush, timeout_s=_STATE_S, poll_s=_POLL_S):
                raise ReplicaError(
                    f"the {connections.where(on_replica=True)} did not start the countdown after"
                    f" which it resumes replay by itself within {_STATE_S:.0f} s",
                    remedy="Look at the replica's log and load, then run the command again.",
                )

        try:
            yield begin
        finally:
            session.cancel()
            session.close()  # a late cancellation would end a statement of the next block


@contextmanager
def primary_view(
    connections: Connections, marker: Marker, *, timeout_s: float
) -> Iterator[Exporter]:
    """Open a view of the primary at one known position: the start of a temporary logical slot.

    The slot is dropped before the view is used, so it does not retain the log.

    Args:
        connections: The source's servers.
        marker: The marker that the view must contain.
        timeout_s: Bound of the wait for transactions that are open when the slot is created, in
            seconds.

    Raises:
        SourceError: The slot cannot be created within ``timeout_s``.
    """
    name = f"tributary_view_{uuid4().hex[:16]}"
    create = f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"
    with exporting(connections, on_replica=False) as session:
        with connections.open_replication() as walsender:
            # The server's own timeouts do not end this command.
            watchdog = threading.Timer(timeout_s, walsender.cancel)
            watchdog.start()
            try:
                row = walsender.execute(create.encode()).fetchone()
            except psycopg.errors.QueryCanceled as error:
                raise SourceError(
                    f"a slot on the {connections.where(on_replica=False)} could not be created"
                    f" within {timeout_s:.0f} s: transactions that were open at its start have"
                    " not ended",
                    remedy="Find long transactions in pg_stat_activity and pg_prepared_xacts, end"
                    " them, then run the command again.",
                ) from error
            finally:
                watchdog.cancel()
            if row is None:
                raise SourceError(
                    f"the {connections.where(on_replica=False)} exported no snapshot for slot"
                    f" {name}",
                    remedy="Look at the server's log at this time; then run the command again.",
                )
            session.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(row[2])))
            exported = Exported(export(session), Lsn.parse(row[1]), exact=True)
        view = proven(connections, session, exported, marker, on_replica=False)
        yield Exporter(session, view)


def _wait_for(session: Session, state: str) -> bool:
    """Wait for a state of PostgreSQL's replay; return whether replay reached it in time."""
    return not wait_while(lambda: _state(session) != state, timeout_s=_STATE_S, poll_s=_POLL_S)


def _state(session: Session) -> str:
    """Return PostgreSQL's state of replay: ``paused``, ``pause requested`` or ``not paused``."""
    row = session.execute("SELECT pg_get_wal_replay_pause_state()").fetchone()
    return str(row[0]) if row else ""


def _replayed_position(session: Session) -> Lsn:
    """Return the position up to which a PostgreSQL standby has replayed the log."""
    row = session.execute("SELECT pg_last_wal_replay_lsn()::text").fetchone()
    return Lsn.parse(str(row[0]) if row else "")
