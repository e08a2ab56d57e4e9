"""Reads the replica's position, and waits until the replica reaches a position of the primary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from cdc.errors import ReplicaError, SourceError
from cdc.log.binlog_position import BinlogPosition
from cdc.log.position import LogPosition
from cdc.runtime.progress import Progress, shown_as
from cdc.runtime.waiting import wait_while
from cdc.sources.mysql import replica_faults
from cdc.sources.mysql.checks import DIRECT, follows_another, replication_status
from cdc.sources.mysql.connection import Connections, Session
from cdc.sources.mysql.primary import applied, has_gtids, own_id

_POLL_S = (0.02, 0.5)


@dataclass(frozen=True)
class Position:
    """The position and state of a MySQL or MariaDB replica.

    Args:
        executed: The primary's transactions that the replica has executed; without GTIDs, the
            file and the offset in the primary's binlog at which these transactions end.
        lag_seconds: Age in seconds of the transaction that the replica executes now; None if it is
            not known.
        stopped: Whether the replica's applier is stopped.
        receiving: Whether the replica's receiver runs.
        error: The last error of the applier or the receiver; empty without an error.
    """

    executed: LogPosition
    lag_seconds: float | None
    stopped: bool
    receiving: bool
    error: str

    @property
    def described(self) -> str:
        """The state of a MySQL or MariaDB replica in words, for messages."""
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
    """Return the position of the MySQL or MariaDB replica.

    Raises:
        ReplicaError: The server does not replicate, or the login lacks the right to see the state
            of replication.
    """
    primary = _require_other_server(connections)
    with connections.open("snapshot", on_replica=True) as session:
        return _position(connections, session, _replica_status(connections, session), primary)


def wait_for_position(
    connections: Connections, upto: LogPosition, *, timeout_s: float, progress: Progress
) -> LogPosition:
    """Wait until the MySQL or MariaDB replica has executed ``upto``; return the position reached.

    Raises:
        ReplicaError: The wait reached its bound; the error has the lag and the replica's own error.
            Or the replica is the primary itself, does not replicate, leaves out changes, continues
            after errors, or has transactions that the primary lacks. Or there are no GTIDs, and the
            replica follows another server than the primary.
        PositionError: GTIDs were turned on or off on the primary after ``upto`` was read.
    """
    where = connections.where(on_replica=True)
    primary = _require_other_server(connections)
    with shown_as(f"wait for the {where}", progress) as task:
        executed = upto

        def behind() -> SourceError | None:
            nonlocal executed
            task.advance()
            try:
                found = _replica_look(connections, primary)
            except ReplicaError:
                raise
            except SourceError as error:
                # While the replica is behind, it can lack the database or a grant.
                task.note(error.message)
                return error
            if found.executed.reaches(upto):
                executed = found.executed
                return None
            task.note(found.described)
            return _too_late(where, found, upto, timeout_s)

        if late := wait_while(behind, timeout_s=timeout_s, poll_s=_POLL_S):
            raise late
    if primary.has_gtids:
        _require_no_errant(connections)
    return executed


def require_rows_of_primary(connections: Connections) -> None:
    """Refuse a MySQL or MariaDB replica whose rows may differ from the primary's.

    Without GTIDs, transactions that only the replica has are not detected.

    Raises:
        ReplicaError: The replica leaves out changes, continues after errors, or has transactions
            that the primary lacks.
    """
    with connections.open("snapshot", on_replica=True) as session:
        _require_all_changes(connections, session)
    with connections.open("marker") as session:
        by_gtid = has_gtids(session, connections.config.kind)
    if by_gtid:
        _require_no_errant(connections)


@dataclass(frozen=True)
class _Primary:
    """The primary's id, and whether its transactions have GTIDs."""

    server: str
    has_gtids: bool


def _require_other_server(connections: Connections) -> _Primary:
    """Refuse a MySQL or MariaDB replica that is the primary itself; return facts of the primary.

    Raises:
        ReplicaError: The configured replica is the primary itself, whose position proves nothing
            about a replica.
    """
    kind = connections.config.kind
    with connections.open("marker") as session:
        primary = own_id(session, kind)
        by_gtid = has_gtids(session, kind)
    with connections.open("snapshot", on_replica=True) as session:
        replica = own_id(session, kind)
    if primary == replica:
        raise ReplicaError(
            f"{connections.where(on_replica=True)} is the primary itself",
            remedy="Point `replica` at a replica, or leave it out.",
        )
    return _Primary(primary, by_gtid)


def _replica_look(connections: Connections, primary: _Primary) -> Position:
    """Return the MySQL or MariaDB replica's position; refuse a replica that could lack changes."""
    with connections.open("snapshot", on_replica=True) as session:
        status = _replica_status(connections, session)
        _require_all_changes(connections, session)
        return _position(connections, session, status, primary)


def _require_all_changes(connections: Connections, session: Session) -> None:
    """Refuse a MySQL or MariaDB replica that could skip changes or apply them differently."""
    where = connections.where(on_replica=True)
    found = replica_faults.applying(session, connections.config.kind)
    if filters := replica_faults.filters(found):
        raise ReplicaError(
            f"{where} leaves out changes: {', '.join(filters)}",
            remedy=replica_faults.WITHOUT_FILTERS,
        )
    if lenient := replica_faults.lenient(found):
        raise ReplicaError(
            f"{where} may leave other rows than the primary has: {', '.join(lenient)}",
            remedy=replica_faults.STRICT,
        )


def _require_no_errant(connections: Connections) -> None:
    """Refuse a replica that has executed transactions that the MySQL or MariaDB primary lacks.

    A copy from such a replica would have rows that the primary never had.
    """
    if found := replica_faults.errant_transactions(connections):
        raise ReplicaError(
            f"{connections.where(on_replica=True)} has executed transactions that the primary has"
            f" not: {found}",
            remedy=replica_faults.RECREATE,
        )


def _replica_status(connections: Connections, session: Session) -> dict[str, Any]:
    """Return the replication status; refuse a MySQL or MariaDB server that does not replicate."""
    status = replication_status(session)
    if status is None:
        kind = connections.config.kind
        raise ReplicaError(
            f"{connections.where(on_replica=True)} does not replicate from any server, or"
            f" {connections.credential('snapshot').user} may not see its replication",
            remedy="Start replication there, by GTID if the primary has GTIDs, and grant the"
            " login REPLICATION CLIENT" + (" and REPLICA MONITOR." if kind == "mariadb" else "."),
        )
    return status


def _position(
    connections: Connections, session: Session, status: dict[str, Any], primary: _Primary
) -> Position:
    """Compute the MySQL or MariaDB replica's position from its replication status."""
    seconds = status.get("seconds_behind_source")
    error = str(status.get("last_sql_error") or status.get("last_io_error") or "")
    return Position(
        executed=applied(session, connections.config.kind)
        if primary.has_gtids
        else _executed_place(connections, status, primary.server),
        lag_seconds=None if seconds is None else float(cast("float", seconds)),
        stopped=str(status.get("replica_sql_running")).lower() != "yes",
        receiving=str(status.get("replica_io_running")).lower() == "yes",
        error=" ".join(error.split()),
    )


def _executed_place(
    connections: Connections, status: dict[str, Any], primary: str
) -> BinlogPosition:
    """Return the file and offset up to which the replica has executed the primary's binlog.

    A replica reports a file and an offset in the binlog of the server that it follows. So the
    replica must follow the primary directly. If several threads of the replica (workers) execute
    transactions, all threads have committed up to the returned file and offset.
    """
    where = connections.where(on_replica=True)
    if other := follows_another(status, primary):
        raise ReplicaError(f"{where} {other}", remedy=DIRECT)
    file, at = status.get("relay_source_log_file"), status.get("exec_source_log_pos")
    if not file or at is None:
        raise ReplicaError(
            f"{where} does not report its position in the primary's binlog",
            remedy="Start replication there (START REPLICA), then run the command again.",
        )
    return BinlogPosition(str(file), int(at))


def _too_late(where: str, found: Position, upto: LogPosition, timeout_s: float) -> ReplicaError:
    """Return the error for a MySQL or MariaDB replica that has not executed ``upto`` in time.

    The remedy depends on the replica's state.
    """
    if found.stopped:
        remedy = "Correct the applier's error, run START REPLICA there, then run the command again."
    elif not found.receiving:
        remedy = (
            "Restore the replica's connection to its primary (SHOW REPLICA STATUS there),"
            " then run the command again."
        )
    else:
        remedy = (
            "Check that the replica follows this primary (SHOW REPLICA STATUS there); if it only"
            " lags, wait until it has caught up, then run the command again."
        )
    return ReplicaError(
        f"{where} has not executed {upto} of the primary within {timeout_s:.0f} s:"
        f" {found.described}",
        remedy=remedy,
    )
