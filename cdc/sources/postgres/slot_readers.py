"""Finds out who reads a replication slot, and when the slot's connector last wrote a heartbeat.

A slot belongs to a whole database server. Two installations of Tributary that capture one database
with the same names share the slot. A change that one installation reads never reaches the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc.sources.postgres.connection import Session


@dataclass(frozen=True)
class SlotReader:
    """The session that reads a slot.

    Args:
        process: Id of the session's process on the server.
        application: Name that the reading program gives itself; empty if it gives none.
        address: Address of the program's machine; None for a local socket, or if the login may not
            see the address.
    """

    process: int
    application: str
    address: str | None

    def __str__(self) -> str:
        """Describe the reader for messages."""
        name = f"`{self.application}`" if self.application else "a program without a name"
        where = "" if self.address is None else f" on {self.address}"
        return f"{name}{where}, process {self.process}"


_READER = """
SELECT s.active_pid, coalesce(a.application_name, ''), pg_catalog.host(a.client_addr)
FROM pg_catalog.pg_replication_slots s
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = %s AND s.active_pid IS NOT NULL
"""
_TABLES = """
SELECT to_regclass('tributary.heartbeat') IS NOT NULL
       AND to_regclass('tributary.heartbeat_log') IS NOT NULL
"""
_BEAT_AGE = """
SELECT extract(epoch FROM clock_timestamp() - max(beat_at))::float8
FROM (SELECT source, beat_at FROM tributary.heartbeat
      UNION ALL SELECT source, beat_at FROM tributary.heartbeat_log) beats
WHERE source = %s
"""


def reader(session: Session, slot: str) -> SlotReader | None:
    """Return the PostgreSQL session that reads a slot; None if no session reads it."""
    row = session.execute(_READER, (slot,)).fetchone()
    return None if row is None else SlotReader(*row)


def beat_age_s(session: Session, slot: str) -> float | None:
    """Return the age in seconds of the newest heartbeat of a slot's connector in PostgreSQL.

    The age is by the server's clock. Without a heartbeat of that slot, the result is None.
    """
    if session.execute(_TABLES).fetchone() != (True,):
        return None
    row = session.execute(_BEAT_AGE, (slot,)).fetchone()
    return None if row is None else row[0]
