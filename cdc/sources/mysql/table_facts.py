"""Reads descriptions of tables from the catalog, and computes their fingerprints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cdc.errors import SourceError
from cdc.sources.mysql.connection import Session
from cdc.sources.mysql.innodb import Stored, read_stored
from cdc.sources.mysql.own_files import read_own_files
from cdc.sources.mysql.primary import binlog_filter
from cdc.sources.mysql.replicated_changes import applied
from cdc.sources.mysql.virtual_columns import session_bound
from cdc.sources.source_facts import SourceColumn
from schemas.fingerprint import Fingerprint
from schemas.table import TableId
from schemas.types_mysql import MysqlType

PHYSICAL = ("table_id", "altered", "unlogged")
"""Names of the facts about a server's files and log. On the replica, these facts differ."""

_ATTEMPTS = 5
_PART = 100
"""Maximum number of tables that one statement reads."""
ARMS = 50
"""Maximum number of databases in one statement. On MariaDB, each has a SELECT of its own in it."""

Facts = TypeVar("Facts")

_COLUMNS = """
SELECT TABLE_SCHEMA AS db, TABLE_NAME AS tab, COLUMN_NAME AS name, COLUMN_TYPE AS shown,
       COLUMN_DEFAULT AS value, IS_NULLABLE AS nullable, CHARACTER_SET_NAME AS charset,
       COLLATION_NAME AS collation, GENERATION_EXPRESSION AS expression, EXTRA AS extra,
       ORDINAL_POSITION AS place
FROM information_schema.COLUMNS WHERE {where}
"""
_COLUMNS_ORDER = "ORDER BY db, tab, place"
_INDEXES = """
SELECT TABLE_SCHEMA AS db, TABLE_NAME AS tab, INDEX_NAME AS name, COLUMN_NAME AS part,
       SUB_PART AS prefix, INDEX_TYPE AS how, INDEX_NAME <> 'PRIMARY' AS other,
       SEQ_IN_INDEX AS place
FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0 AND {where}
"""
_INDEXES_ORDER = "ORDER BY db, tab, other, name, place"
_TABLES = """
SELECT TABLE_SCHEMA AS db, TABLE_NAME AS tab, TABLE_TYPE AS kind, ENGINE AS engine,
       CREATE_TIME AS created, coalesce(CREATE_OPTIONS, '') AS options
FROM information_schema.TABLES WHERE TABLE_TYPE <> 'VIEW' AND {where}
"""


@dataclass(frozen=True)
class Described:
    """The description of one table in the catalog of MySQL or MariaDB.

    Args:
        table: The table.
        kind: The table's ``TABLE_TYPE``, for example ``BASE TABLE``.
        engine: The table's storage engine.
        partitioned: Whether the table has partitions.
        created: The table's ``CREATE_TIME``, as the server prints it.
        columns: Rows of ``information_schema.COLUMNS``, in order.
        primary_key: Columns of the primary key, in the key's order.
        unique: Columns of each unique index. The primary key comes first. Indexes on expressions or
            on prefixes of columns are left out.
        stored: InnoDB's ids of the files with the table's rows; None for a table of another engine,
            and for a table on a replica.
        of_mariadb: Whether the server is MariaDB.
        unlogged: One string with two parts: the GTIDs of replicated transactions that the binlog
            lacks, and why a filter can leave the table's changes out of the binlog. Each part can
            be empty.
        hashed: Names of the unique indexes for which MariaDB keeps a hash in a hidden column.
    """

    table: TableId
    kind: str
    engine: str
    partitioned: bool
    created: str
    columns: tuple[Mapping[str, Any], ...]
    primary_key: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...]
    stored: Stored | None
    of_mariadb: bool
    unlogged: str = ""
    hashed: tuple[str, ...] = ()

    def source_columns(self) -> tuple[SourceColumn, ...]:
        """Return the table's columns as `SourceColumn` objects.

        ``generated`` is False for all columns, since the binlog has generated columns, too.
        """
        depends_on = session_bound(self.columns, of_mariadb=self.of_mariadb)
        return tuple(
            SourceColumn(
                name=row["name"],
                type=MysqlType.parse(row["shown"], row["charset"] or ""),
                nullable=row["nullable"] == "YES",
                generated=False,
                default_sql=self._default(row),
                depends_on=depends_on.get(row["name"], ""),
            )
            for row in self.columns
        )

    def fingerprint(self, *, on_replica: bool) -> Fingerprint:
        """Return a MySQL or MariaDB table's fingerprint, for `schemas.catalog.Catalog` to read."""
        facts: dict[str, Any] = {
            "engine": self.engine,
            "kind": self.kind,
            "partitioned": self.partitioned,
            "source_kind": "mariadb" if self.of_mariadb else "mysql",
            "columns": {row["name"]: self._column(row) for row in self.columns},
            "primary_key": list(self.primary_key),
            # A new expression gives all rows new values without any event.
            "expressions": {
                row["name"]: row["expression"] for row in self.columns if row["expression"]
            },
        }
        if not on_replica:
            altered = self.stored.altered if self.stored else None
            facts |= {
                "table_id": self.stored.shown if self.stored else "",
                # MySQL shows columns that were added and dropped in place. MariaDB has only the
                # time of the last ALTER of any kind.
                "altered": self.created if altered is None else altered,
                "unlogged": self.unlogged,
            }
        return Fingerprint(facts)

    def _column(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry of one MySQL or MariaDB column in the fingerprint."""
        return {
            "shown": row["shown"],
            "nullable": row["nullable"] == "YES",
            "default": row["expression"] or self._default(row),
            "generated": False,
            # A planned definition of a plain column has no such fact.
            "numbered": "auto_increment" in str(row.get("extra") or "").lower(),
            "written": " ".join(
                str(row[one]) for one in ("shown", "charset", "collation") if row[one]
            ),
        }

    def _default(self, row: Mapping[str, Any]) -> str | None:
        """Return a column's default as MySQL or MariaDB prints it; None for NULL or no default."""
        value = row["value"]
        # MariaDB prints a default as an expression: a text is in quotes, and NULL is a word.
        return None if value is None or (self.of_mariadb and value == "NULL") else str(value)


def describe(
    session: Session, tables: Collection[TableId], *, physical: bool = True
) -> dict[TableId, Described]:
    """Return the description of each of the given MySQL or MariaDB tables that exists.

    A description shows its table at one moment.

    Args:
        session: A session.
        tables: The tables.
        physical: Whether to read the facts about the server's files and log (`PHYSICAL`), too. A
            replica's differ from the primary's, and a login needs a right to read them.

    Raises:
        SourceError: A table changed during each attempt to read it, or the login lacks PROCESS.
    """
    found, unsteady = describe_steady(session, tables, physical=physical)
    if unsteady:
        names = ", ".join(sorted(map(str, unsteady))[:_ATTEMPTS])
        raise SourceError(
            f"the definitions of these tables changed at each reading: {names}",
            remedy="Wait until the running ALTER TABLE statements have ended; then run the command"
            " again.",
        )
    return found


def describe_steady(
    session: Session, tables: Collection[TableId], *, physical: bool = True
) -> tuple[dict[TableId, Described], set[TableId]]:
    """Return the descriptions of MySQL or MariaDB tables, and the tables that could not be read.

    A description shows its table at one moment. The catalog is read by several statements, between
    which a table can change. So a table is read until two successive results are equal. A table
    could not be read if it changed at each attempt.

    The facts about files are read once, between two readings that are equal. These facts never
    become what they were before, except that MariaDB's time of the last ALTER stays the same for a
    second. So a change after they were read shows at the next call, and a change before that is
    part of the description, or shows at the next call.

    Raises:
        SourceError: The login lacks PROCESS.
    """
    if not tables:
        return {}, set()
    # This is read before the catalog. The next call then shows transactions that are replicated
    # after this read.
    unlogged = _unlogged(session, tables) if physical else {}
    found, unsteady = read_steady(
        lambda some: _read_descriptions(session, some),
        tables,
        between=lambda some: _with_files(session, some) if physical else some,
    )
    return {
        table: replace(one, unlogged=unlogged.get(table, "")) for table, one in found.items()
    }, unsteady


def read_steady(
    read: Callable[[Collection[TableId]], Mapping[TableId, Facts]],
    tables: Collection[TableId],
    between: Callable[[Mapping[TableId, Facts]], Mapping[TableId, Facts]] = dict,
) -> tuple[dict[TableId, Facts], set[TableId]]:
    """Read MySQL or MariaDB tables until two successive results for each table are equal.

    Args:
        read: Takes tables, reads them once, and returns one result for each table that exists.
        tables: The tables.
        between: Takes the results of the first of two readings, and completes them by what is read
            before the second one.

    Returns:
        The results for the tables that exist, and the tables whose results differed each time.
    """
    found: dict[TableId, Facts] = {}
    left = set(tables)
    before = read(left)
    for _ in range(_ATTEMPTS):
        whole = between(before)
        now = read(left)
        steady = {table for table in left if now.get(table) == before.get(table)}
        found |= {table: one for table, one in whole.items() if table in steady}
        left -= steady
        before = {table: one for table, one in now.items() if table in left}
        if not left:
            break
    return found, left


def _unlogged(session: Session, tables: Collection[TableId]) -> dict[TableId, str]:
    """Return the value of `Described.unlogged` for each MySQL or MariaDB table."""
    kind = session.kind
    replicated, filtered = applied(session, kind), binlog_filter(session, kind)
    return {
        table: " ".join(filter(None, (replicated, filtered.leaves_out(table.schema))))
        for table in tables
    }


def _read_descriptions(session: Session, tables: Collection[TableId]) -> dict[TableId, Described]:
    """Read MySQL's or MariaDB's tables by several statements, between which a table can change."""
    session.read_fresh_statistics()
    found: dict[TableId, Described] = {}
    for arms in in_parts(tables):
        found |= _read_part(session, arms)
    return found


def _with_files(session: Session, tables: Mapping[TableId, Described]) -> dict[TableId, Described]:
    """Return the descriptions with the facts about the files of MySQL's or MariaDB's tables."""
    innodb = {table: one.partitioned for table, one in tables.items() if one.engine == "InnoDB"}
    if session.kind == "mysql":
        stored = read_own_files(session, innodb)
    else:
        stored = read_stored(session, session.kind, innodb)
    return {table: replace(one, stored=stored.get(table)) for table, one in tables.items()}


def in_parts(tables: Collection[TableId]) -> Iterator[list[list[TableId]]]:
    """Yield the tables of each statement, grouped by database: at most `_PART` tables for each.

    A statement with thousands of tables would be slow.
    """
    ordered = sorted(tables, key=str)
    for first in range(0, len(ordered), _PART):
        yield from of_databases(ordered[first : first + _PART])


def of_databases(tables: Sequence[TableId]) -> list[list[list[TableId]]]:
    """Return the tables of each statement, grouped by database: at most `ARMS` groups for each.

    MariaDB reads only the folders of the databases that a condition names by AND. For conditions
    that are joined by OR, it lists the folders of all databases.
    """
    groups: defaultdict[str, list[TableId]] = defaultdict(list)
    for table in tables:
        groups[table.schema].append(table)
    arms = list(groups.values())
    return [arms[first : first + ARMS] for first in range(0, len(arms), ARMS)]


def _read_part(
    session: Session, arms: Sequence[Sequence[TableId]]
) -> Iterator[tuple[TableId, Described]]:
    """Yield the descriptions of at most `_PART` MySQL or MariaDB tables, grouped by database."""
    kind = session.kind
    columns: defaultdict[TableId, list[Mapping[str, Any]]] = defaultdict(list)
    for table, row in rows_of_arms(session, _COLUMNS, arms, _COLUMNS_ORDER):
        columns[table].append(row)
    indexes: defaultdict[TableId, dict[str, list[str | None]]] = defaultdict(dict)
    hashed: defaultdict[TableId, dict[str, None]] = defaultdict(dict)
    for table, row in rows_of_arms(session, _INDEXES, arms, _INDEXES_ORDER):
        # A unique index on a prefix or an expression allows equal values of the whole column.
        whole = row["part"] if row["prefix"] is None else None
        indexes[table].setdefault(row["name"], []).append(whole)
        if kind == "mariadb" and row["how"] == "HASH":
            hashed[table][row["name"]] = None
    for table, row in rows_of_arms(session, _TABLES, arms):
        if columns[table]:
            found = _described_table(table, row, columns[table], indexes[table], kind)
            yield table, replace(found, hashed=tuple(hashed[table]))


def rows_of_arms(
    session: Session, query: str, arms: Sequence[Sequence[TableId]], order: str = ""
) -> Iterator[tuple[TableId, Mapping[str, Any]]]:
    """Yield each row of a query of MySQL's or MariaDB's catalog, with the row's table.

    Args:
        session: A session on the server.
        query: A SELECT whose columns ``db`` and ``tab`` name the table; see `for_each_condition`.
        arms: The tables of one statement, grouped by database.
        order: The statement's ORDER BY; empty if the order does not matter.
    """
    by_name = {(table.schema, table.name): table for arm in arms for table in arm}
    values = [name for arm in arms for name in (arm[0].schema, *(table.name for table in arm))]
    conditions = []
    for arm in arms:
        # For an equality, MariaDB opens one file; for a list, it reads the folder's names first.
        named = "= %s" if len(arm) == 1 else f"IN ({', '.join(['%s'] * len(arm))})"
        conditions.append(f"(TABLE_SCHEMA = %s AND TABLE_NAME {named})")
    statement = for_each_condition(session.kind, query, conditions, order)
    for row in session.named(statement, values):
        if table := by_name.get((row["db"], row["tab"])):
            yield table, row


def for_each_condition(kind: str, query: str, conditions: Sequence[str], order: str = "") -> str:
    """Return one statement with the rows of MySQL's or MariaDB's catalog that meet a condition.

    Args:
        kind: The server's kind.
        query: A SELECT from ``information_schema``, with ``{where}`` in place of a condition.
        conditions: Conditions of which no row meets two, each on one database.
        order: The statement's ORDER BY; empty if the order does not matter.
    """
    if kind == "mysql":
        # Its catalog has indexes, which it uses for conditions joined by OR, too. A plan for each
        # SELECT would take longer than the search.
        conditions = [f"({' OR '.join(conditions)})"]
    return "UNION ALL".join(query.format(where=one) for one in conditions) + order


def _described_table(
    table: TableId,
    row: Mapping[str, Any],
    columns: Sequence[Mapping[str, Any]],
    indexes: Mapping[str, Sequence[str | None]],
    kind: str,
) -> Described:
    """Return a MySQL or MariaDB table's description from the rows of the server's catalog."""
    unique = {name: parts for name, parts in indexes.items() if None not in parts}
    return Described(
        table=table,
        kind=row["kind"],
        engine=row["engine"] or "",
        partitioned="partitioned" in row["options"],
        created=str(row["created"]),
        columns=tuple(columns),
        primary_key=tuple(str(part) for part in unique.get("PRIMARY", ())),
        unique=tuple(tuple(str(part) for part in parts) for parts in unique.values()),
        stored=None,
        of_mariadb=kind == "mariadb",
    )
