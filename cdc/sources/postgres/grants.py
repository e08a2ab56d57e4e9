"""The privileges that each role needs, as statements to run or to print.

Those on schema ``tributary`` are none of them: they come with its creation, by onboarding.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from cdc.config import PostgresSourceConfig
from cdc.sources.values import SourceTable


def grants_sql(
    config: PostgresSourceConfig, tables: Sequence[SourceTable] = (), owner: str | None = None
) -> list[str]:
    """The statements, for a superuser or the owner of the objects, that give what is needed.

    Args:
        config: The source.
        tables: Tables to replicate; without any, the statements cover schema ``public``.
        owner: The role that owns the tables; the admin becomes its member. Taken from ``tables``
            when they are given.
    """
    users = config.credentials
    database = sql.Identifier(config.primary.database)
    admin, capture = sql.Identifier(users.admin.user), sql.Identifier(users.capture.user)
    statements: list[sql.Composable] = [
        sql.SQL("GRANT CONNECT, CREATE ON DATABASE {} TO {}").format(database, admin)
    ]
    owners = sorted({table.owner for table in tables} or ({owner} if owner else set()))
    statements += [
        sql.SQL("GRANT {} TO {}").format(sql.Identifier(name), admin)
        for name in owners
        if name != users.admin.user
    ]
    statements.append(sql.SQL("ALTER ROLE {} LOGIN REPLICATION").format(capture))
    schemas = sorted({table.table.schema for table in tables} or {"public"})
    for user in dict.fromkeys((users.capture.user, users.snapshot.user)):
        role = sql.Identifier(user)
        for name in schemas:
            statements.append(
                sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(sql.Identifier(name), role)
            )
        if tables:
            statements += [
                sql.SQL("GRANT SELECT ON {} TO {}").format(
                    sql.Identifier(table.table.schema, table.table.name), role
                )
                for table in tables
            ]
        else:
            statements.append(
                sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA {} TO {}").format(
                    sql.SQL(", ").join(sql.Identifier(name) for name in schemas), role
                )
            )
    return [statement.as_string(None) + ";" for statement in statements]
