"""Clauses of ALTER TABLE that every dialect has with the same meaning."""

from __future__ import annotations

from dataclasses import dataclass


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
