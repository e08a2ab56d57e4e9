"""What commands say about open Kafka transactions, which hide changes from all consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc.run.overdue import Held
    from schemas.table import TableId


def unreadable(held: Held) -> str:
    """Name, for ``status``, the records that an open Kafka transaction hides.

    For example: ``topic t from offset 7 on``.
    """
    return f"topic {held.topic} from offset {held.offset} on"


def ended(table: TableId, held: Held) -> str:
    """Return the words of a command's remedy that say how to end a hanging Kafka transaction.

    An abort drops the transaction's changes. If Connect has stored the position of these changes
    as sent, Connect does not send the changes again. Only `verify` shows this loss, so the remedy
    also advises `verify`.

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
