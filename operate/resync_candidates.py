"""Finds the tables that are to be resynced automatically, and why a resync must wait."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from cdc.errors import SchemaChangeError
from cdc.run import plan
from cdc.store.table_state import State

if TYPE_CHECKING:
    from cdc.config.tables import TableSettings
    from cdc.store.table_state import TableRecord
    from operate.context import Services


def is_candidate(record: TableRecord, settings: TableSettings) -> bool:
    """Whether the settings request automatic resyncs, and the table needs a resync.

    A table needs a resync after an incompatible schema change, or if its last resync has failed or
    was interrupted. A table that has lost changes is not a candidate: an operator must find the
    cause of the loss first, since changes could be lost again.
    """
    if settings.on_incompatible != "resync":
        return False
    if record.state is State.NEEDS_BOOTSTRAP:
        return record.error is not None and record.error.error == SchemaChangeError.__name__
    return record.is_copying and record.generation > 1 and record.state is not State.PAUSED


def why_not_copied(
    services: Services,
    record: TableRecord,
    settings: TableSettings,
    *,
    for_person: bool = False,
) -> str | None:
    """Return why the automatic resync of a table must wait now.

    A copy that failed waits for its next try. The number of rows is shown rather than the window: a
    person must act on the number, while the window opens by itself. But the source is asked for the
    number only if nothing else keeps the resync back, or if a person reads the result.

    Args:
        services: The services of the command.
        record: The table's record.
        settings: The table's settings.
        for_person: Whether a person has asked once, and not a process in each of its rounds.

    Returns:
        The reason; None if the resync can begin now, or if the table needs no automatic resync.
    """
    if not is_candidate(record, settings):
        return None
    table, limits, now = record.table, settings.resync, services.store.now()
    if (failed := _waits_for_next_try(record, now)) is not None:
        return failed
    closed = None
    if not limits.allows(now):
        closed = f"resync.window is {limits.window} UTC, and the time is {now:%H:%M}"
    if limits.max_rows is None:
        return closed
    if closed is None or for_person:
        rows = services.row_estimates.ask(services.source(table.source), table)
    elif (rows := services.row_estimates.last(table)) is None:
        return closed
    return _above_limit(rows, limits.max_rows) or closed


def _waits_for_next_try(record: TableRecord, now: datetime) -> str | None:
    """Return the reason if a failed copy must wait for its next try."""
    if record.state is not State.FAILED:
        return None
    again = plan.retry_at(record.failures, record.updated_at)
    if now >= again:
        return None
    return f"its copy failed, and the next try is after {again:%Y-%m-%d %H:%M:%S} UTC"


def _above_limit(rows: int | None, most: int) -> str | None:
    """Return the reason if a table has, or may have, more rows than its settings allow."""
    if rows is not None and rows <= most:
        return None
    found = "an unknown number of rows" if rows is None else f"about {rows:,} rows"
    return f"it has {found}, and resync.max_rows is {most:,}"
