"""What the clauses of planned statements of MySQL and MariaDB do to a table's catalog."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Definition:
    """A column as a statement defines it.

    Args:
        name: Its name.
        sql: Name, type, NULL and default, which a server says the catalog's form of.
        expression: Of a generated column.
        not_null: Whether it allows no NULL for another reason than NOT NULL.
        primary: Whether it becomes the primary key.
        unique: Whether it gets a unique index.
    """

    name: str
    sql: str
    expression: str | None = None
    not_null: bool = False
    primary: bool = False
    unique: bool = False


@dataclass(frozen=True)
class Add:
    """ADD COLUMN; ``place`` is the column that it comes after, empty for FIRST."""

    column: Definition
    place: str | None = None
    if_missing: bool = False


@dataclass(frozen=True)
class Redefine:
    """MODIFY, and CHANGE where it has another name then."""

    name: str
    column: Definition
    place: str | None = None


@dataclass(frozen=True)
class Drop:
    """DROP COLUMN."""

    name: str
    if_there: bool = False


@dataclass(frozen=True)
class Rename:
    """RENAME COLUMN."""

    name: str
    to: str


@dataclass(frozen=True)
class SetDefault:
    """ALTER COLUMN SET or DROP DEFAULT."""

    name: str
    default: str | None


@dataclass(frozen=True)
class AddUnique:
    """A unique index, or with ``primary`` the key; of no columns when it is on parts of them."""

    name: str
    columns: tuple[str, ...]
    primary: bool = False


@dataclass(frozen=True)
class DropIndex:
    """DROP INDEX or CONSTRAINT, but for the primary key."""

    name: str


@dataclass(frozen=True)
class RenameIndex:
    """RENAME INDEX."""

    name: str
    to: str


Clause = Add | Redefine | Drop | Rename | SetDefault | AddUnique | DropIndex | RenameIndex


@dataclass(frozen=True)
class Statement:
    """One statement that the log will tell of the table.

    Args:
        text: As it was given.
        clauses: What it does to the catalog, all of it at once; none when that says nothing,
            since the rows are not known after it.
    """

    text: str
    clauses: tuple[Clause, ...]
