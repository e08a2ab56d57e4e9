"""The effects of planned MySQL and MariaDB statements on a table's catalog, clause by clause."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.ddl.column_clauses import Drop, Rename


@dataclass(frozen=True)
class Definition:
    """A column in the form in which a statement defines it.

    Args:
        name: The column's name.
        sql: Name, type, NULL and default, from which a server makes the catalog's form.
        expression: The expression of a generated column.
        not_null: Whether the column forbids NULL for a reason other than NOT NULL.
        primary: Whether the column becomes the primary key.
        unique: Whether the column gets a unique index.
    """

    name: str
    sql: str
    expression: str | None = None
    not_null: bool = False
    primary: bool = False
    unique: bool = False


@dataclass(frozen=True)
class Add:
    """ADD COLUMN. ``place`` is the column before it; empty for FIRST, None for the last place."""

    column: Definition
    place: str | None = None
    if_missing: bool = False


@dataclass(frozen=True)
class Redefine:
    """MODIFY, or CHANGE if the column gets another name."""

    name: str
    column: Definition
    place: str | None = None


@dataclass(frozen=True)
class SetDefault:
    """ALTER COLUMN SET or DROP DEFAULT."""

    name: str
    default: str | None


@dataclass(frozen=True)
class AddUnique:
    """A new unique index, or primary key; without columns if it indexes prefixes or expressions."""

    name: str
    columns: tuple[str, ...]
    primary: bool = False


@dataclass(frozen=True)
class DropIndex:
    """DROP INDEX or CONSTRAINT, except for the primary key."""

    name: str


@dataclass(frozen=True)
class RenameIndex:
    """RENAME INDEX."""

    name: str
    to: str


Clause = Add | Redefine | Drop | Rename | SetDefault | AddUnique | DropIndex | RenameIndex


@dataclass(frozen=True)
class Statement:
    """One statement that the log will report for the table.

    Args:
        text: The statement as given.
        clauses: The effects of the statement on the catalog. There are none if the rows are unknown
            after the statement, since the catalog is then not compared.
    """

    text: str
    clauses: tuple[Clause, ...]
