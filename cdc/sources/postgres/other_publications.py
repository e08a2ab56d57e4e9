"""Finds publications of other tools that would send Tributary's own tables to subscribers.

A publication FOR ALL TABLES also publishes tables that are created later. A subscriber that lacks
such a table stops at the table's first row, and the primary retains its log for that subscriber.
"""

from __future__ import annotations

from psycopg import sql

from cdc.sources.postgres.catalog import SCHEMA
from cdc.sources.postgres.connection import Session
from cdc.sources.postgres.publication import DETAILED, OWN_TABLES, PLUGIN
from cdc.sources.source_facts import Check

_CREATED = """
SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = ANY (%s)
"""
_NAMES = ["heartbeat", "heartbeat_log", "marker"]
_OF_ALL = "SELECT pubname::text FROM pg_catalog.pg_publication WHERE puballtables"
_OF_SCHEMA = """
SELECT p.pubname::text
FROM pg_catalog.pg_publication p
JOIN pg_catalog.pg_publication_namespace s ON s.pnpubid = p.oid
JOIN pg_catalog.pg_namespace n ON n.oid = s.pnnspid
WHERE n.nspname = %s
"""
# Publications decide only what slots of this plugin send.
_SLOTS = """
SELECT slot_name::text FROM pg_catalog.pg_replication_slots
WHERE plugin = %s AND database = pg_catalog.current_database() AND NOT temporary ORDER BY 1
"""


def obstacle(session: Session, admin: str) -> tuple[str, str] | None:
    """Return why Tributary's PostgreSQL tables would stop subscribers of other tools, and a remedy.

    The result is None if Tributary's own tables already exist. It is also None if no publication
    would contain these tables, or if no slot sends publications.

    Args:
        session: A session on the primary.
        admin: The role that must own the tables.
    """
    publications = _covering(session)
    if not publications:
        return None
    slots = sending_slots(session)
    if not slots:
        return None
    statements = "; ".join(" ".join(table.split()) for table in OWN_TABLES)
    role = sql.Identifier(admin).as_string(None)
    return (
        f"{_listed_names('publication', publications)} would publish the tables that Tributary"
        f" creates in schema {SCHEMA}, and {_listed_names('slot', slots)} can send them to a"
        " subscriber. A subscriber without these tables stops, and the primary then keeps its"
        " log for it",
        f"Run on each subscriber, and then on the primary as role {role}:"
        f" CREATE SCHEMA IF NOT EXISTS {SCHEMA}; {statements}; Then run the command again. If no"
        " PostgreSQL server subscribes (but for example another connector of Debezium), run them on"
        " the primary only.",
    )


def sending_slots(session: Session) -> list[str]:
    """Return the names of the PostgreSQL database's slots that can send publications."""
    return [name for (name,) in session.execute(_SLOTS, (PLUGIN,)).fetchall()]


def check(session: Session, admin: str) -> list[Check]:
    """Return the line of ``check`` about PostgreSQL publications that cover Tributary's tables."""
    name = "publications of others"
    if found := obstacle(session, admin):
        return [Check(name, "error", *found)]
    if publications := _covering(session):
        detail = (
            f"{_listed_names('publication', publications)} will publish the tables of schema"
            f" {SCHEMA}, and no slot sends them yet"
        )
        return [Check(name, "note", detail)]
    return []


def _covering(session: Session) -> list[str]:
    """Return the names of the publications that would publish tables of schema ``tributary``.

    The result is empty if all of Tributary's own tables exist.
    """
    created = session.execute(_CREATED, (SCHEMA, _NAMES)).fetchone()
    if created == (len(_NAMES),):
        return []
    found = session.execute(_OF_ALL).fetchall()
    if session.info.server_version >= DETAILED:
        found += session.execute(_OF_SCHEMA, (SCHEMA,)).fetchall()
    return sorted({name for (name,) in found})


def _listed_names(what: str, names: list[str]) -> str:
    """Return the names of PostgreSQL publications or slots as words for a message."""
    return f"{what}{'s' if len(names) > 1 else ''} {', '.join(names)}"
