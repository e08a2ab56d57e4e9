"""The health of a server's binlog, which the server purges even if no connector has read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cdc.errors import PositionError
from cdc.log.binlog_position import StoredPosition
from cdc.log.position import LogPosition
from cdc.sources.log_health import Stored


@dataclass(frozen=True)
class BinlogHealth:
    """The `LogHealth` of the binlog of a MySQL or MariaDB server.

    Args:
        source: Key of the source.
        purged: The position up to which the server has deleted the binlog.
        executed: Reads the position up to which the server has executed transactions. `problem`
            calls this function again if the last result lacks transactions that the connector has
            captured, since the server can have executed them in the meantime.
        retained_bytes: Total size of the binlog's files; None if it is not known.
    """

    source: str
    purged: LogPosition
    executed: Callable[[], LogPosition] = field(repr=False, compare=False)
    retained_bytes: int | None
    active: bool | None = None
    danger: str | None = None
    _last: list[LogPosition] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def title(self) -> str:
        """The binlog's name in messages."""
        return f"the binlog of source {self.source}"

    def problem(
        self,
        stored: LogPosition | None = None,
        recorded: LogPosition | None = None,
        *,
        exactly_once: bool = False,
    ) -> str | None:
        """Return why capture cannot continue from the binlog without a gap; None if it can."""
        try:
            if recorded is not None:
                recorded.reaches(self.purged)  # raises if the two are not of one kind
            return None if stored is None else self._why_lost(stored, recorded)
        except PositionError as error:
            return f"has positions that cannot be compared with the captured ones: {error.message}"

    def _why_lost(self, stored: LogPosition, recorded: LogPosition | None) -> str | None:
        """Return why capture cannot continue at Connect's stored position; None if it can."""
        if isinstance(stored, StoredPosition):
            stored = stored.like(self.purged)
        executed = self._last[0] if self._last else self.executed()
        if not executed.reaches(stored):
            executed = self.executed()
        self._last[:] = [executed]
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

    def confirmed_after(self, stored: LogPosition | None, *, while_read: bool = False) -> None:
        """Return None, since the server does not record what is captured."""

    def captured(self, stored: Stored, *, exactly_once: bool) -> LogPosition | None:
        """Return Connect's stored position, since the server does not record what is captured."""
        return stored()

    def facts(self) -> dict[str, Any]:
        """Return the binlog's size and purged position as a dict, for ``status`` and messages."""
        return {
            "retained_bytes": self.retained_bytes,
            "purged": str(self.purged),
        }


@dataclass(frozen=True)
class NoBinlog:
    """The `LogHealth` of a server that writes no binlog.

    Args:
        source: Key of the source.
    """

    source: str
    active: bool | None = None
    retained_bytes: int | None = None
    danger: str | None = None

    @property
    def title(self) -> str:
        """The binlog's name in messages."""
        return f"the binlog of source {self.source}"

    def problem(
        self,
        stored: LogPosition | None = None,
        recorded: LogPosition | None = None,
        *,
        exactly_once: bool = False,
    ) -> str | None:
        """Return the problem: the server writes no binlog."""
        return "is off (log_bin), so the server logs no changes"

    def confirmed_after(self, stored: LogPosition | None, *, while_read: bool = False) -> None:
        """Return None, since the server writes no binlog."""

    def captured(self, stored: Stored, *, exactly_once: bool) -> LogPosition | None:
        """Return None, since no log contains the MySQL or MariaDB server's changes."""
        return None

    def facts(self) -> dict[str, Any]:
        """Return a dictionary with the keys of `BinlogHealth.facts`; each value is None."""
        return dict.fromkeys(("retained_bytes", "purged"))
