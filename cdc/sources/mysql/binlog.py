"""The binlog of MySQL and MariaDB, which is kept whether or not a connector reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cdc.errors import PositionError
from cdc.log.binlog_position import StoredPosition
from cdc.log.position import LogPosition
from cdc.sources.source_facts import Stored


@dataclass(frozen=True)
class BinlogHealth:
    """The binlog of a MySQL or MariaDB server; a `LogHealth`.

    Args:
        source: Key of the source.
        purged: The position up to which it is purged.
        executed: Reads what the server has executed by now. A position that Connect stores after
            this health was read may be ahead of what was executed then.
        retained_bytes: Size of all its files; None if that may not be read.
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
        try:
            if recorded is not None:
                recorded.reaches(self.purged)  # raises if the two are not of one kind
            return None if stored is None else self._lost(stored, recorded)
        except PositionError as error:
            return f"has positions that cannot be compared with the captured ones: {error.message}"

    def _lost(self, stored: LogPosition, recorded: LogPosition | None) -> str | None:
        if isinstance(stored, StoredPosition):
            stored = stored.like(self.purged)
        executed = self.executed()
        if not executed.reaches(stored):
            return (
                f"lacks transactions that were captured (captured up to {stored}, the binlog has"
                f" {executed}): it belongs to another server, was reset, or was restored to an"
                " earlier state"
            )
        if not stored.reaches(self.purged):
            return (
                "no longer has the changes that the connector needs next: it is purged up to"
                f" {self.purged}, and captured only up to {stored}"
            )
        if recorded is not None and not stored.reaches(recorded):
            return (
                f"is captured only up to {stored}, but the table in the lake needs {recorded}:"
                " the connector's stored position was lost or set back"
            )
        return None

    def captured(self, stored: Stored, *, exactly_once: bool) -> LogPosition | None:
        """The position that Connect has stored; no other component reports what is captured."""
        return stored()

    def facts(self) -> dict[str, Any]:
        """The facts of the binlog that people see, as plain values."""
        return {
            "retained_bytes": self.retained_bytes,
            "purged": str(self.purged),
        }


@dataclass(frozen=True)
class NoBinlog:
    """A server that writes no binlog, so its changes are in no log; a `LogHealth`.

    Args:
        source: Key of the source.
    """

    source: str
    active: bool | None = None
    retained_bytes: int | None = None

    @property
    def title(self) -> str:
        """The binlog as messages name it."""
        return f"the binlog of source {self.source}"

    def problem(
        self, stored: LogPosition | None = None, recorded: LogPosition | None = None
    ) -> str | None:
        """The problem: the server writes none."""
        return "is off (log_bin), so the server logs no changes"

    def captured(self, stored: Stored, *, exactly_once: bool) -> LogPosition | None:
        """None: a position that was captured says nothing of later changes."""
        return None

    def facts(self) -> dict[str, Any]:
        """The names of a binlog's facts, each with None."""
        return dict.fromkeys(("retained_bytes", "purged"))
