"""The protocol to search a source's tables for changes that a connector left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cdc.sources.source_facts import NextInserted, SourceTable


class MissedChanges(Protocol):
    """Queries the source's tables for changes that a connector may have left out."""

    def next_inserted(
        self, table: SourceTable, key: Mapping[str, object], transaction: int | None
    ) -> NextInserted:
        """Return the next row that the given row's transaction inserted after the given row.

        Args:
            table: The table.
            key: The key of the given row: values from the row's event, by column name.
            transaction: The transaction's id in the event of the given row. If None, the id is read
                from the given row in the table, for example from PostgreSQL's ``xmin``.
        """
