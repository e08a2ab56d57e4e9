"""The health of a capture's replication slot, by which PostgreSQL retains log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cdc.log.position import LogPosition, Lsn
from cdc.sources.log_health import Stored

_SETTINGS = {"idle_timeout": "idle_replication_slot_timeout", "wal_level_insufficient": "wal_level"}
"""For some reasons that a server shows for an invalid slot: the setting behind the reason."""


@dataclass(frozen=True)
class SlotHealth:
    """The `LogHealth` of a logical replication slot.

    Args:
        name: The slot's name.
        active: Whether a connector reads the slot now.
        wal_status: ``reserved``, ``extended``, ``unreserved`` or ``lost``.
        confirmed_flush_lsn: Position up to which the connector has confirmed all changes.
        restart_lsn: Position from which the server retains the log; None if the slot is lost.
        retained_bytes: Size of the retained log; None if the slot is lost.
        safe_wal_size: Number of bytes that the server can write before the slot can be ``lost``;
            None without a limit.
        end: End of the server's log when this health was read.
        current: Reads the current end of the log. `problem` calls this function: after this health
            was read, the log can have grown, and Connect can have stored a position after ``end``.
        invalidation_reason: Why the server has invalidated the slot, such as ``wal_removed``; None
            if the slot is valid. Always None before PostgreSQL 17.
    """

    name: str
    active: bool
    wal_status: str | None
    confirmed_flush_lsn: Lsn | None
    restart_lsn: Lsn | None
    retained_bytes: int | None
    safe_wal_size: int | None
    end: Lsn
    current: Callable[[], Lsn] = field(repr=False, compare=False)
    invalidation_reason: str | None = None

    @property
    def title(self) -> str:
        """The slot's name in messages."""
        return f"replication slot {self.name}"

    @property
    def danger(self) -> str | None:
        """Why the slot may soon lose uncaptured changes; None if the changes are safe.

        An unreserved slot still has its log until the next checkpoint. If the connector reads all
        of the log before the checkpoint, no change is lost.
        """
        if self.wal_status != "unreserved":
            return None
        return "has wal_status unreserved: the next checkpoint can remove log that it needs"

    def problem(
        self,
        stored: LogPosition | None = None,
        recorded: LogPosition | None = None,
        *,
        exactly_once: bool = False,
    ) -> str | None:
        """Return why the slot has lost uncaptured changes; None if no change is lost.

        The slot's confirmed position must not be after the position that Kafka Connect has stored.
        If it is after the stored position, the slot was recreated, or something other than the
        connector moved the slot's position.

        With exactly-once support, the two positions are compared even while a session reads the
        slot. The connector stores a position in a Kafka transaction, and confirms the position only
        after Kafka has decided to commit this transaction. Connect is asked for its stored position
        after this health was read. Connect's answer lacks the new position until every broker of
        the transaction knows of the commit. The caller waits for the brokers, and meanwhile passes
        the confirmed position as ``stored`` (`cdc.capture.sent_records`).

        Without exactly-once support, the stored position can become older: a worker that was
        suspended can store an old position after another worker has taken over its task. Later, the
        task stores a newer position. So the two positions are compared only while no session reads
        the slot. If Kafka shows that the connector has sent all changes between the two positions,
        the caller passes the confirmed position as ``stored`` (`cdc.capture.sent_records`).
        """
        reason = self.invalidation_reason
        if reason not in (None, "wal_removed"):
            setting = _SETTINGS.get(str(reason))
            return f"was invalidated ({reason})" + (f"; see {setting}" if setting else "")
        if reason or self.wal_status == "lost":
            return "has wal_status lost; see max_slot_wal_keep_size"
        for known in (stored, recorded):
            if isinstance(known, Lsn) and known > self.end and known > (now := self.current()):
                return (
                    f"belongs to a log that ends at {now}, but changes up to {known} were"
                    " captured: the server was restored to an earlier state, and the connector"
                    " skips what the server writes before that position"
                )
        confirmed = self.confirmed_after(stored, while_read=exactly_once)
        if confirmed is not None:
            return (
                f"begins at {confirmed}, but Connect has captured only up to {stored}: the slot"
                " was recreated, or something other than the connector moved it"
            )
        return None

    def confirmed_after(
        self, stored: LogPosition | None, *, while_read: bool = False
    ) -> Lsn | None:
        """Return the slot's confirmed position if it is after Connect's stored position.

        The result is None if the slot's position is not after Connect's. If ``while_read`` is
        false, the result is also None while a session reads the slot.
        """
        return None if self.active and not while_read else self._after(stored)

    def _after(self, stored: LogPosition | None) -> Lsn | None:
        confirmed = self.confirmed_flush_lsn
        if confirmed is None or not isinstance(stored, Lsn) or confirmed <= stored:
            return None
        return confirmed

    def captured(self, stored: Stored, *, exactly_once: bool) -> LogPosition | None:
        """Return the position up to which Kafka has all changes.

        With exactly-once support, the result is the slot's confirmed position. Without this
        support, the result is the position that Connect has stored; the connector's task confirms
        the stored position at its next poll.
        """
        return self.confirmed_flush_lsn if exactly_once else stored()

    def facts(self) -> dict[str, Any]:
        """Return the slot's state, sizes and position, each under its name, for `status`."""
        return {
            "active": self.active,
            "wal_status": self.wal_status,
            "retained_bytes": self.retained_bytes,
            "safe_wal_size": self.safe_wal_size,
            "confirmed_flush_lsn": None
            if self.confirmed_flush_lsn is None
            else str(self.confirmed_flush_lsn),
        }


@dataclass(frozen=True)
class NoSlot:
    """The `LogHealth` of a missing slot: all uncaptured changes are lost.

    Args:
        name: The slot's name.
    """

    name: str
    active: bool | None = None
    retained_bytes: int | None = None
    danger: str | None = None

    @property
    def title(self) -> str:
        """The slot's name in messages."""
        return f"replication slot {self.name}"

    def problem(
        self,
        stored: LogPosition | None = None,
        recorded: LogPosition | None = None,
        *,
        exactly_once: bool = False,
    ) -> str | None:
        """Return the problem: the slot does not exist."""
        return "no longer exists"

    def confirmed_after(self, stored: LogPosition | None, *, while_read: bool = False) -> None:
        """Return None, since no position is known without the slot."""

    def captured(self, stored: Stored, *, exactly_once: bool) -> LogPosition | None:
        """Return None, since no position is known without the slot."""
        return None

    def facts(self) -> dict[str, Any]:
        """Return a dictionary with the keys of `SlotHealth.facts`; each value is None."""
        return dict.fromkeys(
            ("active", "wal_status", "retained_bytes", "safe_wal_size", "confirmed_flush_lsn")
        )
