"""Stops and starts a replica's applier, the thread that executes the primary's transactions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cdc.errors import ReplicaError, SourceError
from cdc.runtime.waiting import wait_while
from cdc.sources.mysql.checks import replication_status
from cdc.sources.mysql.connection import Connections, Session

PAUSE_LIMIT_S = 20.0
"""Longest stop of the applier, in seconds; the server then starts the applier by itself."""

_STATE_S = 10.0
_POLL_S = 0.01
_START, _STOP = "START REPLICA SQL_THREAD", "STOP REPLICA SQL_THREAD"

_log = logging.getLogger(__name__)


def paused(connections: Connections) -> bool:
    """Whether the replica's applier is stopped."""
    with connections.open("snapshot", on_replica=True) as session:
        return not runs(connections, session)


def resume(connections: Connections) -> None:
    """Start the replica's applier, even if another process or an operator stopped it.

    The function waits until the applier runs.

    Raises:
        ReplicaError: The applier still does not run.
    """
    with connections.open("snapshot", on_replica=True) as session:
        session.rows(_START)
        if wait_while(lambda: not runs(connections, session), timeout_s=_STATE_S, poll_s=_POLL_S):
            status = replication_status(session) or {}
            raise ReplicaError(
                f"the applier of the {connections.where(on_replica=True)} was started, but does"
                f" not run: {status.get('last_sql_error') or 'the server reports no error'}",
                remedy=f"Correct the applier's error, then run {_START} on the replica.",
            )


def stop(connections: Connections, session: Session) -> None:
    """Stop the applier of the session's server, and wait until it has stopped.

    Raises:
        ReplicaError: The applier still runs.
    """
    session.rows(_STOP)
    if wait_while(lambda: runs(connections, session), timeout_s=_STATE_S, poll_s=_POLL_S):
        raise ReplicaError(
            f"the applier of the {connections.where(on_replica=True)} did not stop within"
            f" {_STATE_S:.0f} s",
            remedy="It may be executing a long transaction: run the command again later.",
        )


@contextmanager
def server_resumes(connections: Connections) -> Iterator[Callable[[], None]]:
    """Make the server start its applier by itself if this process dies while a block runs.

    A session of the server runs two statements, the countdown: the first waits `PAUSE_LIMIT_S`, and
    the second starts the applier. The server runs the second statement even if the client is gone.
    At the end of the block, the session is killed, which ends the countdown. If the block fails and
    the applier may still be stopped, the session is not killed, so the server starts the applier.

    Yields:
        A function that begins the countdown.
    """
    opened = connections.open(
        "snapshot", on_replica=True, statement_timeout_s=2 * PAUSE_LIMIT_S, several=True
    )
    with opened as session:
        number = int(session.value("SELECT connection_id()"))
        waiting = threading.Thread(
            target=_quietly,
            args=(session, f"DO SLEEP({PAUSE_LIMIT_S}); {_START}"),
            name="tributary-resume",
            daemon=True,
        )

        def begin() -> None:
            waiting.start()
            _wait_until_it_sleeps(connections, number)

        try:
            yield begin
        except BaseException:
            if _goes_on(connections):
                _end(connections, number)
            raise
        _end(connections, number)
        waiting.join(_STATE_S)


def _wait_until_it_sleeps(connections: Connections, number: int) -> None:
    """Wait until the countdown of a session has begun; only then may the applier be stopped.

    Raises:
        ReplicaError: The countdown has not begun in time.
    """
    query = "SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = %s AND INFO LIKE 'DO SLEEP%%'"
    with connections.open("snapshot", on_replica=True) as control:
        if wait_while(
            lambda: not control.rows(query, (number,)), timeout_s=_STATE_S, poll_s=_POLL_S
        ):
            raise ReplicaError(
                f"the {connections.where(on_replica=True)} did not start the countdown after"
                " which it starts its applier by itself",
                remedy="Look at the replica's log and load, then run the command again.",
            )


def _goes_on(connections: Connections) -> bool:
    """Whether the applier runs for certain; False if the replica cannot be queried."""
    try:
        return not paused(connections)
    except SourceError:
        return False


def _end(connections: Connections, number: int) -> None:
    """Kill the session of a countdown in MySQL or MariaDB."""
    try:
        with connections.open("snapshot", on_replica=True) as control:
            control.rows(f"KILL {number}")
    except SourceError as error:
        # The applier already runs, so its start at the end of the countdown has no effect.
        _log.warning("cannot end the countdown's session on the replica: %s", error)


def _quietly(session: Session, statements: str) -> None:
    """Run statements in a MySQL or MariaDB session that `_end` may kill; ignore all errors."""
    try:
        session.rows(statements)
    except Exception:  # noqa: BLE001 - the session was ended on purpose
        return


def runs(connections: Connections, session: Session) -> bool:
    """Whether the applier of the session's server runs.

    Raises:
        ReplicaError: The server does not replicate.
    """
    status = replication_status(session)
    if status is None:
        raise ReplicaError(
            f"{connections.where(on_replica=True)} does not replicate from any server",
            remedy="Start replication by GTID there.",
        )
    return str(status.get("replica_sql_running")).lower() == "yes"
