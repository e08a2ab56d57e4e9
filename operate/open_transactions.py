"""What commands say about open Kafka transactions, which hide changes from all consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc.run.overdue import Held
    from schemas.table import TableId


def unreadable(held: Held) -> str:
    """Return the part of a Kafka topic that an open transaction hides, in words for a message."""
    return f"topic {held.topic} from offset {held.offset} on"


def ended(table: TableId, held: Held) -> str:
    """Return how to end a hanging Kafka transaction, in words for a remedy.

    An abort drops the transaction's changes. They are lost if Connect has stored their position as
    sent, which no later fact shows.

    Args:
        table: The table whose changes the transaction hides.
        held: The transaction.
    """
    tool = "kafka-transactions.sh --bootstrap-server BROKER"
    place = f"--topic {held.topic} --partition {held.partition}"
    return (
        f"look for it with `{tool} find-hanging {place}`, end it with"
        f" `{tool} abort {place} --start-offset {held.offset}`, and then run"
        f" `tributary verify {table}`, since an abort drops the transaction's changes"
    )
