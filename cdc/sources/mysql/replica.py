"""The replica: the fence that a view must lie behind, and how far it is."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, cast

from cdc.errors import ReplicaError, SourceError
from cdc.gtid import GtidSet
from cdc.progress import Progress
from cdc.sources.mysql.checks import FILTERS, replication_status
from cdc.sources.mysql.connection import Connections, Session
from cdc.sources.mysql.primary import applied, identity

_POLL_S = (0.02, 0.5)


@dataclass(frozen=True)
class Position:
    """How far a replica is.

    Args:
        executed: What it has executed of its primary.
        lag_seconds: How old the transaction is that it executes now; None when that is not known.
        stopped: Whether its applier does not run.
        receiving: Whether its receiver runs.
        error: The last error of either, or empty.
    """

    executed: GtidSet
    lag_seconds: float | None
    stopped: bool
    receiving: bool
    error: str

    @property
    def described(self) -> str:
        """The state as messages show it."""
        parts = [
            "lag unknown" if self.lag_seconds is None else f"{self.lag_seconds:.0f} s behind",
            f"has executed {self.executed or 'nothing'}",
        ]
        if self.stopped:
            parts.append("its applier is stopped")
        if not self.receiving:
            parts.append("its receiver is not connected")
        if self.error:
            parts.append(self.error)
        return ", ".join(parts)


def position(connections: Connections) -> Position:
    """How far the replica is.

    Raises:
        ReplicaError: It replicates from nowhere, or the login may not see it.
    """
    with connections.open("snapshot", on_replica=True) as session:
        return _position(connections, session, _status(connections, session))


def wait_for_position(
    connections: Connections, upto: GtidSet, *, timeout_s: float, progress: Progress
) -> GtidSet:
    """Wait until the replica has executed what the primary had; returns what it has then.

    Raises:
        ReplicaError: Time ran out, with the lag and the replica's own error; or it is the primary
            itself, replicates from nowhere, or leaves out changes.
    """
    where = connections.where(on_replica=True)
    _require_other_server(connections)
    task = progress.start(f"wait for the {where}", None, "checks")
    deadline, pause = time.monotonic() + timeout_s, _POLL_S[0]
    try:
        while True:
            # What it lacks while it is behind may be the database, or a grant.
            try:
                found = _look(connections)
            except ReplicaError:
                raise
            except SourceError as error:
                if time.monotonic() >= deadline:
                    raise
                task.note(error.message)
            else:
                if found.executed.reaches(upto):
                    return found.executed
                if time.monotonic() >= deadline:
                    raise _too_late(where, found, upto, timeout_s)
                task.note(found.described)
            task.advance()
            time.sleep(pause)
            pause = min(pause * 2, _POLL_S[1])
    finally:
        task.done()


def _require_other_server(connections: Connections) -> None:
    """Refuse a replica that is the primary: what it has executed would prove nothing."""
    kind = connections.config.kind
    with connections.open("marker") as session:
        primary, _ = identity(session, kind)
    with connections.open("snapshot", on_replica=True) as session:
        replica, _ = identity(session, kind)
    if primary == replica:
        raise ReplicaError(
            f"{connections.where(on_replica=True)} is the primary itself",
            remedy="Point `replica` at a replica, or leave it out.",
        )


def _look(connections: Connections) -> Position:
    with connections.open("snapshot", on_replica=True) as session:
        status = _status(connections, session)
        filters = [name for name in FILTERS if status.get(f"replicate_{name}")]
        if filters:
            raise ReplicaError(
                f"{connections.where(on_replica=True)} leaves out changes: "
                + ", ".join(f"replicate_{name}" for name in filters),
                remedy="Use a replica without filters.",
            )
        return _position(connections, session, status)


def _status(connections: Connections, session: Session) -> dict[str, Any]:
    status = replication_status(session)
    if status is None:
        kind = connections.config.kind
        raise ReplicaError(
            f"{connections.where(on_replica=True)} replicates from nowhere, or"
            f" {connections.credential('snapshot').user} may not see it",
            remedy="Start replication by GTID there, and grant the login REPLICATION CLIENT"
            + (" and REPLICA MONITOR." if kind == "mariadb" else "."),
        )
    return status


def _position(connections: Connections, session: Session, status: dict[str, Any]) -> Position:
    seconds = status.get("seconds_behind_source")
    error = str(status.get("last_sql_error") or status.get("last_io_error") or "")
    return Position(
        executed=applied(session, connections.config.kind),
        lag_seconds=None if seconds is None else float(cast("float", seconds)),
        stopped=str(status.get("replica_sql_running")).lower() != "yes",
        receiving=str(status.get("replica_io_running")).lower() == "yes",
        error=" ".join(error.split()),
    )


def _too_late(where: str, found: Position, upto: GtidSet, timeout_s: float) -> ReplicaError:
    if found.stopped:
        remedy = "START REPLICA there, after its error is corrected, then run again."
    elif not found.receiving:
        remedy = "Let it reach its primary (SHOW REPLICA STATUS there), then run again."
    else:
        remedy = (
            "Check that it follows this primary (SHOW REPLICA STATUS there); when it is only slow,"
            " raise the wait and run again."
        )
    return ReplicaError(
        f"{where} has not executed {upto} of the primary within {timeout_s:.0f} s:"
        f" {found.described}",
        remedy=remedy,
    )
