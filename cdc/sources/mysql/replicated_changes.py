"""Changes that reach the primary by replication, and are not in its own binlog."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.sources.mysql.connection import Session

REMEDY = (
    "Set log_slave_updates = ON (MySQL: log_replica_updates) in the primary's option file and"
    " restart it, or end its replication: STOP REPLICA, RESET REPLICA ALL."
)
"""What to do about changes that come by replication."""

_APPLIED = "SELECT if(@@global.log_slave_updates, '', @@global.gtid_slave_pos)"


def unlogged(session: Session, kind: str, variables: Mapping[str, str]) -> str | None:
    """Why the primary's tables get changes that its binlog lacks; None when they do not.

    Args:
        session: The admin's, on the primary.
        kind: ``mysql`` or ``mariadb``.
        variables: The server's settings by name.
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
    """What replication has brought to a MariaDB primary that does not log it; empty otherwise.

    The value changes with each transaction, even of a channel that is gone by now. MySQL does not
    have such a value: without GTIDs there is no trace, and with GTIDs no copy gets past a
    transaction that is not logged.
    """
    return str(session.value(_APPLIED) or "") if kind == "mariadb" else ""


def _replicates(session: Session, kind: str) -> bool:
    """Whether transactions of another server are applied, or may be applied at any moment."""
    if kind == "mysql":
        return bool(session.rows("SHOW REPLICA STATUS"))
    # MariaDB shows its channels only to a login with REPLICA MONITOR. A channel that is stopped
    # does not bring anything, and once it runs, `applied` shows that.
    running = session.rows("SHOW GLOBAL STATUS LIKE 'Slaves_running'")
    return bool(running) and int(running[0][1]) > 0
