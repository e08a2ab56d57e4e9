"""Reads what a run needs from the state store, in the transaction that takes the table's lease."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from cdc.store.loss_counts import Loss, losses_within
from cdc.store.quarantine import offsets_within

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from cdc.store.table_state import TableRecord


class RunFacts:
    """What the state store has about a table at the moment at which a run takes the table's lease.

    Only the holder of the lease changes the table's quarantine, so the run knows the quarantine
    until it loses the lease. Other processes can count losses at any time; the next run, or the
    next check of idle tables, stops the table because of a loss that is counted later.

    Args:
        scopes: Returns the names under which the losses of a record's table are counted.
    """

    def __init__(self, scopes: Callable[[TableRecord], Sequence[str]]) -> None:
        self._scopes = scopes
        self.losses: Mapping[str, Loss] = {}
        """The losses under the names of ``scopes``, without the names that have no loss."""
        self.quarantined: set[tuple[int, int]] = set()
        """Partition and offset of each quarantined record of the table's attempt."""

    def read(self, connection: Connection, record: TableRecord) -> None:
        """Read the facts of a table in a transaction.

        Args:
            connection: The transaction's connection.
            record: The table's newest record.
        """
        self.losses = losses_within(connection, self._scopes(record))
        if record.attempt is not None:
            self.quarantined = offsets_within(connection, str(record.attempt.id))
