"""Who a server is, what it has executed, and the markers that are written on the primary."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid4

from cdc.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet
from cdc.sources.mysql.connection import Session

# MariaDB of before 2024 has no id of its own; then these three tell its servers apart.
_NAMED = "concat(@@global.server_id, '@', @@global.hostname, ':', @@global.port)"


@dataclass(frozen=True)
class Written:
    """A marker row, and what lies behind it.

    Args:
        id: Primary key of the row.
        server: Who wrote it; see :func:`identity`.
        executed: What the primary had executed after the row's commit, the row among it.
    """

    id: UUID
    server: str
    executed: GtidSet


def gtid_set(text: str, kind: str) -> GtidSet:
    """A set of GTIDs as servers of the kind print it."""
    return MysqlGtidSet.parse(text) if kind == "mysql" else MariadbGtidSet.parse(text)


def executed(session: Session, kind: str) -> GtidSet:
    """What the server has executed.

    MariaDB's ``gtid_binlog_pos`` is what it has logged: on the primary that is what there is to
    capture, and what replicas get. Its ``gtid_current_pos`` leaves out the transactions of another
    server that was the primary before; its ``gtid_slave_pos`` those of its own.
    """
    name = "gtid_executed" if kind == "mysql" else "gtid_binlog_pos"
    return gtid_set(str(session.value(f"SELECT @@global.{name}") or ""), kind)


def applied(session: Session, kind: str) -> GtidSet:
    """What a replica has executed of its primary's transactions."""
    name = "gtid_executed" if kind == "mysql" else "gtid_slave_pos"
    return gtid_set(str(session.value(f"SELECT @@global.{name}") or ""), kind)


def purged(session: Session, kind: str) -> GtidSet:
    """What was executed and is in no binlog any more."""
    if kind == "mysql":
        return gtid_set(str(session.value("SELECT @@global.gtid_purged") or ""), kind)
    logs = session.rows("SHOW BINARY LOGS")
    if not logs:
        return gtid_set("", kind)
    # The first file begins with what all those before it had.
    before = session.value("SELECT binlog_gtid_pos(%s, 4)", (logs[0][0],))
    return gtid_set(str(before or ""), kind)


def binlog_bytes(session: Session) -> int:
    """Bytes of the binlogs that are kept."""
    return sum(int(row[1]) for row in session.rows("SHOW BINARY LOGS"))


def identity(session: Session, kind: str) -> tuple[str, bool]:
    """What tells a server from all others, and whether it is a replica, or read-only as one."""
    if kind == "mysql":
        server = str(session.value("SELECT @@global.server_uuid"))
    else:
        rows = session.rows("SHOW GLOBAL VARIABLES LIKE 'server_uid'")
        server = str(rows[0][1] if rows and rows[0][1] else session.value(f"SELECT {_NAMED}"))
    # A number, and in newer servers of MariaDB a word.
    return server, str(session.value("SELECT @@global.read_only")) not in ("0", "OFF")


def identity_test(kind: str, server: str) -> str:
    """SQL that holds on that server only, as :func:`identity` has named it."""
    if kind == "mysql":
        name = "@@global.server_uuid"
    else:
        name = _NAMED if "@" in server else "@@global.server_uid"
    # As bytes: no character of it can end the text.
    return f"{name} = CONVERT(x'{server.encode().hex()}' USING utf8mb4)"


def write_marker(session: Session, kind: str) -> Written:
    """Write a new marker row, and read what is executed once it is committed."""
    server, _ = identity(session, kind)
    marker = uuid4()
    session.rows(
        "DELETE FROM tributary.marker WHERE written_at < utc_timestamp(6) - INTERVAL 30 DAY"
    )
    session.rows(
        "INSERT INTO tributary.marker (id, server, written_at) VALUES (%s, %s, utc_timestamp(6))",
        (str(marker), server),
    )
    return Written(marker, server, executed(session, kind))
