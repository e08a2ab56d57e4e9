"""The protocol by which a source's tables show whether a connector left out a change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cdc.sources.source_facts import NextInserted, SourceTable


class MissedChanges(Protocol):
    """Queries the source's tables, and not the events, for what a transaction has changed."""

    def next_inserted(
        self, table: SourceTable, key: Mapping[str, object], transaction: int | None
    ) -> NextInserted:
        """Return the row that a transaction inserted next after a given row.

        Args:
            table: The table.
            key: The key of the given row: values from the row's event, by column name.
            transaction: The id of the transaction, from the row's event. If None, the id that the
                row has in the source's table, for example in PostgreSQL's ``xmin``.
        """
