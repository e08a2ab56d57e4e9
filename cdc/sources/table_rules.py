"""The conditions under which a source's log shows every change of a table, and their remedies.

This module does not access a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cdc.sources.source_facts import SourceTable

Obstacle = tuple[str, str]
"""A problem and its remedy. The problem is a predicate; its subject is the table: "has no key"."""


class TableRules(Protocol):
    """The rules of one kind of source for tables that are to be replicated."""

    def not_in_log(self, table: SourceTable) -> Obstacle | None:
        """Return why the source table cannot be copied, or its log lacks changes, or None."""

    def without_key(self, table: SourceTable) -> Obstacle:
        """Return the problem of a source table without a key, and the choices that solve it."""

    def not_applicable(self, table: SourceTable, key: Sequence[str]) -> Obstacle | None:
        """Return why some changes fail at the source once the table is captured; None if none do.

        Either the server refuses the application's changes, or the lake cannot apply them by key.

        Args:
            table: A table with all its changes in the log.
            key: The columns that identify a row in the lake.
        """

    def unique_index(self, table: SourceTable, columns: str) -> str:
        """Return the statement that creates a unique index on columns of the source table."""

    def without_null_or_default(self, table: SourceTable) -> str:
        """Return the source's two alternatives: forbid NULL, or drop a default."""

    def log_note(self, table: SourceTable) -> str:
        """Return a note: which updates and deletes of the source reach an append table."""

    def notes(self, table: SourceTable) -> tuple[str, ...]:
        """Return notes for operators about a source table that can be replicated."""


def usable_keys(table: SourceTable) -> tuple[tuple[str, ...], ...]:
    """Return the columns of each of a source's unique indexes that are all NOT NULL."""
    nullable = {column.name for column in table.columns if column.nullable}
    return tuple(index for index in table.unique_indexes if not nullable & set(index))
