"""The protocol for questions about changes that a connector can leave out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cdc.sources.source_facts import NextInserted, SourceTable


class MissedChanges(Protocol):
    """What a transaction has changed, read from the source's tables and not from events."""

    def next_inserted(
        self, table: SourceTable, key: Mapping[str, object], transaction: int | None
    ) -> NextInserted:
        """Return the row that a transaction inserted next after a given row.

        Args:
            table: The table.
            key: The key of the given row, as its event has it.
            transaction: The transaction's id, as an event has it; None stands for the transaction
                that inserted the given row, as the source's table shows it.
        """
