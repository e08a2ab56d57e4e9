"""Finds the rights that logins lack to replicate a table.

Without these checks, a table that cannot be read would fail in the middle of its copy. A table that
cannot be added to the publication would fail in the middle of an onboarding, and stop other tables.
"""

from __future__ import annotations

from psycopg import sql

from cdc.sources.postgres.catalog import missing
from cdc.sources.postgres.connection import Connections
from cdc.sources.postgres.publication import members
from cdc.sources.source_facts import SourceTable

# A role that adds a table to a publication must own the table, or inherit the owner's rights.
_OWNS = "SELECT pg_catalog.pg_has_role(%s::name, 'USAGE')"

# A statement that only reads the table's columns would lock all partitions while it is planned:
# thousands of them fill the server's table of locks. These functions lock nothing. Who reads a
# partitioned table needs rights on the root only, and only the root's policies apply. As for such a
# statement, all columns can be granted one by one. `row_security_active` is also true if the
# session's `row_security` is off, with which the statement would fail.
_READS = """
SELECT pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE'),
       pg_catalog.has_table_privilege(c.oid, 'SELECT'),
       array(SELECT wanted.name
             FROM unnest(%(columns)s::text[]) WITH ORDINALITY AS wanted (name, place)
             WHERE NOT pg_catalog.has_column_privilege(c.oid, wanted.name, 'SELECT')
             ORDER BY wanted.place),
       pg_catalog.row_security_active(c.oid)
FROM pg_catalog.pg_class c WHERE c.oid = %(table)s
"""


def missing_rights(
    connections: Connections, table: SourceTable, publication: str
) -> tuple[str, str] | None:
    """Return the problem and the remedy if a login lacks a right on a PostgreSQL table.

    Problem and remedy are parts of a message. The remedy has the statements that a superuser must
    run. The result is None if no right is missing.

    Args:
        connections: Opens sessions.
        table: The table.
        publication: The table's publication. If the publication lacks the table, the admin login
            needs the rights of the table's owner to add the table.
    """
    looked = (_not_owned(connections, table, publication), _select_lacking(connections, table))
    problems = [found for found in looked if found is not None]
    if not problems:
        return None
    return "; and ".join(what for what, _ in problems), (
        "Run as a superuser: " + " ".join(statement for _, statement in problems)
    )


def _not_owned(
    connections: Connections, table: SourceTable, publication: str
) -> tuple[str, str] | None:
    """Return why the admin login may not publish a PostgreSQL table, and the GRANT to run.

    The result is None if the login may publish the table, or if the publication already has it.
    """
    user = connections.credential("admin").user
    with connections.open("admin") as session:
        if session.execute(_OWNS, (table.owner,)).fetchone() == (True,):
            return None
        if (table.table.schema, table.table.name) in members(session, publication):
            return None
    grant = sql.SQL("GRANT {} TO {};").format(sql.Identifier(table.owner), sql.Identifier(user))
    return (
        f"belongs to {table.owner}, and only its owner may publish it: {user} is not a member of"
        " that role",
        grant.as_string(None),
    )


def _select_lacking(connections: Connections, table: SourceTable) -> tuple[str, str] | None:
    """Return why the snapshot login cannot read a PostgreSQL table, and the statements to run.

    The result is None if the login can read the table.

    Raises:
        SourceError: The table, or one of its columns, is gone.
    """
    names = [column.name for column in table.columns]
    with connections.open("snapshot") as session:
        found = session.execute(_READS, {"table": table.number, "columns": names}).fetchone()
    if found is None or found[1] is None:
        raise missing(table.table)
    uses_schema, reads_table, lacking, is_filtered = found
    user = connections.credential("snapshot").user
    schema, name = table.table.schema, table.table.name
    denied, grants = list[str](), list[sql.Composable]()
    if not uses_schema:
        denied.append(f"schema {schema}")
        grants.append(sql.SQL("GRANT USAGE ON SCHEMA {}").format(sql.Identifier(schema)))
    if not reads_table and (lacking or not names):
        some = f"columns {', '.join(lacking)} of " if len(lacking) < len(names) else ""
        denied.append(f"{some}table {name}")
        grants.append(sql.SQL("GRANT SELECT ON {}").format(sql.Identifier(schema, name)))
    login = sql.Identifier(user)
    statements = [sql.SQL("{} TO {};").format(grant, login) for grant in grants]
    reasons = [f"permission denied for {' and '.join(denied)}"] if denied else []
    if is_filtered:
        # Rows that a policy hides would be taken for deleted.
        statements.append(sql.SQL("ALTER ROLE {} BYPASSRLS;").format(login))
        reasons.append(f"row-level security policies of table {name} apply to this login")
    if not reasons:
        return None
    return (
        f"cannot be read as {user}: {'; '.join(reasons)}",
        " ".join(one.as_string(None) for one in statements),
    )
