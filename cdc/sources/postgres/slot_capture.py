"""One capture of a PostgreSQL source, with its publication and its replication slot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from cdc.debezium import CaptureNames
from cdc.errors import CaptureError, RefusedError, SourceError, UnreachableError
from cdc.log.continuity import Continuity, LogMark, Sent
from cdc.log.position import Lsn
from cdc.sources.log_health import LogHealth
from cdc.sources.postgres import (
    fingerprint,
    logins,
    other_publications,
    primary,
    publication,
    publication_members,
    published_table,
    slot_continuity,
    slot_readers,
)
from cdc.sources.postgres.connection import Connections, Session
from cdc.sources.postgres.slot import NoSlot, SlotHealth
from cdc.sources.sent_table import SentTable
from cdc.sources.servers import Role
from cdc.sources.source_facts import SourceTable
from schemas.errors import TributaryError
from schemas.fingerprint import Fingerprint
from schemas.table import TableId

_SLOT_TIMEOUT_S = 120.0


class PublishedTables:
    """The tables of a publication, as a `cdc.sources.capture_parts.SentTables`.

    Args:
        connections: Opens sessions.
        name: The publication's name.
    """

    def __init__(self, connections: Connections, name: str) -> None:
        self._connections = connections
        self._name = name
        self.title = f"publication {name}"

    def add(self, tables: Sequence[TableId]) -> list[TableId]:
        """Add the tables that the publication lacks; return the added tables.

        If a table cannot be added, for example since a session locks the table, the others are
        added before the error is raised.
        """
        with self._connections.open("admin") as session:
            missing = publication.missing_tables(session, self._name, tables)
        self._change_each(missing, publication.add_table)
        return missing

    def remove(self, tables: Sequence[TableId]) -> list[TableId]:
        """Remove the given tables that the publication contains; return the removed tables.

        If a table cannot be removed, for example since a session locks the table, the others are
        removed before the error is raised.
        """
        with self._connections.open("admin") as session:
            before = publication.members(session, self._name)
        present = [table for table in tables if (table.schema, table.name) in before]
        self._change_each(present, publication.remove_table)
        return present

    def _change_each(
        self, tables: Sequence[TableId], change: Callable[[Session, str, TableId], object]
    ) -> None:
        """Change the publication for each table; open a session for each change.

        Raises:
            RefusedError: Several tables cannot be changed. If only one table cannot be changed, the
                error of that table is raised.
        """
        refused: dict[TableId, TributaryError] = {}
        for table in tables:
            try:
                with self._connections.open("admin") as session:
                    change(session, self._name, table)
            except UnreachableError:
                raise
            except SourceError as error:
                refused[table] = error.naming(table=table)
        if refused:
            raise RefusedError.of(refused)

    def remove_renamed(
        self, known: Collection[Fingerprint], keep: Collection[TableId]
    ) -> list[TableId]:
        """Remove the tables of these fingerprints, whatever names the tables have now.

        A table whose present name is in ``keep`` stays. The result has the removed tables.
        """
        oids = {int(one.facts["oid"]) for one in known if "oid" in one.facts}
        source = self._connections.source
        with self._connections.open("admin") as session:
            renamed = publication_members.renamed(session, self._name, source, oids, keep)
        self._change_each(renamed, publication.remove_table)
        return renamed

    def added(self) -> dict[TableId, SentTable]:
        """Return, for each added table, a `SentTable` with the statement that removes the table."""
        with self._connections.open("admin") as session:
            return publication_members.added(session, self._name, self._connections.source)

    def tables(self) -> list[TableId]:
        """Return the publication's tables except Tributary's; empty if there is no publication."""
        with self._connections.open("admin") as session:
            return publication.published(session, self._name, self._connections.source)

    def exists(self) -> bool:
        """Whether the publication exists."""
        with self._connections.open("admin") as session:
            return publication.exists(session, self._name)

    def drop(self) -> None:
        """Drop the publication if it exists."""
        with self._connections.open("admin") as session:
            publication.drop(session, self._name)


class Slot:
    """The log that a replication slot retains, as a `cdc.sources.capture_parts.KeptLog`.

    Args:
        connections: Opens sessions.
        name: The slot's name.
    """

    def __init__(self, connections: Connections, name: str) -> None:
        self._connections = connections
        self._name = name
        self.title = f"slot {name}"

    def exists(self) -> bool:
        """Whether a slot of this name exists for this database and Debezium's plugin."""
        return self.health() is not None

    def require_own(self) -> None:
        """Check that no slot of this name is for another plugin or database.

        Raises:
            CaptureError: There is such a slot.
        """
        with self._connections.open("admin") as session:
            source = self._connections.source
            if (foreign := publication.foreign_slot(session, self._name, source)) is not None:
                raise foreign

    def others(self) -> list[str]:
        """Return the names of the database's other slots that can send publications."""
        with self._connections.open("admin") as session:
            return [one for one in other_publications.sending_slots(session) if one != self._name]

    def create(self) -> bool:
        """Create the logical slot if it is missing; return whether it was created."""
        opened = self._connections.open("capture", statement_timeout_s=_SLOT_TIMEOUT_S)
        with opened as session:
            return publication.ensure_slot(session, self._name, self._connections.source)

    def drop(self, *, timeout_s: float = 30.0) -> bool:
        """Wait until no session reads the slot, then drop it; return whether the slot existed."""
        with self._connections.open("capture") as session:
            return publication.drop_slot(session, self._name, self._connections.source, timeout_s)

    def reader(self) -> int | None:
        """Return the process id of the session that reads the slot; None if no session reads it."""
        found = self._reader()
        return None if found is None else found.process

    def shown_reader(self) -> str | None:
        """Return the slot's reader (program, address, process) in words; None without a reader."""
        found = self._reader()
        return None if found is None else str(found)

    def _reader(self) -> slot_readers.SlotReader | None:
        with self._connections.open("admin") as session:
            return slot_readers.reader(session, self._name)

    def beat_age_s(self) -> float | None:
        """Return the age in seconds of the connector's newest heartbeat; None if there is none."""
        with self._connections.open("admin") as session:
            return slot_readers.beat_age_s(session, self._name)

    def health(self) -> SlotHealth | None:
        """Return the slot's current health; None if the slot does not exist."""
        with self._connections.open("admin") as session:
            return publication.slot_health(session, self._name, self._current)

    def _current(self) -> Lsn:
        with self._connections.open("admin") as session:
            return primary.current_lsn(session)


class PostgresCapture:
    """A capture of a source of kind ``postgres``; see `cdc.sources.base.SourceCapture`.

    Args:
        connections: Opens sessions.
        names: The capture's names.
    """

    def __init__(self, connections: Connections, names: CaptureNames) -> None:
        self._connections = connections
        self._names = names
        self._publication, self._slot = names.on_primary

    @property
    def sent_tables(self) -> PublishedTables:
        """The publication, which selects the tables."""
        return PublishedTables(self._connections, self._publication)

    @property
    def kept_log(self) -> Slot:
        """The slot, which retains the log."""
        return Slot(self._connections, self._slot)

    def prepare(self) -> None:
        """Create what is missing: schema ``tributary``, its tables, grants and the publication.

        The publication publishes insert, update, delete and truncate; it publishes changes of a
        partition under the root table's name. A publication of append tables publishes insert and
        truncate, and nothing else. From the start, each publication contains two tables of schema
        ``tributary``: the table of markers and the table of heartbeats.

        Raises:
            CaptureError: Tributary's own tables do not exist yet, and another tool's publication
                would send rows of these tables to subscribers. A subscriber that lacks the tables
                would stop.
        """
        users, name = self._connections.config.credentials, self._publication
        with self._connections.open("admin") as session:
            if stops := other_publications.obstacle(session, users.admin.user):
                raise CaptureError(
                    f"source {self._connections.source} cannot be captured: {stops[0]}",
                    remedy=stops[1],
                    source=self._connections.source,
                )
            publication.prepare(session, name, users, append=self._names.append)

    def planned(self, tables: Sequence[TableId]) -> list[str]:
        """Return the statements that would capture these PostgreSQL tables; execute none of them.

        Raises:
            CaptureError: The slot's name belongs to another database or another tool.
        """
        self.kept_log.require_own()
        names, users = self._names, self._connections.config.credentials
        with self._connections.open("admin") as session:
            return publication.planned(
                session, self._publication, self._slot, tables, users, append=names.append
            )

    def removal(self, table: TableId | None, *, last: bool) -> list[str]:
        """Return the statements that remove a table from the PostgreSQL capture.

        If ``last`` is true, or ``table`` is None, the statements remove the whole capture.
        """
        name = self._publication
        if last or table is None:
            return publication.dropping(name, self._slot)
        return [publication.removing(name, table)]

    def continuity(self, earlier: LogMark | None, sent: Sent) -> Continuity | None:
        """Compare the counts in an earlier mark with what PostgreSQL's slot has decoded by now.

        If the slot does not exist, the result is None, and `log_health` reports the problem.
        """
        return slot_continuity.continuity(self._connections, self._slot, earlier)

    def unreadable(self) -> str | None:
        """Return a problem if the slot exists without its publication; None otherwise.

        The server decodes a change by the publication's catalog rows at the time of the change. So
        a recreated publication does not make the slot readable.
        """
        with self._connections.open("admin") as session:
            if not publication.lacks_publication(session, self._slot, self._publication):
                return None
        return f"cannot be read further: {self.sent_tables.title} does not exist"

    def log_health(self) -> LogHealth:
        """Return the health of the slot, on which the capture depends."""
        return self.kept_log.health() or NoSlot(self._slot)

    def audit(self) -> list[str]:
        """Return problems due to which the publication publishes too few or too many changes."""
        with self._connections.open("admin") as session:
            return publication.audit(session, self._publication, append=self._names.append)

    def audit_table(self, table: SourceTable) -> list[str]:
        """Return the problems due to which PostgreSQL does not publish all changes of one table."""
        with self._connections.open("admin") as session:
            return published_table.audit_table(session, self._publication, table)

    def missing_rights(self, table: SourceTable) -> tuple[str, str] | None:
        """Return the problem and the remedy if a login lacks a right on a PostgreSQL table.

        Problem and remedy are parts of a message. The remedy has the statements that a superuser
        must run. The result is None if no right is missing.
        """
        return logins.missing_rights(self._connections, table, self._publication)

    def described(self, table: TableId) -> tuple[SourceTable, Fingerprint]:
        """Return the table and its fingerprint, from the PostgreSQL primary's catalog.

        The table and the fingerprint are read at one moment.
        """
        with self._connections.open("admin") as session:
            return fingerprint.read_described(session, table, self._publication)

    def audited(self, table: TableId) -> tuple[SourceTable, Fingerprint, list[str]]:
        """Return what `described` and `audit_table` return, read in one PostgreSQL session."""
        with self._connections.open("admin") as session:
            found, facts = fingerprint.read_described(session, table, self._publication)
            return found, facts, published_table.audit_table(session, self._publication, found)

    def fingerprint(self, table: TableId, *, on_replica: bool) -> Fingerprint:
        """Return the PostgreSQL table's fingerprint on one server, read in a new transaction."""
        role: Role = "snapshot" if on_replica else "admin"
        with self._connections.open(role, on_replica=on_replica) as session:
            return fingerprint.read_fingerprint(session, table, self._publication)

    def fingerprints(self, tables: Collection[TableId]) -> dict[TableId, Fingerprint]:
        """Return the fingerprints of the given tables that exist on the PostgreSQL primary."""
        with self._connections.open("admin") as session:
            return fingerprint.read_fingerprints(session, tables, self._publication)
