"""Finds out whether a replication slot was dropped and created again under the same name.

PostgreSQL does not record when a slot was created, and a connector without a stored position
creates a missing slot itself. But the server counts what each slot has decoded, and a new slot's
counts begin at 0. So if a count is smaller than at the previous look (Tributary's last reading of
the counts), the slot is another slot. Changes that were made between the two slots have no event.

The counts can also begin at 0 because the server crashed, or because somebody reset them. The
server shows two timestamps. A crash changes the first one, and a reset of the slot's counts changes
the second one. If the first timestamp has changed since the previous look, nothing is compared. If
the second timestamp is new or later, the counts are not compared.

A new slot has no second timestamp until its counts are reset. So if the slot had a second
timestamp at the previous look, and now has no second timestamp or an earlier one, the slot is
another slot, whatever its counts are.
"""

from __future__ import annotations

from decimal import Decimal

from cdc.log.continuity import Continuity, LogMark
from cdc.sources.postgres import primary
from cdc.sources.postgres.connection import Connections

# A crash discards all statistics, and so also changes the reset time of `pg_stat_bgwriter`. The
# slot's reset time is NULL until somebody resets the counts of this slot.
_COUNTS = """
SELECT extract(epoch FROM shared.stats_reset)::text, extract(epoch FROM slot.stats_reset)::text,
       slot.total_txns, slot.total_bytes
FROM pg_catalog.pg_stat_replication_slots slot, pg_catalog.pg_stat_bgwriter shared
WHERE slot.slot_name = %s
"""


def continuity(connections: Connections, slot: str, earlier: LogMark | None) -> Continuity | None:
    """Compare the counts in an earlier mark with what a PostgreSQL slot has decoded by now.

    Args:
        connections: Opens sessions.
        slot: The slot's name.
        earlier: The mark that an earlier call returned; None without an earlier call.

    Returns:
        The comparison; None if there is no such slot.
    """
    with connections.open("admin") as session:
        server = primary.identity(session)
        row = session.execute(_COUNTS, (slot,)).fetchone()
    if row is None:
        return None
    shared, own, transactions, size = row
    mark = LogMark(
        f"{server.system_identifier}/{server.timeline}",
        str(shared) if own is None else f"{shared}/{own}",
        f"{transactions} {size}",
    )
    lost = None if earlier is None else recreated(earlier, mark)
    return Continuity(earlier, mark, lost)


def recreated(earlier: LogMark, now: LogMark) -> str | None:
    """Return a message if a slot's statistics in PostgreSQL show that the slot was recreated.

    The result is None if neither the counts nor their reset times show this, or if the counts
    cannot be compared.

    Args:
        earlier: The mark with the statistics of an earlier call of `continuity`.
        now: The mark with the present statistics.
    """
    (shared, had_reset), (shared_now, has_reset) = (
        _statistics_resets(earlier),
        _statistics_resets(now),
    )
    if (earlier.server, shared) != (now.server, shared_now):
        return None
    between = "What was written between the two slots is in no event"
    if had_reset is not None and (has_reset is None or has_reset < had_reset):
        return (
            "was recreated: at the last look its statistics had the time of a reset"
            f" (stats_reset, epoch {had_reset}), and now they have"
            f" {'none' if has_reset is None else f'an earlier one, {has_reset}'}. {between}"
        )
    if had_reset != has_reset:
        return None
    before, present = _decoded_counts(earlier), _decoded_counts(now)
    if all(has >= had for had, has in zip(before, present, strict=True)):
        return None
    return (
        f"was recreated: it has decoded {present[0]} transactions ({present[1]} bytes), and at the"
        f" last look {before[0]} transactions ({before[1]} bytes). {between}"
    )


def _statistics_resets(mark: LogMark) -> tuple[str, Decimal | None]:
    """Return when a PostgreSQL server's statistics and a slot's statistics were last reset.

    Both times are in seconds since 1970. The second one is None if the slot's statistics were never
    reset.
    """
    shared, _, own = mark.file.partition("/")
    return shared, Decimal(own) if own else None


def _decoded_counts(mark: LogMark) -> tuple[int, int]:
    """Return how many transactions and bytes a PostgreSQL slot had decoded at a mark."""
    transactions, size = mark.executed.split()
    return int(transactions), int(size)
