"""The page of one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta, timezone
from typing import TYPE_CHECKING

from operate.history import Kind, history
from operate.ui.calendar import calendar
from operate.ui.copies import copies
from operate.ui.fleet import run_view
from operate.ui.tables import row
from operate.ui.troubles import of_table

if TYPE_CHECKING:
    from cdc.store.history import RunEntry, SchemaEntry
    from operate.context import Services
    from operate.history import Event
    from operate.readers import ReaderStatus
    from operate.status import TableStatus
    from operate.ui.calendar import CalendarView
    from operate.ui.copies import CopyView
    from operate.ui.fleet import RunView
    from operate.ui.looks import Look
    from operate.ui.tables import Row
    from operate.ui.troubles import Trouble

_RUNS = 100
_SHOWN_RUNS = 20
_STATES = timedelta(days=30)


@dataclass(frozen=True)
class TablePage:
    """All that the page of one table shows.

    Args:
        row: The table's row in the list.
        status: What `status` says of the table.
        troubles: What is not as it should be with the table.
        copies: The unfinished copies of the table and of its next generation.
        calendar: The table's complete periods; None if the settings ask for none.
        runs: The table's last runs, newest first.
        chart: The data for a chart of the table's runs, as JSON.
        schemas: The changes of the table's schema, newest first.
        states: The changes of the table's state in the last 30 days, newest first.
        readers: The table's registered readers.
    """

    row: Row
    status: TableStatus
    troubles: Sequence[Trouble]
    copies: Sequence[CopyView]
    calendar: CalendarView | None
    runs: Sequence[RunView]
    chart: str
    schemas: Sequence[SchemaEntry]
    states: Sequence[Event]
    readers: Sequence[ReaderStatus]


def table_page(services: Services, look: Look, name: str) -> TablePage | None:
    """Return the page of a table; None if the table is not on the plan.

    Raises:
        TributaryError: The state store cannot be used.
    """
    status = look.facts.status
    for found in () if status is None else status.tables:
        if str(found.record.table) == name:
            break
    else:
        return None
    table, now = found.record.table, look.facts.read_at
    runs = services.store.last_runs(table, _RUNS)
    lake_table = name if found.record.shard is None else found.record.shard.of
    return TablePage(
        row(found),
        found,
        list(of_table(found)),
        [one for one in copies(look) if one.name == name],
        calendar(services, found, now),
        [run_view(one) for one in runs[:_SHOWN_RUNS]],
        runs_chart(runs),
        services.store.schema_history(table)[::-1],
        history(services, now - _STATES, [table], [Kind.STATE], most=_RUNS)[::-1],
        [one for one in status.readers if one.table == lake_table] if status else [],
    )


def runs_chart(runs: Sequence[RunEntry]) -> str:
    """Return the data of the page's chart of runs as JSON: durations and changes over time."""
    ordered = sorted(runs, key=lambda one: one.started_at)
    return json.dumps(
        {
            "x": [int(one.started_at.astimezone(timezone.utc).timestamp()) for one in ordered],
            "series": [
                {
                    "label": "seconds",
                    "values": [round(one.seconds / one.runs, 3) for one in ordered],
                },
                {"label": "changes", "values": [one.events for one in ordered]},
            ],
        }
    )
