"""Finds out whether a publication publishes all changes of one table."""

from __future__ import annotations

from cdc.sources.postgres.connection import Session
from cdc.sources.postgres.publication import DETAILED
from cdc.sources.source_facts import SourceTable

# The view pg_publication_tables would compute all tables of the publication. From version 16 on, it
# would also wait for the lock of each one.
_MEMBER = """
SELECT (SELECT array_agg(a.attname::text) FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = r.prrelid AND a.attnum = ANY(r.prattrs::int2[])),
       pg_catalog.pg_get_expr(r.prqual, r.prrelid)
FROM pg_catalog.pg_publication p
LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = %(table)s
WHERE p.pubname = %(publication)s AND (r.oid IS NOT NULL OR p.puballtables OR EXISTS (
    SELECT FROM pg_catalog.pg_publication_namespace s
    JOIN pg_catalog.pg_class c ON c.relnamespace = s.pnnspid
    WHERE s.pnpubid = p.oid AND c.oid = %(table)s))
"""
_PLAIN_MEMBER = """
SELECT NULL::text[], NULL::text
FROM pg_catalog.pg_publication p
LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = %(table)s
WHERE p.pubname = %(publication)s AND (r.oid IS NOT NULL OR p.puballtables)
"""


def audit_table(session: Session, publication: str, table: SourceTable) -> list[str]:
    """Return the problems due to which one PostgreSQL table's changes are not published in full."""
    findings: list[str] = []
    if table.partition_root is not None:
        findings.append(
            f"table {table.table} is a partition of {table.partition_root} now, so its changes"
            " may be published as that table's"
        )
    detailed = session.info.server_version >= DETAILED
    member = session.execute(
        _MEMBER if detailed else _PLAIN_MEMBER,
        {"publication": publication, "table": table.number},
    ).fetchone()
    if member is None:
        findings.append(f"table {table.table} is not in publication {publication}")
        return findings
    if member[0] is not None:
        logged = {column.name for column in table.columns if not column.generated}
        left_out = sorted(logged - set(member[0]))
        if left_out:
            findings.append(
                f"publication {publication} leaves out columns of {table.table}: "
                + ", ".join(left_out)
            )
    if member[1] is not None:
        findings.append(f"publication {publication} filters rows of {table.table}: {member[1]}")
    return findings
