"""The protocol for questions about changes that a connector can have left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cdc.sources.source_facts import NextInserted, SourceTable


class MissedChanges(Protocol):
    """What a transaction has changed, as the source itself shows it."""

    def next_inserted(
        self, table: SourceTable, key: Mapping[str, object], transaction: int | None
    ) -> NextInserted:
        """Return the row that a transaction inserted next after a given row.

        Args:
            table: The table.
            key: The key of the given row, as its event has it.
            transaction: The transaction's id, as an event has it; None stands for the transaction
                that the source names for the given row.
        """
