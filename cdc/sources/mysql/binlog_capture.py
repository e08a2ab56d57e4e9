"""One capture of a MySQL or MariaDB source. All captures of a source read the same binlog."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cdc.debezium import CaptureNames
from cdc.log.continuity import Continuity, LogMark, Sent
from cdc.log.position import LogPosition
from cdc.sources.log_health import LogHealth
from cdc.sources.mysql import binlog_continuity, catalog, preparation, primary, rights
from cdc.sources.mysql.binlog import BinlogHealth, NoBinlog
from cdc.sources.mysql.connection import Connections, Session
from cdc.sources.source_facts import SourceTable
from schemas.fingerprint import READ_AT, Fingerprint
from schemas.table import TableId


class BinlogCapture:
    """A capture of a source of kind ``mysql`` or ``mariadb``; see `cdc.sources.base.SourceCapture`.

    Args:
        connections: Opens sessions.
        names: The capture's names.
    """

    sent_tables = None
    """None, since the connector itself has the list of captured tables."""
    kept_log = None
    """None, since the server purges the binlog by age, even if no connector has read it."""

    def __init__(self, connections: Connections, names: CaptureNames) -> None:
        self._connections = connections
        self._names = names
        self._kind = connections.config.kind

    def prepare(self) -> None:
        """Create what is missing: database ``tributary``, its tables, and the rights on them."""
        preparation.prepare(self._connections)

    def planned(self, tables: Sequence[TableId]) -> list[str]:
        """Return the statements that would capture these tables of MySQL or MariaDB.

        No statement is executed.
        """
        return preparation.planned(self._connections, tables)

    def removal(self, table: TableId | None, *, last: bool) -> list[str]:
        """Return an empty list: no object in MySQL or MariaDB belongs to one capture alone."""
        return []

    def unreadable(self) -> str | None:
        """Return None, since the connector can read each binlog file that is not purged."""
        return None

    def continuity(self, earlier: LogMark | None, sent: Sent) -> Continuity | None:
        """Compare the binlog with an earlier mark; return None if GTIDs or the binlog are off."""
        return binlog_continuity.continuity(self._connections, earlier, sent)

    def log_health(self) -> LogHealth:
        """Return the binlog's health; the server can purge files that are not captured yet."""
        source = self._connections.source
        with self._connections.open("admin") as session:
            if str(session.value("SELECT @@global.log_bin")) in ("0", "OFF"):
                return NoBinlog(source)
            purged, size = primary.retained(session, self._kind)
        return BinlogHealth(source, purged, self._executed, size)

    def _executed(self) -> LogPosition:
        """Return the GTID set or binlog position of everything that the primary has executed."""
        with self._connections.open("admin") as session:
            return primary.executed_position(session, self._kind)

    def audit(self) -> list[str]:
        """Return the problems of the MySQL or MariaDB server that affect the capture of all tables.

        Due to such a problem, the binlog lacks changes, or the connectors misread changes.
        """
        with self._connections.open("admin") as session:
            return preparation.audit_server(session, append=self._names.append)

    def audit_table(self, table: SourceTable) -> list[str]:
        """Return the problems due to which one MySQL or MariaDB table cannot be copied or captured.

        For example, the binlog lacks the table's changes, or the connectors misread its values.
        """
        with self._connections.look("admin") as session:
            return preparation.audit_table(session, table, append=self._names.append)

    def missing_rights(self, table: SourceTable) -> tuple[str, str] | None:
        """Return the problem and the remedy if a login cannot read some columns of the table.

        Both are parts of a message. The problem names each such login of MySQL or MariaDB, and the
        remedy has the GRANT statements. The result is None if no such login lacks a right.
        """
        return rights.missing(self._connections, table.table)

    def described(self, table: TableId) -> tuple[SourceTable, Fingerprint]:
        """Return the table and its fingerprint, from the catalog of the MySQL or MariaDB primary.

        The table and the fingerprint are read at one moment.
        """
        with self._connections.open("admin") as session:
            return self._described(session, table)

    def audited(self, table: TableId) -> tuple[SourceTable, Fingerprint, list[str]]:
        """Return what `described` and `audit_table` return, with one login on the primary."""
        with self._connections.open("admin") as session:
            found, facts = self._described(session, table)
            problems = preparation.audit_table(session, found, append=self._names.append)
        return found, facts, problems

    def _described(self, session: Session, table: TableId) -> tuple[SourceTable, Fingerprint]:
        """Return a table of MySQL or MariaDB, and its fingerprint with the log's position."""
        read_at = str(primary.shown(session, self._kind, table))
        found, fingerprint = catalog.read_described(session, table)
        return found, Fingerprint({**fingerprint.facts, READ_AT: read_at})

    def fingerprint(self, table: TableId, *, on_replica: bool) -> Fingerprint:
        """Return the table's fingerprint in MySQL or MariaDB, read in a new transaction.

        If ``on_replica``, the definitions of the table and its columns come from the replica. The
        ids of the table's files, and the GTIDs of transactions that the binlog lacks, come from the
        primary. The primary is read after the replica. So the facts from the primary include each
        statement that the facts from the replica include.
        """
        if not on_replica:
            return self._on_primary(table)
        with self._connections.open("snapshot", on_replica=True) as session:
            found = catalog.read_fingerprint(session, table, on_replica=True)
        return catalog.with_files(found, self._on_primary(table))

    def _on_primary(self, table: TableId) -> Fingerprint:
        """Return a table's fingerprint on the primary, with the primary's current log position."""
        with self._connections.open("admin") as session:
            read_at = str(primary.shown(session, self._kind, table))
            found = catalog.read_fingerprint(session, table)
        return Fingerprint({**found.facts, READ_AT: read_at})

    def fingerprints(self, tables: Collection[TableId]) -> dict[TableId, Fingerprint]:
        """Return the fingerprints of tables on the MySQL or MariaDB primary.

        A table is left out if it does not exist, or if it changed at each attempt to read it.
        """
        with self._connections.open("admin") as session:
            return catalog.read_fingerprints(session, tables)
