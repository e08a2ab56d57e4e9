"""The clauses of ALTER TABLE that mean the same in PostgreSQL, MySQL and MariaDB."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Drop:
    """The clause DROP COLUMN."""

    name: str
    if_there: bool = False


@dataclass(frozen=True)
class Rename:
    """The clause RENAME COLUMN."""

    name: str
    to: str
