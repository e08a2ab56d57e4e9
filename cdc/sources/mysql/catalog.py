"""Reads tables and their keys from the catalog of MySQL and MariaDB."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from cdc.errors import MissingTableError
from cdc.sources.mysql.connection import Session
from cdc.sources.mysql.table_facts import PHYSICAL, Described, describe, describe_steady
from cdc.sources.source_facts import SourceColumn, SourceTable, TableKind, TableStats
from schemas.fingerprint import Fingerprint
from schemas.table import TableId

OWN = "tributary"
"""Name of the database with Tributary's own tables on the source."""

SYSTEM = ("information_schema", "innodb_memcache", "mysql", "performance_schema", "sys")
"""Databases of the server itself, whose tables are never captured."""

_SYSTEM = (*SYSTEM, OWN)

_TABLES = f"""
SELECT TABLE_SCHEMA AS db, TABLE_NAME AS name, TABLE_TYPE AS kind, ENGINE AS engine,
       TABLE_ROWS AS estimate, coalesce(DATA_LENGTH, 0) + coalesce(INDEX_LENGTH, 0) AS bytes,
       coalesce(CREATE_OPTIONS, '') AS options
FROM information_schema.TABLES
WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND TABLE_SCHEMA NOT IN {_SYSTEM}
ORDER BY TABLE_SCHEMA, TABLE_NAME
"""  # noqa: S608 - names of our own

_NAMES = f"""
SELECT TABLE_SCHEMA AS db, TABLE_NAME AS name FROM information_schema.TABLES
WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND TABLE_SCHEMA NOT IN {_SYSTEM}
"""  # noqa: S608

_KEYS = f"""
SELECT TABLE_SCHEMA AS db, TABLE_NAME AS name, COLUMN_NAME AS part
FROM information_schema.STATISTICS
WHERE INDEX_NAME = 'PRIMARY' AND TABLE_SCHEMA NOT IN {_SYSTEM}
ORDER BY TABLE_SCHEMA, TABLE_NAME, SEQ_IN_INDEX
"""  # noqa: S608

# MariaDB's types that stop Debezium's connector or reach it garbled, whether or not the lake has
# the column.
_UNREADABLE = frozenset({"inet4", "inet6", "uuid"})


def read_tables(session: Session, source: str, databases: Sequence[str]) -> list[TableStats]:
    """Return all MySQL or MariaDB user tables whose database matches one of the patterns."""
    keys: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for row in session.named(_KEYS):
        keys[row["db"], row["name"]].append(row["part"])
    return [
        TableStats(
            table=TableId(source, row["db"], row["name"]),
            kind=_table_kind(
                row["engine"], row["kind"], partitioned="partitioned" in row["options"]
            ),
            rows_estimate=None if row["estimate"] is None else int(row["estimate"]),
            total_bytes=int(row["bytes"]),
            primary_key=tuple(keys[row["db"], row["name"]]),
        )
        for row in session.named(_TABLES)
        if any(fnmatchcase(row["db"], pattern) for pattern in databases)
    ]


def read_names(session: Session, databases: Sequence[str]) -> set[tuple[str, str]]:
    """Return the database and the name of each MySQL or MariaDB table that the login may see.

    Tables are left out if their database matches none of the patterns in ``databases``.
    """
    return {
        (row["db"], row["name"])
        for row in session.named(_NAMES)
        if any(fnmatchcase(row["db"], pattern) for pattern in databases)
    }


def read_table(session: Session, table: TableId) -> SourceTable:
    """Return one table, with the table's columns, from the MySQL or MariaDB primary.

    Raises:
        MissingTableError: There is no such table, or the login may not see it.
        SourceError: The login lacks PROCESS.
    """
    return _source_table(_require_described(describe(session, [table]), table))


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
    found = describe(session, [table], on_replica=on_replica)
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
