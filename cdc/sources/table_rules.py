"""The interface of the rules that decide whether a source table can be replicated.

This module does not access a server.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from cdc.sources.source_facts import SourceTable

Obstacle = tuple[str, str]
"""A problem and its remedy. The problem is a predicate about the table, such as "has no key"."""


class TableRules(Protocol):
    """The rules by which one kind of source decides whether a table can be replicated."""

    def not_in_log(self, table: SourceTable) -> Obstacle | None:
        """Return why a source table cannot be copied or captured; None if it can.

        Either a copy cannot read the rows, or the log lacks changes of the rows, or the connector
        misreads the changes.
        """

    def misplaced(self, table: SourceTable, withheld: Collection[str]) -> Obstacle | None:
        """Return why the connector can silently put values in wrong columns; None if it cannot.

        Args:
            table: The table.
            withheld: The table's generated columns that the log does not contain.
        """

    def without_key(self, table: SourceTable) -> Obstacle:
        """Return the problem of a source table without a key, and how the operator can solve it."""

    def not_applicable(self, table: SourceTable, key: Sequence[str]) -> Obstacle | None:
        """Return why a captured table's updates or deletes cannot reach the lake; None if they can.

        Either the server refuses updates and deletes once the table is captured, or the log does
        not have the key of the old row.

        Args:
            table: A table whose changes are all in the log.
            key: The columns that identify a row in the lake.
        """

    def unique_index(self, table: SourceTable, columns: str) -> str:
        """Return the SQL statement that creates a unique index on a source table.

        Args:
            table: The table.
            columns: The index's columns as SQL, for example ``a, b``.
        """

    def without_null_or_default(self, table: SourceTable) -> str:
        """Return a remedy with two SQL statements, of which the operator executes one.

        The first statement makes a column NOT NULL. The second one drops the column's default.
        """

    def log_note(self, table: SourceTable) -> str:
        """Return the note that updates and deletes of an append table are not captured."""

    def notes(self, table: SourceTable) -> tuple[str, ...]:
        """Return notes for operators about a source table that can be replicated."""


def usable_keys(table: SourceTable) -> tuple[tuple[str, ...], ...]:
    """Return the columns of each unique index of a source table.

    An index with a column that allows NULL is left out.
    """
    nullable = {column.name for column in table.columns if column.nullable}
    return tuple(index for index in table.unique_indexes if not nullable & set(index))
