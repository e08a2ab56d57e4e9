"""Reads tables and their keys from the catalog of MySQL and MariaDB."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from cdc.errors import MissingTableError
from cdc.sources.mysql.connection import Session
from cdc.sources.mysql.table_facts import (
    ARMS,
    PHYSICAL,
    Described,
    describe,
    describe_steady,
    for_each_condition,
    in_parts,
    rows_of_arms,
)
from cdc.sources.source_facts import SourceColumn, SourceTable, TableKind, TableStats
from schemas.fingerprint import Fingerprint
from schemas.table import TableId

OWN = "tributary"
"""Name of the database with Tributary's own tables on the source."""

SYSTEM = ("information_schema", "innodb_memcache", "mysql", "performance_schema", "sys")
"""Databases of the server itself, whose tables are never captured."""

_SYSTEM = (*SYSTEM, OWN)

_DATABASES = "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA ORDER BY SCHEMA_NAME"

_BYTES = "coalesce(DATA_LENGTH, 0) + coalesce(INDEX_LENGTH, 0) AS bytes"

_LISTED = "TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')"

_TABLES = f"""
SELECT TABLE_SCHEMA AS db, TABLE_NAME AS name, TABLE_TYPE AS kind, ENGINE AS engine,
       TABLE_ROWS AS estimate, {_BYTES}, coalesce(CREATE_OPTIONS, '') AS options
FROM information_schema.TABLES WHERE {_LISTED} AND {{where}}
"""  # noqa: S608 - names of our own

# Any other column would make MariaDB open each table. It reads a type from the definition's file.
_NAMES = f"""
SELECT TABLE_SCHEMA AS db, TABLE_NAME AS name
FROM information_schema.TABLES WHERE {_LISTED} AND {{where}}
"""  # noqa: S608

_SIZES = f"""
SELECT TABLE_SCHEMA AS db, TABLE_NAME AS tab, {_BYTES}
FROM information_schema.TABLES WHERE {_LISTED} AND {{where}}
"""  # noqa: S608

_KEYS = """
SELECT TABLE_SCHEMA AS db, TABLE_NAME AS name, COLUMN_NAME AS part, SEQ_IN_INDEX AS place
FROM information_schema.STATISTICS WHERE INDEX_NAME = 'PRIMARY' AND {where}
"""
_KEYS_ORDER = "ORDER BY db, name, place"

# MariaDB's types that stop Debezium's connector or reach it garbled, whether or not the lake has
# the column.
_UNREADABLE = frozenset({"inet4", "inet6", "uuid"})


def read_tables(session: Session, source: str, databases: Sequence[str]) -> list[TableStats]:
    """Return all MySQL or MariaDB user tables whose database matches one of the patterns.

    The tables are sorted by name.
    """
    chosen = _chosen_databases(session, databases)
    keys: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for row in _rows_of(session, _KEYS, chosen, _KEYS_ORDER):
        keys[row["db"], row["name"]].append(row["part"])
    found = [
        TableStats(
            table=TableId(source, row["db"], row["name"]),
            kind=_table_kind(
                row["engine"], row["kind"], partitioned="partitioned" in row["options"]
            ),
            rows_estimate=None if row["estimate"] is None else int(row["estimate"]),
            total_bytes=int(row["bytes"]),
            primary_key=tuple(keys[row["db"], row["name"]]),
        )
        for row in _rows_of(session, _TABLES, chosen)
    ]
    return sorted(found, key=lambda one: one.table)


def read_sizes(session: Session, tables: Collection[TableId]) -> dict[TableId, int]:
    """Return the bytes on disk of each of the given MySQL or MariaDB tables that exists."""
    return {
        table: int(row["bytes"])
        for arms in in_parts(tables)
        for table, row in rows_of_arms(session, _SIZES, arms)
    }


def read_names(
    session: Session, databases: Sequence[str], wanted: Callable[[str], bool] | None = None
) -> set[tuple[str, str]]:
    """Return the database and the name of each MySQL or MariaDB table that the login may see.

    The server opens none of the tables.

    Args:
        session: The login's session.
        databases: Patterns. Tables are left out if their database matches none of them.
        wanted: Whether tables of the database with the given name are wanted, too; None for all.
    """
    chosen = _chosen_databases(session, databases, wanted)
    return {(row["db"], row["name"]) for row in _rows_of(session, _NAMES, chosen)}


def _chosen_databases(
    session: Session, patterns: Sequence[str], wanted: Callable[[str], bool] | None = None
) -> list[str]:
    """Return the databases of a MySQL or MariaDB server whose tables are wanted.

    The catalog is asked for tables by the names of their databases, since the server would list the
    tables of all its databases for a pattern, and for none.
    """
    names = (str(row[0]) for row in session.rows(_DATABASES))
    return [
        name
        for name in names
        if name not in _SYSTEM
        and any(fnmatchcase(name, pattern) for pattern in patterns)
        and (wanted is None or wanted(name))
    ]


def _rows_of(
    session: Session, query: str, databases: Sequence[str], order: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a query of the MySQL or MariaDB catalog for the given databases."""
    for first in range(0, len(databases), ARMS):
        part = databases[first : first + ARMS]
        conditions = ["TABLE_SCHEMA = %s"] * len(part)
        yield from session.named(for_each_condition(session.kind, query, conditions, order), part)


def read_table(session: Session, table: TableId) -> SourceTable:
    """Return one table, with the table's columns, from the MySQL or MariaDB primary.

    The facts about files and log are not read: they are no part of the result.

    Raises:
        MissingTableError: There is no such table, or the login may not see it.
        SourceError: The table changed during each attempt to read it.
    """
    found = describe(session, [table], physical=False)
    return _source_table(_require_described(found, table))


def read_described(session: Session, table: TableId) -> tuple[SourceTable, Fingerprint]:
    """Return one table of the MySQL or MariaDB primary and its fingerprint, read at one moment.

    Raises:
        MissingTableError: There is no such table, or the login may not see it.
        SourceError: The login lacks PROCESS.
    """
    return as_values(session, _require_described(describe(session, [table]), table))


def as_values(session: Session, found: Described) -> tuple[SourceTable, Fingerprint]:
    """Convert a MySQL or MariaDB table's description to a `SourceTable` and a `Fingerprint`."""
    return _source_table(found), found.fingerprint(on_replica=False)


def read_fingerprint(session: Session, table: TableId, *, on_replica: bool = False) -> Fingerprint:
    """Return the fingerprint (facts of the catalog) of one MySQL or MariaDB table.

    Args:
        session: A session on the primary or the replica.
        table: The table.
        on_replica: Whether the session is on the replica. If so, the result lacks the facts
            about files and log (`PHYSICAL`). The caller adds these facts from the primary by
            :func:`with_files`.

    Raises:
        MissingTableError: There is no such table.
        SourceError: The table changed during each attempt to read it.
    """
    found = describe(session, [table], physical=not on_replica)
    return _require_described(found, table).fingerprint(on_replica=on_replica)


def read_fingerprints(session: Session, tables: Collection[TableId]) -> dict[TableId, Fingerprint]:
    """Return the fingerprint of each table on the MySQL or MariaDB primary.

    A table is left out if it does not exist, or if it changed during each attempt to read it.
    """
    found, _ = describe_steady(session, tables)
    return {table: one.fingerprint(on_replica=False) for table, one in found.items()}


def with_files(replica: Fingerprint, primary: Fingerprint) -> Fingerprint:
    """Return a MySQL or MariaDB replica's fingerprint with the primary's `PHYSICAL` facts.

    The result can be compared with a fingerprint of the primary.

    Every statement that the replica has executed was executed by the primary before. So if a
    statement has replaced the table's files on the replica, the primary's files are new, too.
    """
    files = {name: primary.facts[name] for name in PHYSICAL if name in primary.facts}
    return Fingerprint({**replica.facts, **files})


def _source_table(found: Described) -> SourceTable:
    """Convert a MySQL or MariaDB table's description to a `SourceTable`."""
    table, columns = found.table, found.source_columns()
    return SourceTable(
        table=table,
        kind=_table_kind(found.engine, found.kind, partitioned=found.partitioned),
        columns=columns,
        primary_key=found.primary_key,
        unique_indexes=found.unique,
        identity_columns=found.primary_key or tuple(column.name for column in columns),
        source_kind="mariadb" if found.of_mariadb else "mysql",
        hazards=_hazards_of_columns(columns) if found.of_mariadb else (),
        hashed_indexes=found.hashed,
    )


def _hazards_of_columns(columns: Sequence[SourceColumn]) -> tuple[str, ...]:
    """Return a sentence for each MariaDB column whose values stop the connector or are garbled."""
    return tuple(
        f"column {column.name} ({column.type}) stops the connector, or arrives garbled"
        for column in columns
        if str(column.type) in _UNREADABLE
    )


def _require_described(found: dict[TableId, Described], table: TableId) -> Described:
    """Return the description of a MySQL or MariaDB table.

    Raises:
        MissingTableError: There is no such table, or the login may not see it.
    """
    if table not in found:
        raise _missing_table_error(table)
    return found[table]


def _missing_table_error(table: TableId) -> MissingTableError:
    """Return the error for a table that the MySQL or MariaDB catalog lacks, or does not show."""
    return MissingTableError(
        f"source {table.source} has no table {table.relation}, or the login may not see it",
        remedy="List the tables with `tributary discover`; names are case-sensitive. If the table"
        f" was dropped, run `tributary offboard {table}`; if it was recreated, run `tributary"
        f" bootstrap {table}`.",
        table=table,
    )


def _table_kind(engine: str | None, kind: str, *, partitioned: bool) -> TableKind:
    """Return a MySQL or MariaDB table's kind.

    An ordinary InnoDB table is of kind ``table`` or ``partitioned``. Every other table is of kind
    ``other``. While applications write, a copy cannot read a table of kind ``other`` under one
    view.
    """
    if engine != "InnoDB" or kind != "BASE TABLE":
        return "other"
    return "partitioned" if partitioned else "table"
