"""Finds the rights that logins lack to replicate a table.

Without these checks, a table that cannot be read would fail in the middle of its copy. A table that
cannot be added to the publication would fail in the middle of an onboarding, and stop other tables.
"""

from __future__ import annotations

import psycopg
from psycopg import sql

from cdc.sources.postgres.connection import Connections
from cdc.sources.postgres.publication import members
from cdc.sources.source_facts import SourceTable

# A role that adds a table to a publication must own the table, or inherit the owner's rights.
_OWNS = "SELECT pg_catalog.pg_has_role(%s::name, 'USAGE')"
_POLICY = "row-level security"


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
    """
    user = sql.Identifier(connections.credential("snapshot").user)
    schema, name = sql.Identifier(table.table.schema), table.table.name
    columns = [sql.Identifier(column.name) for column in table.columns]
    query = sql.SQL("SELECT {} FROM {} LIMIT 0").format(
        sql.SQL(", ").join(columns), sql.Identifier(table.table.schema, name)
    )
    with connections.open("snapshot") as session:
        try:
            session.execute(query)
        except psycopg.errors.InsufficientPrivilege as error:
            why = " ".join((error.diag.message_primary or str(error)).split())
        else:
            return None
    grants = [
        sql.SQL("GRANT USAGE ON SCHEMA {} TO {};").format(schema, user),
        sql.SQL("GRANT SELECT ON {} TO {};").format(sql.Identifier(table.table.schema, name), user),
    ]
    if _POLICY in why:
        # Rows that a policy hides would be taken for deleted.
        grants = [sql.SQL("ALTER ROLE {} BYPASSRLS;").format(user)]
    statements = " ".join(one.as_string(None) for one in grants)
    return f"cannot be read as {connections.credential('snapshot').user}: {why}", statements
