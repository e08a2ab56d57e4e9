"""Reads the identity of a server and its executed transactions; writes markers on the primary."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pymysql
from pymysql.constants import ER

from cdc.errors import SourceError
from cdc.log.binlog_position import BinlogPosition, read_position
from cdc.log.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet
from cdc.log.position import LogPosition
from cdc.sources.mysql.connection import Connections, Row, Session, quoted
from cdc.sources.source_facts import Marker
from schemas.table import TableId

NO_TABLE = frozenset({ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR})
"""Error codes for a table that does not exist."""

# The variable whose value distinguishes servers that replicate from each other.
_OWN_ID = {"mysql": "@@global.server_uuid", "mariadb": "@@global.server_id"}
UNKNOWN = "unknown"
"""Beginning of a MariaDB server's id if ``tributary.source_identity`` or its row is missing."""
# MariaDB's own id of a server (server_uid) is made of the machine's network address and the port.
# It changes when the server moves, and unrelated servers can share it. So a row of our own
# identifies the data, and server_id identifies one of the servers that replicate the data. The
# nodes of a Galera cluster share both, and each node counts its own transactions. The node's name
# distinguishes them. Texts are joined as bytes, since the collations of their sources differ.
_NODE = """
(SELECT concat('@', node.VARIABLE_VALUE) FROM information_schema.GLOBAL_VARIABLES node
 JOIN information_schema.GLOBAL_VARIABLES galera
   ON galera.VARIABLE_NAME = 'WSREP_ON' AND galera.VARIABLE_VALUE = 'ON'
 WHERE node.VARIABLE_NAME = 'WSREP_NODE_NAME')
"""
_NAMED = (
    "CONVERT(concat(CAST(coalesce((SELECT id FROM tributary.source_identity WHERE one = 1),"  # noqa: S608 - fixed
    f" '{UNKNOWN}') AS BINARY), '@', CAST({_OWN_ID['mariadb']} AS BINARY),"
    f" CAST(coalesce({_NODE}, '') AS BINARY)) USING utf8mb4)"
)


_PRUNE_EVERY_S = 3600.0
_PRUNED_ROWS = 10_000
"""The most markers that one statement deletes, so that it ends soon."""


class Pruning:
    """When a process last deleted old markers from each server; safe to use from any thread.

    A deletion can lock the whole table, since tables of earlier releases have no index on the time.
    If each marker came with a deletion, copies that begin together would wait for one another.

    Args:
        clock: Returns the time in seconds, from any starting point.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._began: dict[str, float] = {}

    def begins(self, server: str) -> bool:
        """Whether the caller must delete now: no thread has begun to within the last hour."""
        now = self._clock()
        with self._lock:
            began = self._began.get(server)
            if began is not None and now - began < _PRUNE_EVERY_S:
                return False
            self._began[server] = now
            return True

    def failed(self, server: str) -> None:
        """Let the next marker delete: each call reports a right that the login lacks."""
        with self._lock:
            self._began.pop(server, None)


_PRUNING = Pruning()


def position(text: str, kind: str) -> LogPosition:
    """Parse a position as a MySQL or MariaDB source prints it: GTIDs, or file and offset."""
    return read_position(text) if kind == "mysql" else MariadbGtidSet.parse(text)


def has_gtids(session: Session, kind: str) -> bool:
    """Whether the MySQL or MariaDB server gives every transaction a GTID.

    In MySQL's modes between OFF and ON, some transactions have no GTID. Debezium's connector, too,
    uses GTIDs only in mode ON.
    """
    return kind == "mariadb" or gtid_mode(session) == "ON"


def gtid_mode(session: Session) -> str:
    """Return MySQL's GTID mode: OFF, OFF_PERMISSIVE, ON_PERMISSIVE or ON."""
    return str(session.value("SELECT @@global.gtid_mode")).upper()


def executed_position(session: Session, kind: str) -> LogPosition:
    """Return the position up to which the MySQL or MariaDB server has executed transactions.

    For MariaDB this is ``gtid_binlog_pos``, the transactions that the server has logged. On the
    primary, exactly these transactions can be captured and reach replicas. ``gtid_current_pos``
    lacks transactions of a server that was the primary before. ``gtid_slave_pos`` lacks the
    server's own transactions.

    Raises:
        SourceError: The server writes no binlog.
    """
    if not has_gtids(session, kind):
        return _end_of_binlog(session)
    name = "gtid_executed" if kind == "mysql" else "gtid_binlog_pos"
    return _gtids_of_variable(session.value(f"SELECT @@global.{name}"), kind)


def shown(session: Session, kind: str, table: TableId) -> LogPosition:
    """Return MySQL's or MariaDB's position, once the catalog shows all earlier DDL on the table.

    A position by file and offset can be after a DDL statement whose change of the catalog is not
    committed yet. A GTID set does not include such a statement. The statement holds a lock on the
    table's name until the statement commits. So after this function has read the position, it runs
    SHOW CREATE TABLE, which waits for that lock.

    The server refuses SHOW CREATE TABLE to a login that may read only some of the columns. This
    function then raises the server's error. A query of the catalog would silently leave out the
    other columns.
    """
    found = executed_position(session, kind)
    try:
        session.rows(f"SHOW CREATE TABLE {quoted(table.schema)}.{quoted(table.name)}")
    except pymysql.MySQLError as error:
        if not error.args or error.args[0] not in NO_TABLE:
            raise
    return found


def applied(session: Session, kind: str) -> GtidSet:
    """Return the GTIDs that a replica has executed; for MariaDB, only the replicated GTIDs."""
    name = "gtid_executed" if kind == "mysql" else "gtid_slave_pos"
    return _gtids_of_variable(session.value(f"SELECT @@global.{name}"), kind)


def retained(session: Session, kind: str) -> tuple[LogPosition, int]:
    """Return the position up to which the server has purged its binlog, and the rest's bytes.

    Both are from one list of the binlog's files: the server opens each file to list it.
    """
    files = session.rows("SHOW BINARY LOGS")
    return _purged(session, kind, files), sum(int(row[1]) for row in files)


def _purged(session: Session, kind: str, logs: Sequence[Row]) -> LogPosition:
    """Return the position up to which the server has purged its binlog, which has these files."""
    if kind == "mysql" and has_gtids(session, kind):
        return _gtids_of_variable(session.value("SELECT @@global.gtid_purged"), kind)
    if kind == "mysql":
        # The position before the first remaining file.
        return BinlogPosition(str(logs[0][0]), 0) if logs else _end_of_binlog(session)
    if not logs:
        return _gtids_of_variable("", kind)
    # The first file begins with the position at which the files before it end.
    return _gtids_of_variable(session.value("SELECT binlog_gtid_pos(%s, 4)", (logs[0][0],)), kind)


def binlog_status(session: Session, kind: str) -> list[tuple[object, ...]]:
    """Return the row of the binlog's status in a list; the list is empty without a binlog.

    The row's first columns are the last file, this file's end offset, the databases that are
    logged, and the databases that are ignored.
    """
    if kind == "mariadb":
        return session.rows("SHOW MASTER STATUS")
    try:
        return session.rows("SHOW BINARY LOG STATUS")
    except pymysql.MySQLError as error:
        if error.args and error.args[0] == ER.PARSE_ERROR:  # before MySQL 8.2
            return session.rows("SHOW MASTER STATUS")
        raise


@dataclass(frozen=True)
class BinlogFilter:
    """The databases whose changes the MySQL or MariaDB server logs.

    The server filters a row by its table's database, and a DDL statement by the session's default
    database.

    Args:
        only: The databases that are logged; empty if all databases except the ignored ones are
            logged.
        ignored: The databases that are not logged.
    """

    only: frozenset[str]
    ignored: frozenset[str]

    def leaves_out(self, database: str) -> str | None:
        """Return why changes of a database can be missing in the binlog; None if all are logged."""
        if self.only and database not in self.only:
            return f"binlog_do_db leaves out database {database}"
        if database in self.ignored:
            return f"binlog_ignore_db leaves out database {database}"
        if self.only or self.ignored:
            option = "binlog_do_db" if self.only else "binlog_ignore_db"
            return (
                f"{option} leaves out DDL statements, such as TRUNCATE, of sessions with another"
                " default database"
            )
        return None


def binlog_filter(session: Session, kind: str) -> BinlogFilter:
    """Return the filter by which the server leaves databases out of its binlog.

    It is an option of the server's start, so a session asks once. The server's answer waits for the
    transactions that are just written to the binlog.
    """
    return session.once("binlog filter", lambda: _read_binlog_filter(session, kind))


def _read_binlog_filter(session: Session, kind: str) -> BinlogFilter:
    """Ask the MySQL or MariaDB server for the databases that it leaves out of its binlog."""
    # File, position, then the two lists.
    rows = binlog_status(session, kind)
    lists = [str(value or "") for row in rows for value in row[2:4]] or ["", ""]
    only, ignored = (
        frozenset(name.strip() for name in text.split(",") if name.strip()) for text in lists
    )
    return BinlogFilter(only, ignored)


def _end_of_binlog(session: Session) -> BinlogPosition:
    """Return the file and the offset at which MySQL's binlog ends."""
    rows = binlog_status(session, "mysql")
    if not rows:
        raise SourceError(
            "the primary writes no binlog, so nothing can be captured",
            remedy="Set log_bin on the primary and restart it.",
        )
    return BinlogPosition(str(rows[0][0]), int(str(rows[0][1])))


def _gtids_of_variable(value: object, kind: str) -> GtidSet:
    """Parse a MySQL or MariaDB server variable that has GTIDs; NULL is the empty set."""
    text = str(value or "")
    return MysqlGtidSet.parse(text) if kind == "mysql" else MariadbGtidSet.parse(text)


def identity(session: Session, kind: str) -> tuple[str, bool]:
    """Return the unique id of a MySQL or MariaDB server, and whether the server is read-only.

    MariaDB's id begins with a value that the first capture writes to database ``tributary``. If
    this value is missing, the id begins with `UNKNOWN`.
    """
    # read_only is a number, and in newer servers of MariaDB a word.
    read_only = str(session.value("SELECT @@global.read_only")) not in ("0", "OFF")
    try:
        return str(session.value(f"SELECT {_identity_sql(kind)}")), read_only
    except pymysql.MySQLError as error:
        if not error.args or error.args[0] not in NO_TABLE:
            raise
        return f"{UNKNOWN}@{own_id(session, kind)}", read_only


def own_id(session: Session, kind: str) -> str:
    """Return the id that distinguishes a MySQL or MariaDB server from its primary and replicas."""
    return str(session.value(f"SELECT {_OWN_ID[kind]}"))


def identity_test(kind: str, server: str) -> str:
    """Return SQL that is true on the MySQL or MariaDB server with this id, and false elsewhere.

    The id is a result of :func:`identity`.
    """
    # The ids are compared as hex digits: none can end the SQL text, and no collation is involved.
    return f"hex({_identity_sql(kind)}) = '{server.encode().hex().upper()}'"


def _identity_sql(kind: str) -> str:
    """Return SQL that a MySQL or MariaDB server evaluates to its id; see :func:`identity`."""
    return _OWN_ID[kind] if kind == "mysql" else _NAMED


def write_marker(connections: Connections) -> Marker:
    """Write a marker row; return the marker with MySQL's or MariaDB's position after the commit.

    Raises:
        SourceError: The marker was written on one server, and the position read from another.
    """
    kind, marker = connections.config.kind, uuid4()
    with connections.open("marker") as session:
        server, _ = identity(session, kind)
        _prune_markers(session, server)
        session.rows(
            "INSERT INTO tributary.marker (id, server, written_at) VALUES (%s, %s,"
            " utc_timestamp(6))",
            (str(marker), server),
        )
        if has_gtids(session, kind):
            return Marker(marker, server, None, executed_position(session, kind))
    # The login that writes markers has no right to read the binlog's file and offset.
    with connections.open("admin") as session:
        if identity(session, kind)[0] != server:
            raise SourceError(
                f"{connections.where(on_replica=False)} is the address of several servers: the"
                " marker was written to one, and the position was read from another",
                remedy="Point `primary` at one server, and not at several; then run the command"
                " again.",
            )
        return Marker(marker, server, None, executed_position(session, kind))


def _prune_markers(session: Session, server: str) -> None:
    """Delete markers older than 30 days, unless the process has done so within the last hour."""
    if not _PRUNING.begins(server):
        return
    try:
        session.rows(
            "DELETE FROM tributary.marker WHERE written_at < utc_timestamp(6) - INTERVAL 30 DAY"
            " LIMIT %s",
            (_PRUNED_ROWS,),
        )
    except BaseException:
        _PRUNING.failed(server)
        raise
