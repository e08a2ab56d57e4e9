"""Finds columns whose type Debezium 3.7 can mistake for another type of the same name.

To read a column's values, the connector looks for the name of the column's type, first among the
types of the table's schema, then among the types of all schemas. If several schemas have a type of
this name, the connector uses the type that it registered first. It registers the server's own types
before user-defined types, and domains and arrays after all other types. It also registers the row
types of tables and views.

If the connector uses a wrong type, events can have NULL, 0 or an empty string in place of the
values. The connector decodes the server's own types by name alone. So the values of a column with
one of the server's own types are wrong only if the connector takes this type for a domain, an enum
or an array.

The connector registers the types when it starts. It leaves out the types of temporary tables, due
to the setting ``schema.exclude.list``.
"""

from __future__ import annotations

from collections.abc import Collection

from cdc.sources.postgres.connection import Session

_LATER = "({0}.typbasetype <> 0 OR {0}.typcategory = 'A' AND {0}.typelem <> 0)"

_OTHERS = f"""
SELECT t.oid, other.name
FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_namespace own ON own.oid = t.typnamespace
CROSS JOIN LATERAL (
    SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(u.typname)
    FROM pg_catalog.pg_type u
    JOIN pg_catalog.pg_namespace n ON n.oid = u.typnamespace
    WHERE u.typname = t.typname AND u.oid <> t.oid AND n.nspname !~ '^pg_(toast|temp)'
      AND (n.nspname = %(schema)s
           OR {_LATER.format("t")}
           OR t.oid >= 16384 AND NOT {_LATER.format("u")})
      AND (t.oid >= 16384 OR {_LATER.format("t")} OR {_LATER.format("u")} OR u.typtype = 'e')
    ORDER BY n.nspname <> %(schema)s, n.nspname LIMIT 1) AS other (name)
WHERE t.oid = ANY(%(types)s) AND own.nspname <> %(schema)s
"""  # noqa: S608 - SQL of our own


def others(session: Session, schema: str, types: Collection[int]) -> dict[int, str]:
    """Return PostgreSQL types that the connector can mistake for another type of the same name.

    Args:
        session: A session on the primary.
        schema: The schema of the table whose columns have these types.
        types: The object ids of the types.

    Returns:
        For the object id of each type that can be mistaken: the schema and the name of the other
        type, as one string.
    """
    found = session.execute(_OTHERS, {"schema": schema, "types": list(types)}).fetchall()
    return {int(oid): str(name) for oid, name in found}
