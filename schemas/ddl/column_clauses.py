"""Clauses of ALTER TABLE that every dialect has with the same meaning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Drop:
    """The clause DROP COLUMN of a statement."""

    name: str
    if_there: bool = False


@dataclass(frozen=True)
class Rename:
    """The clause RENAME COLUMN of a statement."""

    name: str
    to: str
