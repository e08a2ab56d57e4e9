"""Creates and checks schema ``tributary``, the publication and the replication slot."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import psycopg
from psycopg import sql

from cdc.config import Credentials
from cdc.errors import CaptureError
from cdc.log.position import Lsn
from cdc.runtime.waiting import wait_while
from cdc.sources.postgres import slot_readers, version
from cdc.sources.postgres.catalog import SCHEMA
from cdc.sources.postgres.connection import Session
from cdc.sources.postgres.slot import SlotHealth
from schemas.table import TableId

_log = logging.getLogger(__name__)

PLUGIN = "pgoutput"
DETAILED = 150000
"""The first version with column lists, row filters and whole schemas in publications."""
CHANGES = ("insert", "update", "delete", "truncate")
LOGGED = ("insert", "truncate")
"""The operations in a publication of append tables.

If such a publication had updates or deletes, too, PostgreSQL would refuse the application's own
updates and deletes on a table without a replica identity.
"""
_POLL_S = 0.2

# Both tables carry the server's identity, so that a switch to another server shows in the log.
_MARKER = """
CREATE TABLE IF NOT EXISTS tributary.marker (
    id uuid PRIMARY KEY, system_identifier text, timeline int,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp())
"""
_HEARTBEAT = """
CREATE TABLE IF NOT EXISTS tributary.heartbeat (
    source text PRIMARY KEY, system_identifier text, timeline int,
    beat_at timestamptz NOT NULL DEFAULT clock_timestamp())
"""
# We publish only its inserts. The key is for publications of others that contain all tables:
# without a key PostgreSQL would refuse to delete old beats.
_HEARTBEAT_LOG = """
CREATE TABLE IF NOT EXISTS tributary.heartbeat_log (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source text NOT NULL, system_identifier text, timeline int,
    beat_at timestamptz NOT NULL DEFAULT clock_timestamp())
"""
OWN_TABLES = (_MARKER, _HEARTBEAT, _HEARTBEAT_LOG)
"""The statements that create the missing tables of schema ``tributary``."""
_PUBLISHED = """
SELECT schemaname::text, tablename::text FROM pg_catalog.pg_publication_tables
WHERE pubname = %s AND schemaname <> 'tributary' ORDER BY 1, 2
"""
_MEMBERS = """
SELECT n.nspname::text, c.relname::text
FROM pg_catalog.pg_publication p
JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = %s
"""
_SCHEMAS = """
SELECT n.nspname::text
FROM pg_catalog.pg_publication p
JOIN pg_catalog.pg_publication_namespace s ON s.pnpubid = p.oid
JOIN pg_catalog.pg_namespace n ON n.oid = s.pnnspid
WHERE p.pubname = %s ORDER BY 1
"""
_OF_SLOT = """
FROM pg_catalog.pg_replication_slots slots
WHERE slot_name = %s AND plugin = 'pgoutput' AND database = pg_catalog.current_database()
"""
_SLOT = f"""
SELECT active, wal_status, confirmed_flush_lsn::text, restart_lsn::text,
       pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), restart_lsn)::int8,
       safe_wal_size, pg_catalog.pg_current_wal_insert_lsn()::text,
       -- a column since version 17
       pg_catalog.to_jsonb(slots) ->> 'invalidation_reason'
{_OF_SLOT}
"""
_LACKS_PUBLICATION = f"""
SELECT EXISTS (SELECT {_OF_SLOT})
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = %s)
"""  # noqa: S608 - SQL of our own
# The names of slots are unique on a server, not in a database, and all kinds of slots share them.
_SLOT_OWNER = """
SELECT plugin::text, database::text, pg_catalog.current_database()::text
FROM pg_catalog.pg_replication_slots WHERE slot_name = %s
"""

TIMELINE = "('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int"
"""SQL that evaluates to the primary's timeline; a standby refuses this SQL."""


def prepare(session: Session, publication: str, credentials: Credentials, *, append: bool) -> None:
    """Create what is missing: schema ``tributary``, its tables and grants, the publication."""
    with session.transaction():
        for statement in _preparation(session, publication, credentials, append):
            session.execute(statement)


def planned(
    session: Session,
    publication: str,
    slot: str,
    tables: Sequence[TableId],
    credentials: Credentials,
    *,
    append: bool,
) -> list[str]:
    """Return the statements that would capture these tables of PostgreSQL; none is executed."""
    present = members(session, publication)
    statements = [
        *_preparation(session, publication, credentials, append),
        *(
            _alter_statement(publication, "ADD", [(table.schema, table.name)])
            for table in tables
            if (table.schema, table.name) not in present
        ),
    ]
    if session.execute(_SLOT, (slot,)).fetchone() is None:
        statements.append(
            sql.SQL("SELECT pg_create_logical_replication_slot({}, {})").format(
                sql.Literal(slot), sql.Literal(PLUGIN)
            )
        )
    return [" ".join(statement.as_string(session).split()) for statement in statements]


def _preparation(
    session: Session, publication: str, credentials: Credentials, append: bool
) -> list[sql.SQL | sql.Composed]:
    """Return the statements that create what is missing, and that correct the publication."""
    own_tables = ("marker", "heartbeat_log" if append else "heartbeat")
    statements: list[sql.SQL | sql.Composed] = []
    if session.execute("SELECT to_regnamespace(%s)", (SCHEMA,)).fetchone() == (None,):
        statements.append(sql.SQL("CREATE SCHEMA IF NOT EXISTS tributary"))
    statements += [sql.SQL(table) for table in OWN_TABLES]
    statements += own_grants(credentials)
    if not exists(session, publication):
        statements.append(
            sql.SQL(
                "CREATE PUBLICATION {} FOR TABLE {} WITH (publish = {}, "
                "publish_via_partition_root = true)"
            ).format(
                sql.Identifier(publication),
                sql.SQL(", ").join(sql.Identifier(SCHEMA, name) for name in own_tables),
                sql.Literal(", ".join(LOGGED if append else CHANGES)),
            )
        )
        return statements
    statements += _restored(session, publication, append)
    present = members(session, publication)
    missing = [(SCHEMA, name) for name in own_tables if (SCHEMA, name) not in present]
    return statements + [_alter_statement(publication, "ADD", [own]) for own in missing]


def _restored(session: Session, publication: str, append: bool) -> list[sql.Composed]:
    """Return the statement that corrects a publication's settings; empty if all are correct."""
    published, via_root, _ = _settings(session, publication) or ({}, False, False)
    wanted = LOGGED if append else CHANGES
    if via_root and {change for change, one in published.items() if one} == set(wanted):
        return []
    return [
        sql.SQL(
            "ALTER PUBLICATION {} SET (publish = {}, publish_via_partition_root = true)"
        ).format(sql.Identifier(publication), sql.Literal(", ".join(wanted)))
    ]


def own_grants(credentials: Credentials) -> list[sql.Composed]:
    """Return the GRANTs on PostgreSQL's schema ``tributary`` for all logins except the admin's."""
    rights = [
        (credentials.capture.user, "SELECT", "marker"),
        (credentials.capture.user, "SELECT, INSERT, UPDATE", "heartbeat"),
        (credentials.capture.user, "SELECT, INSERT, DELETE", "heartbeat_log"),
        (credentials.snapshot.user, "SELECT", "marker"),
        (credentials.marker.user, "SELECT, INSERT, DELETE", "marker"),
    ]
    others = [right for right in rights if right[0] != credentials.admin.user]
    users = sorted({user for user, _, _ in others})
    return [
        sql.SQL("GRANT USAGE ON SCHEMA tributary TO {}").format(sql.Identifier(user))
        for user in users
    ] + [
        sql.SQL("GRANT {} ON tributary.{} TO {}").format(
            sql.SQL(right), sql.Identifier(table), sql.Identifier(user)
        )
        for user, right, table in others
    ]


def missing_tables(session: Session, publication: str, tables: Sequence[TableId]) -> list[TableId]:
    """Return the tables that the publication lacks.

    Raises:
        CaptureError: There is no such publication, or this version of the server can lose changes
            of a table that joins a publication.
    """
    if not exists(session, publication):
        raise CaptureError(
            f"source {tables[0].source if tables else ''} has no publication {publication}",
            remedy="Run `tributary onboard` for one of the source's tables, which creates the"
            " publication.",
            publication=publication,
        )
    present = members(session, publication)
    missing = [table for table in tables if (table.schema, table.name) not in present]
    if missing and (stops := version.obstacle(session.info.server_version)):
        raise CaptureError(
            f"publication {publication} of source {missing[0].source} cannot take more tables:"
            f" {stops[0]}",
            remedy=stops[1],
            publication=publication,
        )
    return missing


def add_table(session: Session, publication: str, table: TableId) -> None:
    """Add a table to the publication."""
    _alter_publication(session, publication, "ADD", [(table.schema, table.name)])


def remove_table(session: Session, publication: str, table: TableId) -> None:
    """Remove a table from the publication."""
    _alter_publication(session, publication, "DROP", [(table.schema, table.name)])


def removing(publication: str, table: TableId) -> str:
    """Return the statement by which operators remove a table from a PostgreSQL publication."""
    return f"{_alter_statement(publication, 'DROP', [(table.schema, table.name)]).as_string(None)};"


def dropping(publication: str, slot: str) -> list[str]:
    """Return the statements by which operators drop a slot and a publication."""
    return [
        f"{statement.as_string(None)};"
        for statement in (
            _drop_slot_statement(slot),
            _drop_publication_statement(publication),
        )
    ]


def published(session: Session, publication: str, source: str) -> list[TableId]:
    """Return the tables in the publication, except those of schema ``tributary``."""
    rows = session.execute(_PUBLISHED, (publication,)).fetchall()
    return [TableId(source, schema, name) for schema, name in rows]


def drop(session: Session, publication: str) -> None:
    """Drop the publication if it exists."""
    session.execute(_drop_publication_statement(publication))


def _drop_slot_statement(slot: str) -> sql.Composed:
    """Return the SQL that drops a replication slot of PostgreSQL."""
    return sql.SQL("SELECT pg_drop_replication_slot({})").format(sql.Literal(slot))


def _drop_publication_statement(publication: str) -> sql.Composed:
    """Return the SQL that drops a publication of PostgreSQL."""
    return sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(publication))


def audit(session: Session, publication: str, *, append: bool) -> list[str]:
    """Return problems of the publication due to which it publishes too few or too many changes."""
    found = _settings(session, publication)
    if found is None:
        return [f"publication {publication} does not exist"]
    published, via_root, everything = found
    wanted = LOGGED if append else CHANGES
    findings = [
        f"publication {publication} does not publish {change}"
        for change in wanted
        if not published[change]
    ]
    findings += [
        f"publication {publication} publishes {change}, which a table in mode append may not be"
        " able to log"
        for change in CHANGES
        if published[change] and change not in wanted
    ]
    if not via_root:
        findings.append(f"publication {publication} lacks publish_via_partition_root = true")
    if everything:
        findings.append(f"publication {publication} is FOR ALL TABLES")
    if session.info.server_version >= DETAILED:
        findings += [
            f"publication {publication} publishes all tables of schema {schema}"
            for (schema,) in session.execute(_SCHEMAS, (publication,))
        ]
    return findings


def _settings(session: Session, publication: str) -> tuple[dict[str, bool], bool, bool] | None:
    """Return a publication's settings; None if there is no such publication.

    Returns:
        Three values: a mapping from each operation, such as ``insert``, to whether the operation is
        published; whether changes of partitions are published under the root table; whether the
        publication is for all tables.
    """
    row = session.execute(
        "SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, puballtables "
        "FROM pg_catalog.pg_publication WHERE pubname = %s",
        (publication,),
    ).fetchone()
    if row is None:
        return None
    *changes, via_root, everything = row
    return dict(zip(CHANGES, changes, strict=True)), via_root, everything


def foreign_slot(session: Session, slot: str, source: str) -> CaptureError | None:
    """Return an error if a slot of this name is for another plugin or database; None otherwise.

    Such a slot belongs to another tool, or to another installation, for example that of a staging
    database on the same server. If the slot were dropped, its owner would lose changes.
    """
    row = session.execute(_SLOT_OWNER, (slot,)).fetchone()
    if row is None:
        return None
    plugin, database, ours = row
    if (plugin, database) == (PLUGIN, ours):
        return None
    whose = f"plugin {plugin} and database {database}"
    if database is None:
        whose = "physical replication"
    return CaptureError(
        f"slot {slot} of source {source} exists for {whose}, not for plugin {PLUGIN} and database"
        f" {ours}",
        remedy="If that slot is not yours, leave it, and give this installation names of its own:"
        f" set other slot, publication and topic_prefix for source {source}, or name the source"
        " otherwise. If an earlier setting of yours has left it, and nothing reads it any more, run"
        f" on the server: {_drop_slot_statement(slot).as_string(None)}; Then run the command"
        " again.",
        slot=slot,
    )


def ensure_slot(session: Session, slot: str, source: str) -> bool:
    """Create the slot if it is missing; return whether it was created.

    Raises:
        CaptureError: A slot of this name exists for another plugin or database. Or the creation
            waited too long for the end of transactions that were already open.
    """
    if (foreign := foreign_slot(session, slot, source)) is not None:
        raise foreign
    if session.execute(_SLOT, (slot,)).fetchone() is not None:
        return False
    try:
        session.execute("SELECT pg_create_logical_replication_slot(%s, %s)", (slot, PLUGIN))
    except psycopg.errors.QueryCanceled as error:
        raise CaptureError(
            f"slot {slot} of source {source} could not be created in time: transactions that were"
            " open at its start have not ended",
            remedy="Find long transactions in pg_stat_activity and pg_prepared_xacts, end them,"
            " then run the command again.",
            slot=slot,
        ) from error
    return True


def slot_health(session: Session, slot: str, current: Callable[[], Lsn]) -> SlotHealth | None:
    """Return the slot's current health; None if the slot is missing or foreign (`foreign_slot`).

    Args:
        session: A session on the primary.
        slot: The slot's name.
        current: Reads the current end of the log; see `SlotHealth`.
    """
    row = session.execute(_SLOT, (slot,)).fetchone()
    if row is None:
        return None
    active, status, confirmed, restart, retained, safe = row[:6]
    return SlotHealth(
        name=slot,
        active=active,
        wal_status=status,
        confirmed_flush_lsn=Lsn.parse(confirmed) if confirmed else None,
        restart_lsn=Lsn.parse(restart) if restart else None,
        retained_bytes=retained,
        safe_wal_size=safe,
        end=Lsn.parse(row[6]),
        current=current,
        invalidation_reason=row[7],
    )


def drop_slot(session: Session, slot: str, source: str, timeout_s: float) -> bool:
    """Wait until no connection reads the slot, then drop it; return whether it was dropped.

    A slot for another plugin or database stays, and is named in a warning.

    Raises:
        CaptureError: The slot was still in use at the end of the wait.
    """
    dropped = False
    if (foreign := foreign_slot(session, slot, source)) is not None:
        # No error: what else there is of the capture can be removed.
        _log.warning("%s, so it is left. %s", foreign.message, foreign.remedy)
        return False

    def in_use() -> psycopg.errors.ObjectInUse | None:
        nonlocal dropped
        if session.execute(_SLOT, (slot,)).fetchone() is None:
            return None
        try:
            session.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
        except psycopg.errors.UndefinedObject:
            return None
        except psycopg.errors.ObjectInUse as error:
            return error
        dropped = True
        return None

    if error := wait_while(in_use, timeout_s=timeout_s, poll_s=_POLL_S):
        who = slot_readers.reader(session, slot) or "a session that has just ended"
        raise CaptureError(
            f"slot {slot} of source {source} is still being read after {timeout_s:.0f} s by {who}:"
            f" {error.diag.message_primary}",
            remedy="If this reader is the connector of this capture, delete it, then run the"
            " command again. If it is not yours, leave the slot: another installation captures this"
            " database with the same names.",
            slot=slot,
        ) from error
    return dropped


def exists(session: Session, publication: str) -> bool:
    """Whether there is a publication of this name."""
    query = "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = %s"
    return session.execute(query, (publication,)).fetchone() is not None


def lacks_publication(session: Session, slot: str, publication: str) -> bool:
    """Whether there is a slot of this name for this database, but no publication."""
    row = session.execute(_LACKS_PUBLICATION, (slot, publication)).fetchone()
    return row == (True,)


def members(session: Session, publication: str) -> set[tuple[str, str]]:
    """Return schema and name of each table in the publication, with Tributary's own tables."""
    return {(row[0], row[1]) for row in session.execute(_MEMBERS, (publication,))}


def _alter_publication(
    session: Session, publication: str, action: str, tables: Sequence[tuple[str, str]]
) -> None:
    """Add tables to a PostgreSQL publication, or drop tables from it."""
    session.execute(_alter_statement(publication, action, tables))


def _alter_statement(
    publication: str, action: str, tables: Sequence[tuple[str, str]]
) -> sql.Composed:
    """Return the SQL that adds tables to a PostgreSQL publication, or drops tables from it."""
    # Without ONLY a table that inherits from another one would be published with it and get a topic
    # of its own, and PostgreSQL would refuse its UPDATE and DELETE if it has no key. The root of a
    # partitioned table is published with its partitions anyway.
    return sql.SQL("ALTER PUBLICATION {} {} TABLE {}").format(
        sql.Identifier(publication),
        sql.SQL(action),
        sql.SQL(", ").join(sql.SQL("ONLY {}").format(sql.Identifier(*table)) for table in tables),
    )
