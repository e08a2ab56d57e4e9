"""Computes a table as it would be after planned statements, which are not executed.

Only a server knows how its catalog prints a column's definition. So this module creates a temporary
table with one column, which has the planned definition, and reads the column back from the catalog.
The temporary table is in database ``tributary``. Other sessions do not see it, and a row-based
binlog does not contain it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pymysql
from pymysql.constants import CR, ER

from cdc.errors import SourceError
from cdc.sources.mysql import catalog
from cdc.sources.mysql.catalog import OWN
from cdc.sources.mysql.connection import Session, quoted
from cdc.sources.mysql.keys import relation_of
from cdc.sources.mysql.preparation import cascades_unseen
from cdc.sources.mysql.table_facts import Described, describe
from cdc.sources.source_facts import Planned
from schemas.ddl.mysql_statements import read_statements
from schemas.errors import DdlError
from schemas.fingerprint import READ_AT, Fingerprint
from schemas.planned_ddl.column_clauses import Drop, Rename
from schemas.planned_ddl.mysql_clauses import (
    Add,
    AddUnique,
    Clause,
    Definition,
    DropIndex,
    Redefine,
    RenameIndex,
    SetDefault,
    Statement,
)
from schemas.table import TableId

Row = Mapping[str, Any]
"""A column's row of ``information_schema.COLUMNS``, as in `Described.columns`."""

_INDEXES = """
SELECT INDEX_NAME AS name, COLUMN_NAME AS part, SUB_PART AS prefix
FROM information_schema.STATISTICS
WHERE NON_UNIQUE = 0 AND TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY INDEX_NAME, SEQ_IN_INDEX
"""
_COLLATION = """
SELECT TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""
_PLACE = f"{OWN}.planned"
_OURS = frozenset(
    {ER.DBACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR, ER.OPTION_PREVENTS_STATEMENT}
)
"""Errors whose cause is the login or the server, and not the planned statement."""


@dataclass(frozen=True)
class Lookups:
    """Answers that only the MySQL or MariaDB server can give.

    Args:
        define: Takes the SQL of a column's definition. Returns the row that the catalog would have
            for this column, with ``shown``, ``nullable``, ``value``, ``charset`` and ``collation``.
        defaults: The default of each column, by name, as ``define`` returns it in ``value``.
        indexes: The columns of each unique index, by the index's name; empty for an index on a
            column's prefix or on an expression.
    """

    define: Callable[[str], Row]
    defaults: Mapping[str, str | None]
    indexes: Mapping[str, tuple[str, ...]]


def after_statements(
    session: Session, table: TableId, fingerprint: Fingerprint, statements: Sequence[Statement]
) -> Planned:
    """Return the MySQL or MariaDB table as it would be after the statements.

    Args:
        session: A session of the admin login on the primary.
        table: The table.
        fingerprint: The table's fingerprint, which must still be current.
        statements: The planned statements.

    Raises:
        DdlError: A statement does not fit the table, or the server refuses a definition.
        SourceError: The table no longer has this fingerprint, or the server cannot be queried.
    """
    found = describe(session, [table]).get(table)
    if found is None or found.fingerprint(on_replica=False).digest != fingerprint.digest:
        raise SourceError(
            f"table {table} changed while its definition was read",
            remedy="Run the command again.",
            table=table,
        )
    with _open_lookups(session, table) as lookups:
        then = after_definitions(found, statements, lookups)
    source_table, facts = catalog.as_values(session, then)
    facts = Fingerprint({**facts.facts, READ_AT: fingerprint.facts[READ_AT]})
    effects = read_statements(statement.text for statement in statements)
    if effects.cascades and cascades_unseen(session):
        effects = effects.without_events_of_cascades()
    return Planned(source_table, facts, statements=effects)


@contextmanager
def _open_lookups(session: Session, table: TableId) -> Iterator[Lookups]:
    """Yield a table's `Lookups`, whose answers come from the MySQL or MariaDB server."""
    names = (table.schema, table.name)
    _require_row_format(session, table)
    collation = str(session.value(_COLLATION, names))

    def define(definition: str) -> Row:
        try:
            session.rows(
                f"CREATE TEMPORARY TABLE {_PLACE} ({definition})"
                f" ENGINE = InnoDB DEFAULT COLLATE {collation}"
            )
        except pymysql.MySQLError as error:
            code = error.args[0] if error.args else CR.CR_UNKNOWN_ERROR
            if code in _OURS or code >= CR.CR_ERROR_FIRST:
                raise
            raise _unfit_statements(
                table, f"the server refuses {definition}: {error.args[-1]}"
            ) from error
        try:
            (row,) = session.named(f"SHOW FULL COLUMNS FROM {_PLACE}")
        finally:
            session.rows(f"DROP TEMPORARY TABLE {_PLACE}")
        return _as_catalog(row)

    shown = session.named(f"SHOW COLUMNS FROM {relation_of(table)}")
    indexes: dict[str, list[str | None]] = {}
    for row in session.named(_INDEXES, names):
        whole = row["part"] if row["prefix"] is None else None
        indexes.setdefault(row["name"], []).append(whole)
    yield Lookups(
        define,
        {row["Field"]: row["Default"] for row in shown},
        {
            name: () if None in parts else tuple(str(part) for part in parts)
            for name, parts in indexes.items()
        },
    )


def _require_row_format(session: Session, table: TableId) -> None:
    """Refuse a MySQL or MariaDB session that would log the creation of the temporary table."""
    found = session.rows("SHOW SESSION VARIABLES LIKE 'binlog_format'")
    if found and found[0][1] != "ROW":
        raise SourceError(
            f"the server of table {table} has binlog_format = {found[0][1]}",
            remedy="Set binlog_format = ROW, which capture needs.",
            table=table,
        )


def _as_catalog(row: Row) -> Row:
    """Convert a row of SHOW FULL COLUMNS to the row that ``information_schema.COLUMNS`` has."""
    collation = row["Collation"]
    return {
        "name": row["Field"],
        "shown": row["Type"],
        "value": row["Default"],
        "nullable": row["Null"],
        # A collation's name begins with its character set's.
        "charset": collation and str(collation).partition("_")[0],
        "collation": collation,
        "expression": "",
    }


def after_definitions(
    found: Described, statements: Sequence[Statement], lookups: Lookups
) -> Described:
    """Return a MySQL or MariaDB table's description as it would be after planned statements.

    Raises:
        DdlError: A statement does not fit the table.
    """
    draft = _Draft(found, lookups)
    for statement in statements:
        if not statement.clauses and read_statements([statement.text]).grave:
            break  # later statements are about a table whose state is not known
        draft.apply(statement.clauses)
    return draft.result()


class _Draft:
    """The description of a MySQL or MariaDB table, to which planned statements are applied."""

    def __init__(self, found: Described, lookups: Lookups) -> None:
        self._found, self._lookups = found, lookups
        self._table = found.table
        self._rows: list[Row] = list(found.columns)
        self._key = found.primary_key
        self._defaults = dict(lookups.defaults)
        # The names of indexes do not depend on case.
        self._indexes = {name.lower(): parts for name, parts in lookups.indexes.items()}

    def result(self) -> Described:
        key = (self._key,) if self._key else ()
        return replace(
            self._found,
            columns=tuple(self._rows),
            primary_key=self._key,
            unique=(*key, *(parts for name, parts in self._unique() if name != "primary")),
        )

    def apply(self, clauses: Sequence[Clause]) -> None:
        """Apply one MySQL or MariaDB statement's clauses to the result of earlier statements.

        The clauses use the column names that the table had before the statement.
        """
        before = {row["name"]: row for row in self._rows}
        after: dict[str, Row | None] = dict(before)
        added: list[Row] = []
        placed: list[tuple[str, str]] = []
        for clause in clauses:
            if isinstance(clause, Add):
                if clause.if_missing and self._is_there(clause.column.name):
                    continue
                added.append(self._defined(clause.column))
                _note_place(placed, clause.column.name, clause.place)
            elif isinstance(clause, Redefine):
                old = self._row(clause.name)
                after[clause.name] = self._defined(clause.column, old)
                _note_place(placed, clause.column.name, clause.place)
            elif isinstance(clause, Drop):
                if not (clause.if_there and not self._is_there(clause.name)):
                    self._row(clause.name)
                    after[clause.name] = None
            elif isinstance(clause, Rename):
                self._defaults[clause.to] = self._lookups.defaults.get(clause.name)
                after[clause.name] = {**self._row(clause.name), "name": clause.to}
            elif isinstance(clause, SetDefault):
                after[clause.name] = self._defaulted(self._row(clause.name), clause.default)
        self._rows = [row for name in before if (row := after[name]) is not None] + added
        self._require_once()
        for name, place in placed:
            self._move(name, place)
        self._rename_in_indexes(
            {name: None if row is None else str(row["name"]) for name, row in after.items()}
        )
        for clause in clauses:
            self._index(clause)
        if self._key:
            key = set(self._key)
            self._rows = [
                {**row, "nullable": "NO"} if row["name"] in key else row for row in self._rows
            ]

    def _defined(self, column: Definition, old: Row | None = None) -> Row:
        """Return the catalog row that MySQL or MariaDB would have for a column's new definition.

        Args:
            column: The new definition.
            old: The column's row before the statement; None for a new column.
        """
        row = {**self._lookups.define(column.sql), "name": column.name}
        if column.not_null:
            row["nullable"] = "NO"
        if column.expression is not None:
            if old is not None and old["expression"]:
                why = "only the server can compare its old and new expression"
                raise _unfit_statements(
                    self._table, f"{column.name!r} is a generated column: {why}"
                )
            row["expression"] = column.expression
            row["extra"] = "STORED GENERATED" if column.stored else "VIRTUAL GENERATED"
        # SHOW COLUMNS and information_schema print a default differently.
        if old is not None and self._defaults.get(old["name"]) == row["value"]:
            shown, row["value"] = row["value"], old["value"]
        else:
            shown = row["value"]
        self._defaults[column.name] = shown
        return row

    def _defaulted(self, row: Row, default: str | None) -> Row:
        """Return a MySQL or MariaDB column's catalog row after a change of its default.

        Args:
            row: The column's catalog row before the change.
            default: The new default as SQL; None if the default is dropped.
        """
        if default is None:
            self._defaults[row["name"]] = None
            return {**row, "value": None}
        text = f" COLLATE {row['collation']}" if row["collation"] else ""
        definition = f"{quoted(row['name'])} {row['shown']}{text} DEFAULT {default}"
        value = self._lookups.define(definition)["value"]
        if self._defaults.get(row["name"]) == value:
            return row
        self._defaults[row["name"]] = value
        return {**row, "value": value}

    def _index(self, clause: Clause) -> None:
        """Apply a clause of MySQL or MariaDB to the primary key and the unique indexes."""
        if isinstance(clause, AddUnique):
            for name in clause.columns:
                self._row(name)
            self._indexes[clause.name.lower()] = clause.columns
            if clause.primary:
                self._key = clause.columns
        elif isinstance(clause, DropIndex):
            self._indexes.pop(clause.name.lower(), None)
        elif isinstance(clause, RenameIndex):
            if (name := clause.name.lower()) in self._indexes:
                self._indexes[clause.to.lower()] = self._indexes.pop(name)
        elif isinstance(clause, (Add, Redefine)):
            if clause.column.primary:
                self._key = (clause.column.name,)
            if clause.column.unique:
                self._indexes[clause.column.name.lower()] = (clause.column.name,)

    def _rename_in_indexes(self, names: Mapping[str, str | None]) -> None:
        """Rename columns in the keys and indexes of MySQL or MariaDB, and remove dropped columns.

        An index that loses all its columns stays, with an empty list of columns.

        Args:
            names: The new name of each column, by its old name; None for a dropped column.
        """

        def renamed(parts: Sequence[str]) -> tuple[str, ...]:
            now = (names.get(part, part) for part in parts)
            return tuple(part for part in now if part is not None)

        self._key = renamed(self._key)
        self._indexes = {name: renamed(parts) for name, parts in self._indexes.items()}

    def _unique(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the name and the columns of each MySQL or MariaDB unique index that has columns."""
        return ((name, parts) for name, parts in self._indexes.items() if parts)

    def _move(self, name: str, place: str) -> None:
        """Move a MySQL or MariaDB column after ``place``; to the front if ``place`` is empty."""
        row = self._row(name)
        self._rows.remove(row)
        after = 0 if place == "" else self._rows.index(self._row(place)) + 1
        self._rows.insert(after, row)

    def _is_there(self, name: str) -> bool:
        return any(row["name"].lower() == name.lower() for row in self._rows)

    def _row(self, name: str) -> Row:
        """Return the catalog row of a MySQL or MariaDB column.

        Raises:
            DdlError: There is no such column, or ``name`` has the wrong letter case.
        """
        for row in self._rows:
            if row["name"] == name:
                return row
            if row["name"].lower() == name.lower():
                why = f"write column {name!r} as the catalog has it, {row['name']!r}"
                raise _unfit_statements(self._table, why)
        raise _unfit_statements(self._table, f"there is no column {name!r}")

    def _require_once(self) -> None:
        """Raise a `DdlError` if two columns of the MySQL or MariaDB table have the same name."""
        names = [row["name"].lower() for row in self._rows]
        if doubled := next((name for name in names if names.count(name) > 1), None):
            raise _unfit_statements(self._table, f"two columns would have the name {doubled!r}")


def _note_place(placed: list[tuple[str, str]], name: str, place: str | None) -> None:
    """Record in ``placed`` that a MySQL or MariaDB column comes directly after column ``place``.

    An empty ``place`` means FIRST. If ``place`` is None, nothing is recorded.
    """
    if place is not None:
        placed.append((name, place))


def _unfit_statements(table: TableId, why: str) -> DdlError:
    """Return the error for planned statements that do not fit the MySQL or MariaDB table."""
    return DdlError(
        f"the statements do not fit table {table}: {why}",
        remedy="Compare the statements with the current definition of the table on the source.",
        table=table,
    )
