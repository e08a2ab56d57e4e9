"""Resyncs that nobody has to ask for: tables whose source changed in a way the lake cannot follow.

A table is copied again where its settings say so, and within their limits; otherwise it waits for
a person, and says why. A copy that was interrupted is gone on with.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc import plan
from cdc.errors import LeaseHeldError, SchemaChangeError
from cdc.state import State
from operate.outcome import Outcome
from operate.resync import resync
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.config.tables import TableSettings
    from cdc.state import TableRecord
    from operate.context import Services
    from schemas.table import TableId

_log = logging.getLogger(__name__)
_COPYING = frozenset({State.BOOTSTRAPPING, State.CATCHING_UP})


def is_candidate(record: TableRecord, settings: TableSettings) -> bool:
    """Whether the table's settings ask for a resync of what happened to it.

    Lost history is no such thing: its cause has to be found first, lest it is lost again.
    """
    if settings.on_incompatible != "resync":
        return False
    if record.state is State.NEEDS_BOOTSTRAP:
        return (record.error or {}).get("error") == SchemaChangeError.__name__
    interrupted = record.state in _COPYING or record.resume_to in _COPYING
    return interrupted and record.generation > 1 and record.state is not State.PAUSED


def waits_for(
    record: TableRecord, settings: TableSettings, rows: int | None, now: datetime
) -> str | None:
    """Why a candidate is not copied again now, None when it is.

    Args:
        record: The table.
        settings: Its settings.
        rows: How many rows it has, about; None when that is not known.
        now: The time.
    """
    limits = settings.resync
    if record.state is State.FAILED:
        again = plan.retry_at(record.failures, record.updated_at)
        if now < again:
            return f"its copy failed and is tried again after {again:%Y-%m-%d %H:%M:%S} UTC"
    if limits.max_rows is not None and (rows is None or rows > limits.max_rows):
        found = "an unknown number of rows" if rows is None else f"about {rows:,} rows"
        return f"it has {found}, and resync.max_rows is {limits.max_rows:,}"
    if not limits.allows(now):
        return f"resync.window is {limits.window} UTC, and it is {now:%H:%M}"
    return None


class Unattended:
    """The resyncs of the tables that ask for them.

    Args:
        services: What to work with.
        records: The tables as they are now.
    """

    def __init__(self, services: Services, records: Callable[[], Iterable[TableRecord]]) -> None:
        self._services = services
        self._records = records
        self.waiting: dict[TableId, str] = {}
        """Tables that ask for a resync and were not given one, each with why."""

    def once(self) -> list[Outcome]:
        """Resync the tables that ask for it and may; several at a time."""
        now = datetime.now(timezone.utc)
        due = []
        waiting: dict[TableId, str] = {}
        for record in self._records():
            settings = self._services.config.table_settings(record.table)
            if not is_candidate(record, settings):
                continue
            why = waits_for(record, settings, self._rows(record.table, settings), now)
            if why is None:
                due.append(record.table)
            else:
                waiting[record.table] = why
        outcomes = resync(self._services, due) if due else []
        # Someone copies these already, by hand or from another machine.
        held = {o.table: str(o.error) for o in outcomes if isinstance(o.error, LeaseHeldError)}
        self.waiting = {**waiting, **held}
        return [outcome for outcome in outcomes if outcome.table not in held]

    def repeat(
        self, stop: threading.Event, interval_s: float, report: Callable[[list[Outcome]], None]
    ) -> None:
        """Look again and again until told to stop; the copy under way is finished."""
        while not stop.wait(interval_s):
            try:
                done = self.once()
            except TributaryError as error:
                _log.warning("no resync was possible: %s", error)
            else:
                if done:
                    report(done)

    def _rows(self, table: TableId, settings: TableSettings) -> int | None:
        """How many rows there are to copy, asked only where it matters."""
        if settings.resync.max_rows is None:
            return None
        source = self._services.source(table.source)
        try:
            return source.size(source.table(table)).rows
        except TributaryError as error:
            _log.warning("the size of table %s is not known: %s", table, error)
            return None
