"""Removes tables from a capture, and removes the capture after its last table has left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from cdc.store.kept_task_looks import KeptLooks
from cdc.store.kept_type_looks import KeptTypeLooks
from cdc.store.late_commits import LateCommits
from cdc.store.log_marks import LogMarks
from cdc.store.statements import StatementRows
from operate import tier_capture
from operate.lost_capture import users_of

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from operate.context import Services
    from schemas.table import TableId


def needed_by_others(
    services: Services, capture: CaptureNames, leaving: Collection[TableId]
) -> bool:
    """Whether tables other than the leaving tables need a capture (see `users_of`)."""
    return not users_of(services, capture) <= {*leaving}


def depart(
    services: Services,
    capture: CaptureNames,
    tables: Sequence[TableId],
    *,
    delete_topics: bool = False,
) -> list[str]:
    """Remove tables from a capture; remove the capture, too, if no other table needs the capture.

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
    """Remove the connector, slot and publication of a capture that no table needs.

    The state store's earlier readings of the connector and of the log are deleted, too. A later
    capture of the same name must not be compared with these readings.

    Args:
        services: The services of the command.
        capture: The capture.
        delete_topics: Whether to delete the capture's own topics. The tables' topics remain.
        on_source: Whether to remove the slot and the publication, too. If False, the source is not
            queried.

    Returns:
        The names of the removed parts, for a message.
    """
    there = services.source(capture.source).capture(capture)
    removed = []
    if services.connect.delete(capture.connector, progress=services.progress):
        removed.append(f"connector {capture.connector}")
    if on_source and (kept := there.kept_log) is not None and kept.drop():
        removed.append(kept.title)
    if on_source and (sent := there.sent_tables) is not None:
        sent.drop()
        removed.append(sent.title)
    # No process writes to these topics any more.
    topics = capture.own_topics if delete_topics else ()
    removed += [f"topic {topic}" for topic in topics if services.kafka.delete_topic(topic)]
    KeptLooks(services.store).forget(capture.connector)
    KeptTypeLooks(services.store).forget(capture.connector)
    LogMarks(services.store).forget(capture.resource)
    LateCommits(services.store).forget(capture.resource)
    StatementRows(services.store).forget(capture.schema_change_topic)
    return removed
