"""Reads identities, transaction ids and positions of a server; writes markers on the primary."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from uuid import uuid4

from cdc.errors import SourceError
from cdc.log.position import Lsn
from cdc.runtime.progress import Progress, shown_as
from cdc.runtime.waiting import wait_while
from cdc.sources.postgres.connection import Session, optional_row
from cdc.sources.postgres.publication import TIMELINE
from cdc.sources.source_facts import Marker, ServerIdentity

_POLL_S = (0.02, 5.0)
"""The pause of a wait doubles, so a wait lasts at most twice as long as what it waits for."""
_DESCRIBED_EVERY_S = 10.0
"""Pause before a wait asks again who is in its way: reading pg_locks holds up all who lock."""
_FIRST_DESCRIBED_S = 1.0
_NAMED = 10

# An open transaction holds an exclusive lock on its own id, and so does a prepared transaction.
# Every role sees these locks. An xid is 32 bits wide, so ages are compared.
_OPEN = """
SELECT l.pid, p.gid, coalesce(a.usename, p.owner)::text, coalesce(a.datname, p.database)::text,
       a.application_name, a.state,
       round(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared)))::int8
FROM pg_catalog.pg_locks l
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = l.transactionid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
  AND {which}
ORDER BY age(l.transactionid) DESC
"""
_AS_OLD = _OPEN.format(which="age(l.transactionid) >= age(%s::text::xid8::xid)")
_THESE = _OPEN.format(which="l.transactionid::text = ANY(%s)")
_OPEN_OF_THESE = """
SELECT FROM pg_catalog.pg_locks WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock'
  AND granted AND transactionid::text = ANY(%s) LIMIT 1
"""
_ON_DISK = """
SELECT pg_catalog.set_config('synchronous_commit', 'local', true)
WHERE pg_catalog.current_setting('synchronous_commit') = 'off'
"""
_SYSTEM = "(SELECT system_identifier::text FROM pg_control_system())"
# A standby's control file shows a new timeline only after a restart point; the other two sources
# show it earlier.
_REPLAYED = """(
    SELECT greatest(c.timeline_id, r.min_recovery_end_timeline, w.received_tli)
    FROM pg_control_checkpoint() c CROSS JOIN pg_control_recovery() r
    LEFT JOIN pg_catalog.pg_stat_wal_receiver w ON true)"""
# A server that withholds one of the functions refuses all of the statement.
_IDENTITY = f"""
SELECT pg_is_in_recovery(), {_SYSTEM},
       CASE WHEN pg_is_in_recovery() THEN {_REPLAYED} ELSE {TIMELINE} END
"""
_IDS = """
SELECT DISTINCT transactionid::text FROM pg_catalog.pg_locks
WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted
"""


def current_transaction_id(session: Session) -> int:
    """Return the id of a new PostgreSQL transaction that has already committed."""
    row = session.execute("SELECT pg_current_xact_id()::text").fetchone()
    return int(_only_row(row)[0])


def wait_for_older_transactions(
    session: Session, xid: int, *, source: str, timeout_s: float, progress: Progress
) -> None:
    """Wait until every PostgreSQL transaction with an id up to ``xid`` has ended.

    Raises:
        SourceError: The wait reached its bound. The error names the open transactions.
    """

    def still_open() -> bool:
        row = session.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text").fetchone()
        return int(_only_row(row)[0]) <= xid

    def described() -> list[str]:
        return _described_transactions(session.execute(_AS_OLD, (str(xid),)).fetchall())

    what = f"older transactions of source {source}"
    _wait_for_transactions(still_open, described, what, source, timeout_s, progress)


def wait_until_visible(
    session: Session,
    transactions: Collection[int],
    *,
    source: str,
    timeout_s: float,
    progress: Progress,
) -> frozenset[int]:
    """Wait until new statements see the changes of the given PostgreSQL transactions.

    The function waits until the transactions have released the locks on their own ids: a
    transaction does so after its changes have become visible. The ids are not compared with a
    snapshot, since a snapshot has whole ids, and the log has only the lower half of each id.

    Args:
        session: A session of the primary.
        transactions: The transactions' ids in the log: the lower 32 bits.
        source: The source's name.
        timeout_s: Bound of the wait, in seconds.
        progress: Shows the wait.

    Returns:
        The lower 32 bits of the id of each transaction that is open after the wait.

    Raises:
        SourceError: The wait reached its bound. The error names those of the given transactions
            that are still open.
    """
    waited_for = [str(xid) for xid in transactions]

    def still_open() -> bool:
        return session.execute(_OPEN_OF_THESE, (waited_for,)).fetchone() is not None

    def described() -> list[str]:
        return _described_transactions(session.execute(_THESE, (waited_for,)).fetchall())

    what = f"commits of source {source}"
    _wait_for_transactions(still_open, described, what, source, timeout_s, progress)
    return frozenset(int(xid) for (xid,) in session.execute(_IDS).fetchall())


def _wait_for_transactions(
    still_open: Callable[[], bool],
    described: Callable[[], list[str]],
    what: str,
    source: str,
    timeout_s: float,
    progress: Progress,
) -> None:
    """Wait until PostgreSQL transactions have ended, so that ``still_open`` returns False.

    Args:
        still_open: Whether one of the transactions is still open; called at each poll.
        described: Describes those that are open; called every `_DESCRIBED_EVERY_S`.
        what: What is waited for, in words for messages.
        source: The source's name.
        timeout_s: Bound of the wait, in seconds.
        progress: Shows the wait.
    """
    # Most waits end before it is worth asking.
    shown, due = what, time.monotonic() + _FIRST_DESCRIBED_S

    def named() -> str:
        return "; ".join(described()) or "none that this role can see"

    def left() -> str:
        nonlocal shown, due
        if not still_open():
            return ""
        if time.monotonic() >= due:
            shown, due = named(), time.monotonic() + _DESCRIBED_EVERY_S
        return shown

    with shown_as(f"wait for {what}", progress) as task:
        if wait_while(left, timeout_s=timeout_s, poll_s=_POLL_S, task=task):
            raise SourceError(
                f"{what} are still open after {timeout_s:.0f} s: {named()}",
                remedy="Wait until they end, or end them (pg_terminate_backend, ROLLBACK"
                " PREPARED; a commit that waits for a synchronous standby needs that standby);"
                " then run the command again.",
                source=source,
            )


def _described_transactions(rows: Sequence[tuple[object, ...]]) -> list[str]:
    """Return descriptions of at most ten open or prepared PostgreSQL transactions for messages."""
    lines = []
    for pid, gid, user, database, application, state, seconds in rows[:_NAMED]:
        what = f"prepared transaction {gid!r}" if gid is not None else f"session {pid}"
        facts = [
            f"{label} {value}"
            for label, value in (
                ("user", user),
                ("database", database),
                ("application", application),
                ("state", state),
            )
            if value
        ]
        if seconds is not None:
            facts.append(f"open for {seconds} s")
        lines.append(f"{what} ({', '.join(facts)})" if facts else what)
    return lines


def identity(session: Session) -> ServerIdentity:
    """Return a PostgreSQL server's identity: cluster, timeline, and whether it is a standby."""
    if (whole := optional_row(session, _IDENTITY)) is not None:
        in_recovery, system_identifier, number = whole
        return ServerIdentity(system_identifier, number, in_recovery=in_recovery)
    row = session.execute("SELECT pg_is_in_recovery()").fetchone()
    in_recovery = bool(_only_row(row)[0])
    system = optional_row(session, f"SELECT {_SYSTEM}")
    timeline = optional_row(session, f"SELECT {_REPLAYED if in_recovery else TIMELINE}")
    return ServerIdentity(
        system_identifier=system[0] if system else None,
        timeline=timeline[0] if timeline else None,
        in_recovery=in_recovery,
    )


def write_marker(session: Session) -> Marker:
    """Write a new marker row, and read the end of PostgreSQL's log after the row's commit.

    The row, and all that was committed before it, is on the server's disk then.
    """
    server = identity(session)
    marker_id = uuid4()
    session.execute("DELETE FROM tributary.marker WHERE written_at < now() - interval '30 days'")
    with session.transaction():
        session.execute(_ON_DISK)
        session.execute(
            "INSERT INTO tributary.marker (id, system_identifier, timeline) VALUES (%s, %s, %s)",
            (marker_id, server.system_identifier, server.timeline),
        )
    return Marker(
        id=marker_id,
        system_identifier=server.system_identifier,
        timeline=server.timeline,
        position=current_lsn(session),
    )


def current_lsn(session: Session) -> Lsn:
    """Return the end of PostgreSQL's log, a position after all commits so far."""
    row = session.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    return Lsn.parse(_only_row(row)[0])


def _only_row(row: tuple[object, ...] | None) -> tuple[str, ...]:
    """Return the row of a query that always gets one row from a PostgreSQL source."""
    if row is None:
        raise AssertionError("a SELECT without FROM gives one row")
    return row  # type: ignore[return-value]  # each caller knows its one column
