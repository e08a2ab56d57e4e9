"""The effects that the clauses of planned MySQL and MariaDB statements have on a table."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.planned_ddl.column_clauses import Drop, Rename


@dataclass(frozen=True)
class Definition:
    """A column's definition in a MySQL or MariaDB statement.

    Args:
        name: The column's name.
        sql: The column as SQL for CREATE TABLE: name, type, NULL or NOT NULL, and default. The
            server creates a temporary table with this SQL, and the server's catalog then describes
            the column.
        expression: The SQL expression of a generated column.
        stored: Whether the generated column is stored, and not virtual.
        not_null: Whether the column forbids NULL because it is AUTO_INCREMENT or the primary key.
        primary: Whether the column becomes the primary key.
        unique: Whether the column gets a unique index.
    """

    name: str
    sql: str
    expression: str | None = None
    not_null: bool = False
    primary: bool = False
    unique: bool = False
    stored: bool = False


@dataclass(frozen=True)
class Add:
    """MySQL's clause ADD COLUMN.

    ``place`` is the column name that follows the word AFTER. It is empty for FIRST, and None if the
    clause has neither word.
    """

    column: Definition
    place: str | None = None
    if_missing: bool = False


@dataclass(frozen=True)
class Redefine:
    """MySQL's clause MODIFY or CHANGE. CHANGE can also rename the column."""

    name: str
    column: Definition
    place: str | None = None


@dataclass(frozen=True)
class SetDefault:
    """MySQL's clause ALTER COLUMN with SET DEFAULT or DROP DEFAULT."""

    name: str
    default: str | None


@dataclass(frozen=True)
class AddUnique:
    """MySQL's clause that adds a unique index or a primary key.

    ``columns`` is empty if the index covers prefixes of columns, or expressions.
    """

    name: str
    columns: tuple[str, ...]
    primary: bool = False


@dataclass(frozen=True)
class DropIndex:
    """MySQL's clause DROP INDEX or DROP CONSTRAINT, except for the primary key."""

    name: str


@dataclass(frozen=True)
class RenameIndex:
    """MySQL's clause RENAME INDEX."""

    name: str
    to: str


Clause = Add | Redefine | Drop | Rename | SetDefault | AddUnique | DropIndex | RenameIndex


@dataclass(frozen=True)
class Statement:
    """One planned MySQL statement that changes the table, and that the binlog will contain.

    Args:
        text: The statement's SQL as the operator wrote it.
        clauses: The effects of the statement on the catalog. Empty if the statement has no such
            effects. Also empty if the statement requires a new copy of the table, since its effects
            on the catalog then do not matter.
    """

    text: str
    clauses: tuple[Clause, ...]
