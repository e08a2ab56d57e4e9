"""Finds slots that no table needs, and that would retain a primary's log unnoticed.

A command that was killed between its steps can leave a slot that no table's record names. All other
checks of captures know only the captures of tables on the plan.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.capture.captured_tables import captures_of
from cdc.capture.onboarded_names import names_of
from cdc.store.lease import held_leases
from operate.empty_store import configured_captures
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.debezium import CaptureNames
    from cdc.store.table_state import TableRecord
    from operate.context import Services

_log = logging.getLogger(__name__)
_EVERY_S = 3600.0


@dataclass(frozen=True)
class UnusedSlot:
    """A slot that no table on the plan needs.

    Args:
        title: Kind and name of the slot, for messages.
        message: What is wrong.
        remedy: What to do, with the statements that drop the slot.
    """

    title: str
    message: str
    remedy: str


def unused_captures(config: Config, records: Iterable[TableRecord]) -> list[CaptureNames]:
    """Return, for ``check``, the configured and recorded captures whose slot no table needs.

    Args:
        config: The configuration, whose tiers name the captures that tables could have.
        records: The records of all tables and of their next generations.
    """
    records = list(records)
    used = {(one.names.source, one.names.slot) for one in captures_of(config, records)}
    former = (
        names_of(config, record.table.source, one)
        for record in records
        if record.table.source in config.sources
        for one in record.captures
    )
    found = {(one.source, one.slot): one for one in (*configured_captures(config), *former)}
    return [one for place, one in found.items() if one.slot is not None and place not in used]


def unused_slots(services: Services, source: str) -> Iterator[UnusedSlot]:
    """Yield the slots on a source that ``check`` and ``run`` report, since no table needs them.

    A capture that a command changes now is left out: a table that the command adds to the capture
    is on the plan only when the command ends.

    Args:
        services: The services of the command.
        source: The source.

    Raises:
        SourceError: The source cannot be queried.
        StateError: The state store cannot be used.
    """
    store = services.store
    here = [one for one in _captures_with_unused_slots(services) if one.source == source]
    there = [one for one in here if _slot_exists(services, one)]
    if not there:
        return
    held = held_leases(store)
    # Read the records again, since a command can have ended meanwhile.
    left = _captures_with_unused_slots(services)
    for names in there:
        if names.resource in held or names not in left:
            continue
        on_source = services.source(source).capture(names)
        statements = " ".join(on_source.removal(None, last=True))
        yield UnusedSlot(
            f"slot {names.slot}",
            f"slot {names.slot} of source {source} exists, and no table on the plan needs it: while"
            " nothing reads it, it retains the log of the primary until the disk is full",
            "If another installation uses the slot, or if the state store has lost tables, leave"
            " it. If `tributary onboard` or `offboard` was interrupted, run it again. Otherwise"
            f" delete connector {names.connector} in Kafka Connect, if it is there, then run on the"
            f" source: {statements}",
        )


def _captures_with_unused_slots(services: Services) -> list[CaptureNames]:
    """Return the captures whose slots no table needs, by the tables' records as of now."""
    store = services.store
    return unused_captures(services.config, (*store.tables(), *store.builds()))


def _slot_exists(services: Services, names: CaptureNames) -> bool:
    """Whether an unused capture still has a slot on its source."""
    kept = services.source(names.source).capture(names).kept_log
    return kept is not None and kept.exists()


class UnusedSlotWarnings:
    """Warns of slots that commands have left and that no table needs, once an hour at most.

    Args:
        services: The services of the command.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._next = 0.0

    def look(self) -> None:
        """Log a warning for each unneeded slot of known captures; look at most once an hour."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY_S
        for source in self._services.config.sources:
            try:
                for slot in unused_slots(self._services, source):
                    _log.warning("%s. %s", slot.message, slot.remedy)
            except TributaryError as error:
                _log.info("source %s was not searched for unused slots: %s", source, error)
