"""The conditions under which a source's log shows every change of a table. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cdc.sources.source_facts import SourceTable

Obstacle = tuple[str, str]
"""The problem, as a predicate whose subject is the table, and the remedy."""


class TableRules(Protocol):
    """The rules of one kind of source for tables that are to be replicated."""

    def not_in_log(self, table: SourceTable) -> Obstacle | None:
        """Return why the log lacks changes of a table's rows; None if it has all of them."""

    def without_key(self, table: SourceTable) -> Obstacle:
        """Return what can be done about a table that has no key."""

    def not_applicable(self, table: SourceTable, key: Sequence[str]) -> Obstacle | None:
        """Return why changes fail or cannot be applied by a key once the table is captured.

        Args:
            table: A table with all its changes in the log.
            key: The columns that identify a row in the lake.
        """

    def unique_index(self, table: SourceTable, columns: str) -> str:
        """Return the statement that creates a unique index on columns."""

    def without_null_or_default(self, table: SourceTable) -> str:
        """Return the statement that forbids NULL in a column, or drops its default."""

    def log_note(self, table: SourceTable) -> str:
        """Return which updates and deletes reach a lake table of mode ``append``."""

    def notes(self, table: SourceTable) -> tuple[str, ...]:
        """Return notes for the reader of a table that can be replicated."""


def usable_keys(table: SourceTable) -> tuple[tuple[str, ...], ...]:
    """Return the unique indexes whose columns are NOT NULL."""
    nullable = {column.name for column in table.columns if column.nullable}
    return tuple(index for index in table.unique_indexes if not nullable & set(index))
