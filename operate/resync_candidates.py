"""Finds the tables that are to be resynced automatically, and why a resync must wait."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from cdc.errors import SchemaChangeError
from cdc.run import plan
from cdc.store.table_state import State
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.config.tables import TableSettings
    from cdc.store.table_state import TableRecord
    from operate.context import Services

_log = logging.getLogger(__name__)


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


def waits_for(
    record: TableRecord, settings: TableSettings, rows: int | None, now: datetime
) -> str | None:
    """Return why a candidate's automatic resync must wait; None if the resync can begin now.

    A candidate is a table that `is_candidate` accepts.

    Args:
        record: The table's record.
        settings: The table's settings.
        rows: The table's estimated number of rows; None if the number is unknown.
        now: The current time by the state store's clock, which all machines share.
    """
    limits = settings.resync
    if record.state is State.FAILED:
        again = plan.retry_at(record.failures, record.updated_at)
        if now < again:
            return f"its copy failed, and the next try is after {again:%Y-%m-%d %H:%M:%S} UTC"
    if limits.max_rows is not None and (rows is None or rows > limits.max_rows):
        found = "an unknown number of rows" if rows is None else f"about {rows:,} rows"
        return f"it has {found}, and resync.max_rows is {limits.max_rows:,}"
    if not limits.allows(now):
        return f"resync.window is {limits.window} UTC, and the time is {now:%H:%M}"
    return None


def why_not_copied(services: Services, record: TableRecord, settings: TableSettings) -> str | None:
    """Return why the automatic resync of a table must wait now.

    Args:
        services: The services of the command. If the settings limit the number of rows, the table's
            size is queried at the source.
        record: The table's record.
        settings: The table's settings.

    Returns:
        The reason; None if the resync can begin now, or if the table needs no automatic resync.
    """
    if not is_candidate(record, settings):
        return None
    rows = None
    if settings.resync.max_rows is not None:
        source = services.source(record.table.source)
        try:
            rows = source.size(source.table(record.table)).rows
        except TributaryError as error:
            _log.warning("the size of table %s cannot be read: %s", record.table, error)
    return waits_for(record, settings, rows, services.store.now())
