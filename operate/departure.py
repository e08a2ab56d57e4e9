"""Removes tables from a capture, and removes the capture after its last table has left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from cdc.store.table_state import State
from cdc.store.task_looks import KeptLooks
from cdc.store.type_looks import KeptTypeLooks
from operate import tier_capture

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from cdc.store.table_state import TableRecord
    from operate.context import Services
    from schemas.table import TableId


def needed_by_others(
    services: Services, capture: CaptureNames, leaving: Collection[TableId]
) -> bool:
    """Whether other tables than the leaving ones need a capture.

    A table needs the capture that it follows and the one that its next generation follows. During a
    move, it also needs the capture that it joins or leaves.
    """

    def uses(record: TableRecord) -> bool:
        tiers = {record.tier, *([record.other.tier] if record.other is not None else ())}
        return record.table.source == capture.source and capture.tier in tiers

    records = chain(services.store.tables(), services.store.builds())
    return any(
        uses(record) and record.table not in leaving and record.state is not State.RETIRED
        for record in records
    )


def depart(
    services: Services,
    capture: CaptureNames,
    tables: Sequence[TableId],
    *,
    delete_topics: bool = False,
) -> list[str]:
    """Remove tables from a capture for a command; also remove a capture that no other table needs.

    The step can be repeated. The caller holds the leases of the tables and of the capture.

    Args:
        services: The services of the command.
        capture: The capture.
        tables: The tables.
        delete_topics: Whether to delete the capture's own topics, if the capture is removed.

    Returns:
        The names of the removed parts of the capture; empty if other tables need the capture.
    """
    last = not needed_by_others(services, capture, tables)
    tier_capture.remove_tables(services, capture, tables)
    return remove_capture(services, capture, delete_topics=delete_topics) if last else []


def remove_capture(
    services: Services,
    capture: CaptureNames,
    *,
    delete_topics: bool = False,
    on_source: bool = True,
) -> list[str]:
    """Remove a capture that no table needs, and what the state store keeps of its connector.

    Args:
        services: The services of the command.
        capture: The capture.
        delete_topics: Whether to delete the capture's own topics.
        on_source: Whether to remove the slot and the publication, too.

    Returns:
        The names of the removed parts.
    """
    gone = tier_capture.dismantle(
        services, capture, delete_topics=delete_topics, on_source=on_source
    )
    KeptLooks(services.store).forget(capture.connector)
    KeptTypeLooks(services.store).forget(capture.connector)
    return gone
