"""Changes that the primary replicates from another server and does not write to its binlog."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.sources.mysql.connection import Session

REMEDY = (
    "Set log_slave_updates = ON (MySQL: log_replica_updates) in the primary's option file and"
    " restart it, or end its replication: STOP REPLICA, RESET REPLICA ALL."
)
"""The remedy for replicated changes that the primary does not write to its binlog."""

_APPLIED = "SELECT if(@@global.log_slave_updates, '', @@global.gtid_slave_pos)"


def unlogged(session: Session, kind: str, variables: Mapping[str, str]) -> str | None:
    """Return why the primary's binlog lacks replicated changes; None if it has these changes.

    Args:
        session: A session of the admin login on the primary.
        kind: ``mysql`` or ``mariadb``.
        variables: The primary's settings by name.
    """
    name = "log_replica_updates" if "log_replica_updates" in variables else "log_slave_updates"
    if variables.get(name) == "ON":
        return None
    if variables.get("wsrep_on") == "ON":
        return (
            f"{name} is OFF on a node of a Galera cluster: its binlog lacks the writes of"
            " other nodes"
        )
    if _replicates(session, kind):
        return (
            f"{name} is OFF, and the primary is a replica itself: its binlog lacks the changes"
            " that it replicates"
        )
    return None


def applied(session: Session, kind: str) -> str:
    """Return the GTIDs of the replicated transactions that a MariaDB primary's binlog lacks.

    The result changes with each such transaction, and stays the same when a channel is deleted. The
    result is empty if the primary writes replicated transactions to its binlog.

    For MySQL, the result is always empty, since MySQL has no variable with these GTIDs. Without
    GTIDs, such transactions stay undetected. With GTIDs, a copy fails if it begins after such a
    transaction: the copy waits for the connector to capture the transaction, which never happens.
    """
    return str(session.value(_APPLIED) or "") if kind == "mariadb" else ""


def _replicates(session: Session, kind: str) -> bool:
    """Whether MySQL has a replication channel, or MariaDB has a running replication channel."""
    if kind == "mysql":
        return bool(session.rows("SHOW REPLICA STATUS"))
    # MariaDB shows its channels only to a login with REPLICA MONITOR. A stopped channel replicates
    # nothing. When it runs again, `applied` changes.
    running = session.rows("SHOW GLOBAL STATUS LIKE 'Slaves_running'")
    return bool(running) and int(running[0][1]) > 0
