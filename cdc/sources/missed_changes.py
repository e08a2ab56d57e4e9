"""The protocol by which a source's tables show whether a connector left out a change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cdc.sources.source_facts import NextInserted, SourceTable


class MissedChanges(Protocol):
    """Queries the source's tables for changes that a connector may have left out."""

    def next_inserted(
        self, table: SourceTable, key: Mapping[str, object], transaction: int | None
    ) -> NextInserted:
        """Return the row that a given row's transaction inserted directly after the given row.

        Args:
            table: The table.
            key: The key of the given row: values from the row's event, by column name.
            transaction: The transaction's id in the given row's event. If None, the id is read
                from the given row in the source's table, for example from PostgreSQL's ``xmin``.
        """
