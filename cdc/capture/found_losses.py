"""Collects the losses, certain or possible, that happened when a connector's tasks ended."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc.capture.remembered_losses import table_scope
from cdc.store.kept_task_looks import Doubt

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from schemas.table import TableId

_log = logging.getLogger(__name__)


@dataclass
class Found:
    """The losses and the doubts (possible losses) that one search for ended tasks has found.

    Args:
        losses: By table, a message about the rows that the table has lost or got twice.
        doubts: By table, the newest end of a task at which the table may have lost rows or got
            rows twice.
    """

    losses: dict[TableId, str] = field(default_factory=dict)
    doubts: dict[str, Doubt] = field(default_factory=dict)

    def lose(self, table: TableId, what: str) -> None:
        """Add a message about rows that a table has lost or got twice."""
        known = self.losses.get(table)
        self.losses[table] = what if known is None else f"{known}; {what}"

    def doubt(self, table: TableId, offset: int, what: str, fear: str = "missing") -> None:
        """Add the end of a task at which a table may have lost rows or got rows twice.

        Args:
            table: The table.
            offset: The offset of the ended task's last record.
            what: What is uncertain, for the beginning of the doubt's message.
            fear: ``missing`` if rows may be lost, ``doubled`` if the table may have rows twice.
        """
        advice = f"rows of table {table} can be {fear}; run `tributary verify {table}`"
        self.doubts[str(table)] = Doubt(offset, f"{what}: {advice}")

    def by_scope(self, names: CaptureNames) -> dict[str, str]:
        """Return the losses as a mapping from names to messages.

        The state store counts a table's losses under the name that `table_scope` returns.
        """
        return {table_scope(names, table): what for table, what in self.losses.items()}

    def log(self) -> None:
        """Log each loss and each doubt as a warning."""
        for table, lost in self.losses.items():
            _log.warning("table %s: %s", table, lost)
        for one in self.doubts.values():
            _log.warning("%s", one.what)
