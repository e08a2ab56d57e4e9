"""``history``: what has happened to tables, who did it, and in which run."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any

from cdc.config.value_types import seconds_of
from cdc.store.histories import Histories
from cdc.store.history import FOLLOWED, RunEntry, SchemaEntry, StateEntry
from operate.render import seconds

if TYPE_CHECKING:
    from cdc.store.actor import Actor
    from cdc.store.histories import Noted
    from operate.context import Services
    from schemas.table import TableId


class Kind(str, Enum):
    """The kinds of events that ``history`` lists."""

    RUN = "run"
    SCHEMA = "schema"
    STATE = "state"


@dataclass(frozen=True)
class Event:
    """An event of a table, as ``history`` shows it.

    Args:
        at: When the event happened, by the state store's clock.
        kind: The kind of event.
        table: The table.
        what: The event in words.
        by: The command that caused the event; None if no command is recorded.
        run_id: Identity of the command's runs, which lake commits have, too; None if it is not
            recorded.
        facts: The event's other facts, as plain values.
    """

    at: datetime
    kind: Kind
    table: TableId
    what: str
    by: Actor | None
    run_id: str | None
    facts: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The event as plain values."""
        return {"at": self.at, "kind": self.kind.value, "what": self.what, **self.facts}


def history(
    services: Services,
    since: datetime,
    tables: Collection[TableId] | None = None,
    kinds: Sequence[Kind] = (),
    most: int | None = None,
) -> list[Event]:
    """Return, for ``history``, the events of tables from a time on, oldest first.

    Args:
        services: The services of the command.
        since: The time.
        tables: The tables; None for all tables, also those that left the plan.
        kinds: The kinds of events; empty for all kinds.
        most: Maximum number of events of each kind; see `Histories.since`. None for all.

    Raises:
        StateError: The state store cannot be used.
    """
    events = map(_event_of_entry, Histories(services.store).since(since, tables, most))
    return [event for event in events if not kinds or event.kind in kinds]


def moment(text: str, now: datetime) -> datetime:
    """Return the time from which a command reads histories, for example ``24h`` or ``7d`` ago.

    Args:
        text: A duration before now, or a time in the form of ISO 8601. A time without a time zone
            is in UTC.
        now: Now, with a time zone.

    Raises:
        ValueError: The text is neither a duration nor a time.
    """
    if re.fullmatch(r"[1-9][0-9]{0,5}[smhd]", text):
        return now - timedelta(seconds=seconds_of(text))
    try:
        found = datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", text))
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a time nor a duration such as 90m, 24h or 7d"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)


def _event_of_entry(noted: Noted) -> Event:
    """Return the event that ``history`` shows for an entry of a table's history."""
    entry = noted.entry
    if isinstance(entry, RunEntry):
        kind, what = Kind.RUN, _runs_as_text(entry)
    elif isinstance(entry, SchemaEntry):
        kind, what = Kind.SCHEMA, _schema_change_as_text(entry)
    else:
        kind, what = Kind.STATE, _state_change_as_text(entry)
    facts = entry.to_json()
    return Event(noted.at, kind, entry.table, what, entry.by, entry.run_id, facts)


def _runs_as_text(entry: RunEntry) -> str:
    """Return what ``history`` shows of an entry for one run, or for several joined runs."""
    many = f"{entry.runs:,} runs: " if entry.runs > 1 else ""
    done = (
        f"{many}{entry.commits:,} commit{'' if entry.commits == 1 else 's'},"
        f" {entry.events:,} changes, {seconds(entry.seconds)}"
    )
    return done if entry.error is None else f"{done}; {entry.error.message}"


def _schema_change_as_text(entry: SchemaEntry) -> str:
    """Return what ``history`` shows of a schema change."""
    changes = ", ".join(change.what for change in entry.changes)
    if entry.outcome == FOLLOWED:
        return f"schema version {entry.version}: {changes}"
    return f"{entry.outcome}: {changes}"


def _state_change_as_text(entry: StateEntry) -> str:
    """Return what ``history`` shows of a change of a table's state."""
    which = f"next generation, {entry.generation}: " if entry.beside else ""
    if entry.state is None:
        return f"{which}record removed"
    before = "" if entry.former is None else f", was {entry.former.value}"
    why = "" if entry.why is None else f": {entry.why}"
    return f"{which}{entry.state.value}{before}{why}"
