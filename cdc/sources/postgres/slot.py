"""A replication slot: the log that PostgreSQL keeps for one capture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cdc.log.position import LogPosition, Lsn
from cdc.sources.source_facts import Stored

_LOST = frozenset({"lost", "unreserved"})


@dataclass(frozen=True)
class SlotHealth:
    """A logical replication slot and the log that it holds back; a `LogHealth`.

    Args:
        name: The slot.
        active: Whether a connector reads it now.
        wal_status: ``reserved``, ``extended``, ``unreserved`` or ``lost``.
        confirmed_flush_lsn: The connector has acknowledged everything up to here.
        restart_lsn: The server keeps the log from here on; None when lost.
        retained_bytes: Log kept for the slot; None when lost.
        safe_wal_size: Bytes that can still be written before the slot is in danger; None when
            there is no limit.
        end: Where the server's log ended when this was read.
        current: Reads where the log ends by now. A position that Connect stores later may be ahead
            of ``end``.
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

    @property
    def title(self) -> str:
        """The slot as messages name it."""
        return f"replication slot {self.name}"

    def problem(
        self, stored: LogPosition | None = None, recorded: LogPosition | None = None
    ) -> str | None:
        """Why changes that were not captured are lost, in words; None when none are.

        The slot never passes the position that Connect has stored, as long as only the connector
        moves the slot.
        """
        if self.wal_status in _LOST:
            return f"has wal_status {self.wal_status}; see max_slot_wal_keep_size"
        for known in (stored, recorded):
            if isinstance(known, Lsn) and known > self.end and known > (now := self.current()):
                return (
                    f"belongs to a log that ends at {now}, but changes up to {known} were"
                    " captured: the server was restored to an earlier state, and the connector"
                    " skips what the server writes before that position"
                )
        confirmed = self.confirmed_flush_lsn
        # Without exactly-once support a slot in use may be a moment ahead of what is stored.
        if (
            not self.active
            and isinstance(stored, Lsn)
            and confirmed is not None
            and confirmed > stored
        ):
            return (
                f"begins at {confirmed}, but Connect has captured only up to {stored}: the slot"
                " was recreated, or something other than the connector moved it"
            )
        return None

    def captured(self, stored: Stored, *, exactly_once: bool) -> LogPosition | None:
        """The position that the slot has confirmed, or Connect's without exactly-once support.

        Without that support the driver's flush can run ahead of an unacknowledged record.
        """
        return self.confirmed_flush_lsn if exactly_once else stored()

    def facts(self) -> dict[str, Any]:
        """The facts of the slot that people see, as plain values."""
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
    """A slot that is gone, and with it all changes that were not captured; a `LogHealth`.

    Args:
        name: Its name.
    """

    name: str
    active: bool | None = None
    retained_bytes: int | None = None

    @property
    def title(self) -> str:
        """The slot as messages name it."""
        return f"replication slot {self.name}"

    def problem(
        self, stored: LogPosition | None = None, recorded: LogPosition | None = None
    ) -> str | None:
        """The problem: the slot is gone."""
        return "no longer exists"

    def captured(self, stored: Stored, *, exactly_once: bool) -> LogPosition | None:
        """None: no position is known without the slot."""
        return None

    def facts(self) -> dict[str, Any]:
        """The names of a slot's facts, each with None."""
        return dict.fromkeys(
            ("active", "wal_status", "retained_bytes", "safe_wal_size", "confirmed_flush_lsn")
        )
