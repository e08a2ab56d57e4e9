"""Reads user-defined types with their names, by which Debezium looks up the types of columns.

`cdc.capture.type_looks` explains the lookup. The types of temporary tables are left out, since the
connector ignores them.

The labels of enums are read, too. If the connector mistakes an enum for another enum with the same
labels, the connector still reads all values correctly. If the other enum lacks a label, the
connector reads the table's definition again at each value with this label
(`cdc.run.later_definitions`).
"""

from __future__ import annotations

from collections.abc import Collection

from cdc.sources.named_types import TypedColumn
from cdc.sources.postgres.connection import Connections, Session
from cdc.store.kept_type_looks import NamedType, Names

_FROM = """
FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE t.oid >= 16384 AND n.nspname !~ '^pg_(toast|temp)'
"""

_DIGEST = f"""
SELECT pg_catalog.count(*) || ' ' || coalesce(pg_catalog.sum(pg_catalog.hashtextextended(
    pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(t.typname), t.oid::int8)), 0)
    || ' ' || (SELECT coalesce(pg_catalog.sum(pg_catalog.hashtextextended(
                   l.enumlabel::text, l.enumtypid::int8)), 0)
               FROM pg_catalog.pg_enum l)
{_FROM}
"""  # noqa: S608 - SQL of our own

# The connector reads the values of a domain as its base type's.
_TYPES = f"""
SELECT t.typname, n.nspname, t.oid,
       CASE WHEN t.typtype = 'e'
            THEN (SELECT 'enum ' || pg_catalog.md5(coalesce(pg_catalog.string_agg(
                      pg_catalog.quote_literal(l.enumlabel::text), ' ' ORDER BY l.enumlabel), ''))
                  FROM pg_catalog.pg_enum l WHERE l.enumtypid = t.oid)
            WHEN t.typbasetype IN ('text'::regtype, 'varchar'::regtype) THEN 'text'
            WHEN t.typtype = 'd' THEN t.typbasetype::text
            WHEN t.typtype = 'c' THEN 'row'
            ELSE '' END
{_FROM}
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_type e
                  WHERE e.typarray = t.oid AND e.typnamespace = t.typnamespace
                    AND t.typname = '_' || e.typname)
ORDER BY t.typname, n.nspname
"""  # noqa: S608 - SQL of our own

_COLUMNS = """
SELECT n.nspname, c.relname, a.attname, used.oid, a.atttypid <> used.oid
FROM (SELECT t.oid, unnest(ARRAY[t.oid, t.typarray]) AS type
      FROM pg_catalog.pg_type t WHERE t.oid = ANY(%s)) AS used
JOIN pg_catalog.pg_attribute a ON a.atttypid = used.type AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p')
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE used.type <> 0
ORDER BY n.nspname, c.relname, a.attnum
"""


class UserTypes:
    """User-defined types of a PostgreSQL database, as `cdc.sources.named_types.NamedTypes`.

    Args:
        connections: Opens sessions.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def digest(self) -> str:
        """Return a digest of PostgreSQL's user-defined types: names, object ids and labels."""
        with self._connections.open("admin") as session:
            return _read_types_digest(session)

    def read(self) -> tuple[str, Names]:
        """Return a digest of PostgreSQL's user-defined types, and the types by name and schema.

        The digest and the types are read at one moment.
        """
        types: dict[str, dict[str, NamedType]] = {}
        with self._connections.open("admin") as session, session.transaction():
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            digest = _read_types_digest(session)
            for name, schema, oid, form in session.execute(_TYPES).fetchall():
                types.setdefault(str(name), {})[str(schema)] = NamedType(int(oid), str(form))
        return digest, types

    def columns_of(self, types: Collection[int]) -> list[TypedColumn]:
        """Return PostgreSQL's columns that have a given type, or an array of a given type."""
        with self._connections.open("admin") as session:
            rows = session.execute(_COLUMNS, (list(types),)).fetchall()
        return [TypedColumn(*row) for row in rows]


def _read_types_digest(session: Session) -> str:
    """Return a digest of the user-defined types in the PostgreSQL catalog."""
    row = session.execute(_DIGEST).fetchone()
    return str(row[0]) if row else ""
