"""Judges how much log a capture holds back on its source's server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from cdc.sources.log_health import LogHealth


class Level(str, Enum):
    """The limits of a source's ``wal_limit``, in ascending order."""

    WARN = "warn"
    """Above this limit, commands warn."""
    ALARM = "alarm"
    """Above this limit, the exit codes of commands also show that it is exceeded."""
    GIVE_UP = "give_up"
    """Above this limit, a run also stops the connector and drops the slot, to save the server."""


@dataclass(frozen=True)
class OverLimit:
    """A capture that holds back more log on its source's server than a limit allows.

    Args:
        capture: The capture.
        level: The largest limit that is exceeded.
        title: Kind and name of what holds back the log.
        held_bytes: Size of the log that is held back.
        limit_bytes: The size that the exceeded limit allows.
    """

    capture: CaptureNames
    level: Level
    title: str
    held_bytes: int
    limit_bytes: int

    @property
    def alarms(self) -> bool:
        """Whether the exit codes of commands show that the limit is exceeded."""
        return self.level is not Level.WARN

    @property
    def message(self) -> str:
        """The message: what holds back the log, the size of the log, and the exceeded limit."""
        return (
            f"{self.title} holds back {_gib_text(self.held_bytes)} of log on the primary, more than"
            f" sources.{self.capture.source}.wal_limit.{self.level.value}"
            f" ({_gib_text(self.limit_bytes)})"
        )

    @property
    def remedy(self) -> str:
        """What the operator can do; for the highest level, what the next run does."""
        if self.level is Level.GIVE_UP:
            return (
                "The next `tributary run` stops the connector and drops the slot. To keep the"
                " capture, raise that limit before, and let the connector catch up."
            )
        return (
            "Let the connector catch up: `tributary status` names what keeps it from that, and a"
            " transaction that is open for hours holds the log, too. If the primary's disk gets"
            " full, drop the slot: `tributary offboard` for all tables of"
            f" {self.capture.source}/{self.capture.tier}."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the capture, the limit and the size as plain values, for JSON."""
        return {
            "source": self.capture.source,
            "tier": self.capture.tier,
            "level": self.level.value,
            "held_bytes": self.held_bytes,
            "limit_bytes": self.limit_bytes,
            "message": self.message,
            "remedy": self.remedy,
        }


def over_limit(
    capture: CaptureNames, log: LogHealth, limits: Mapping[str, int]
) -> OverLimit | None:
    """Return the largest limit that a capture's log exceeds; None if it exceeds none.

    Args:
        capture: The capture.
        log: The state of the log from which the capture reads.
        limits: A mapping from the name of each limit's setting to the limit in bytes, in ascending
            order of the limits.
    """
    held, found = log.retained_bytes, None
    for name, limit in limits.items():
        if held is not None and held > limit:
            found = OverLimit(capture, Level(name), log.title, held, limit)
    return found


def _gib_text(count: int) -> str:
    """Return the size of a capture's log as text in GiB, with one decimal place below 10 GiB."""
    amount = count / 2**30
    return f"{amount:,.0f} GiB" if amount >= 10 else f"{amount:.1f} GiB"
