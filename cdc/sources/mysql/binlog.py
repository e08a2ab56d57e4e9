"""The log that MySQL and MariaDB keep, for whoever reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cdc.position import LogPosition
from cdc.sources.values import Stored


@dataclass(frozen=True)
class BinlogHealth:
    """The binlog of a MySQL or MariaDB server; a `LogHealth`.

    Args:
        source: Key of the source.
        purged: Transactions that it no longer has.
        executed: Asks which transactions the server has executed: what is stored later than this
            was read may be ahead of what was executed then.
        retained_bytes: Size of all its files; None where that may not be read.
    """

    source: str
    purged: LogPosition
    executed: Callable[[], LogPosition] = field(repr=False, compare=False)
    retained_bytes: int | None
    active: bool | None = None

    @property
    def title(self) -> str:
        """The binlog as messages name it."""
        return f"the binlog of source {self.source}"

    def problem(
        self, stored: LogPosition | None = None, recorded: LogPosition | None = None
    ) -> str | None:
        """Why changes that were not captured are lost, in words; None when none are."""
        if stored is None:
            return None
        executed = self.executed()
        if not executed.reaches(stored):
            return (
                f"lacks transactions that were captured ({stored} are stored, {executed} executed):"
                " it is another server's, or was restored to an earlier state"
            )
        if not stored.reaches(self.purged):
            return (
                f"no longer has what the connector needs next: {self.purged} are purged, and"
                f" captured are {stored}"
            )
        if recorded is not None and not stored.reaches(recorded):
            return (
                f"is captured up to {stored} only, and the lake rests on {recorded}: the"
                " connector's stored position was lost or set back"
            )
        return None

    def captured(self, stored: Stored, *, exactly_once: bool) -> LogPosition | None:
        """What Connect has stored; there is no other word on it."""
        return stored()

    def facts(self) -> dict[str, Any]:
        """What people see of it, as plain values."""
        return {
            "retained_bytes": self.retained_bytes,
            "purged": str(self.purged),
        }
