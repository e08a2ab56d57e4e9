"""Waits for the marker on the replica, opens views, and explains a lost view."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from threading import Lock

import psycopg

from cdc.errors import ReplicaError, SnapshotLostError, SourceError
from cdc.log.position import LogPosition, Lsn
from cdc.runtime.progress import Progress, shown_as
from cdc.runtime.waiting import Movement, wait_while_moving
from cdc.sources.postgres import importers
from cdc.sources.postgres.connection import (
    CONFLICT_REMEDY,
    Connections,
    Session,
    is_recovery_conflict,
    optional_row,
)
from cdc.sources.postgres.primary import current_lsn, identity
from cdc.sources.source_facts import Marker, ReplicaPosition, ServerIdentity
from cdc.sources.views import KnownSplit, View

_POLL_S = (0.02, 0.5)
_SETTINGS = ("max_standby_streaming_delay", "max_standby_archive_delay", "hot_standby_feedback")


@dataclass
class Exporter:
    """A view of the source, and the PostgreSQL session that exports the view's snapshot.

    Args:
        session: The session.
        view: The view.
        lock: Held by the thread that uses the session.
    """

    session: Session
    view: View
    lock: Lock = field(default_factory=Lock)


def replica_position(connections: Connections) -> ReplicaPosition:
    """Return the PostgreSQL replica's position and lag, as far as the login may read them."""
    with connections.open("admin") as primary:
        ahead = current_lsn(primary)
    with connections.open("snapshot", on_replica=True) as session:
        replay = optional_row(session, "SELECT pg_last_wal_replay_lsn()::text")
        receive = optional_row(session, "SELECT pg_last_wal_receive_lsn()::text")
        paused = optional_row(session, "SELECT pg_is_wal_replay_paused()")
        age = optional_row(
            session,
            "SELECT date_part('epoch', clock_timestamp() - pg_last_xact_replay_timestamp())",
        )
    replay_lsn = Lsn.parse(replay[0]) if replay and replay[0] else None
    lag_bytes = max(0, ahead - replay_lsn) if replay_lsn is not None else None
    seconds = float(age[0]) if age and age[0] is not None else None
    return ReplicaPosition(
        replayed=replay_lsn,
        received=Lsn.parse(receive[0]) if receive and receive[0] else None,
        lag_bytes=lag_bytes,
        lag_seconds=0.0 if lag_bytes == 0 else seconds,
        paused=bool(paused and paused[0]),
    )


def describe_lag(position: ReplicaPosition) -> str:
    """Return the lag of a PostgreSQL replica in words, for messages."""
    parts = []
    if position.lag_bytes is not None:
        parts.append(f"{position.lag_bytes} bytes")
    if position.lag_seconds is not None:
        parts.append(f"{position.lag_seconds:.1f} s")
    text = " and ".join(parts) + " behind" if parts else "lag unknown"
    return f"{text}, replay paused" if position.paused else text


def check_standby(
    found: ServerIdentity, primary: Marker | ServerIdentity, where: str
) -> tuple[str, ...]:
    """Check that a PostgreSQL server is a standby of the primary.

    Args:
        found: The identity of the server.
        primary: The identity of the primary, or a marker that the primary wrote.
        where: The server's name in messages.

    Returns:
        A warning for each part of the identity that could not be compared.

    Raises:
        ReplicaError: The server is not in recovery, belongs to another cluster, or is on a later
            timeline.
    """
    if not found.in_recovery:
        raise ReplicaError(
            f"{where} is not in recovery: it was promoted, or is not a standby",
            remedy="Point `replica` at a physical standby of the primary, then run the command"
            " again.",
        )
    warnings = []
    for fact, ours, theirs in (
        ("system identifier", primary.system_identifier, found.system_identifier),
        ("timeline", primary.timeline, found.timeline),
    ):
        if ours is None or theirs is None:
            warnings.append(f"the {fact} of {where} could not be compared: no permission")
    # after a failover a standby can show its old timeline until its next restart point; the marker
    # proves that it has replayed the new one
    if _both_known_and_differ(primary.system_identifier, found.system_identifier) or is_ahead(
        found, primary
    ):
        raise ReplicaError(
            f"{where} is system {found.system_identifier} on timeline {found.timeline}, but the "
            f"primary is system {primary.system_identifier} on timeline {primary.timeline}",
            remedy="Point `replica` at a physical standby of this primary, and `primary` at the "
            "server that takes writes since the last failover.",
        )
    return tuple(warnings)


def is_ahead(found: ServerIdentity, other: Marker | ServerIdentity) -> bool:
    """Whether ``found`` has a later PostgreSQL timeline than ``other``; False if one is unknown."""
    if found.timeline is None or other.timeline is None:
        return False
    return found.timeline > other.timeline


def _both_known_and_differ(one: str | None, other: str | None) -> bool:
    """Whether the system identifiers of two PostgreSQL servers are known and differ."""
    return one is not None and other is not None and one != other


def marker_visible(session: Session, marker: Marker) -> bool:
    """Whether the PostgreSQL session's snapshot shows the marker row."""
    query = "SELECT 1 FROM tributary.marker WHERE id = %s"
    try:
        with session.transaction():
            return session.execute(query, (marker.id,)).fetchone() is not None
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return False  # the replica has not replayed the creation of the schema and table yet


def wait_for_marker(
    connections: Connections,
    marker: Marker,
    *,
    timeout_s: float,
    progress: Progress,
    go_on: bool = False,
) -> None:
    """Wait until new transactions on the PostgreSQL replica see the primary's marker row.

    Args:
        connections: Opens sessions.
        marker: The marker.
        timeout_s: Bound of the wait, in seconds.
        progress: Shows the wait.
        go_on: Whether the wait begins again at its bound while the replica replays.

    Raises:
        ReplicaError: The wait reached its bound, or the server is not a standby of the marker's
            primary.
    """
    where = connections.where(on_replica=True)
    replayed = Movement()
    with shown_as(f"wait for the {where}", progress) as task:

        def behind() -> SourceError | None:
            task.advance()
            try:
                found, visible = _marker_look(connections, marker)
            except SourceError as error:
                # a replica that lags can lack the database or a grant
                task.note(error.message)
                return error
            # a standby takes its timeline from what it has replayed, so the timelines are
            # compared once the marker is visible
            stranger = _both_known_and_differ(marker.system_identifier, found.system_identifier)
            if visible or stranger or not found.in_recovery:
                check_standby(found, marker, where)
                return None
            position = replica_position(connections)
            replayed.note(position.replayed)
            task.note(describe_lag(position))
            return _too_late(where, position, timeout_s)

        moved = replayed.ended if go_on else lambda: False
        if late := wait_while_moving(behind, moved, timeout_s=timeout_s, poll_s=_POLL_S):
            raise late


def _marker_look(
    connections: Connections, marker: Marker, *, on_replica: bool = True, new_login: bool = False
) -> tuple[ServerIdentity, bool]:
    """Return a PostgreSQL server's identity, and whether a new transaction sees the marker."""
    with connections.open("snapshot", on_replica=on_replica, new_login=new_login) as session:
        return identity(session), marker_visible(session, marker)


def _too_late(where: str, position: ReplicaPosition, timeout_s: float) -> ReplicaError:
    """Return the error for a PostgreSQL replica that does not show the marker in time."""
    remedy = (
        "Resume it with SELECT pg_wal_replay_resume() on the replica, then run the command again."
        if position.paused
        else "Check that the replica streams from this primary (pg_stat_wal_receiver there,"
        " pg_stat_replication here); if it only lags, wait until it has caught up, then run the"
        " command again."
    )
    return ReplicaError(
        f"{where} did not show the marker within {timeout_s:.0f} s: {describe_lag(position)}",
        remedy=remedy,
    )


@contextmanager
def own_snapshots(
    connections: Connections, marker: Marker, *, on_replica: bool
) -> Iterator[Exporter]:
    """Open a view of PostgreSQL in which each session takes its own snapshot.

    Such a snapshot is open only while its session reads, so VACUUM soon removes rows that nobody
    needs any more. And on a standby no session imports a snapshot, since a snapshot that a standby
    exports can lack its list of transactions in progress. A session that imports such a snapshot
    treats these transactions as rolled back, and marks their rows as rolled back in the standby's
    pages. Then no session of the standby ever sees these rows, even after the transactions commit,
    and even after a promotion.

    The view's own session has no transaction. It ends if the server crashes.

    Raises:
        ReplicaError: The server does not show the marker, or is a replica that is not a standby of
            the primary.
    """
    with connections.open("snapshot", on_replica=on_replica) as session:
        taken = Exported("", marker.position)
        yield Exporter(session, proven(connections, session, taken, marker, on_replica=on_replica))


@contextmanager
def primary_view(connections: Connections, marker: Marker) -> Iterator[Exporter]:
    """Open a view with the snapshot of a session on the PostgreSQL primary.

    Other sessions can import the snapshot until the block ends.

    Raises:
        ReplicaError: The view lacks the marker.
    """
    with exporting(connections, on_replica=False) as session:
        exported = exported_now(connections, session, on_replica=False)
        yield Exporter(session, proven(connections, session, exported, marker, on_replica=False))


def exported_now(connections: Connections, session: Session, *, on_replica: bool) -> Exported:
    """Export a PostgreSQL transaction's snapshot; read a log position after all changes in it."""
    snapshot = export(session)
    # read after the snapshot was taken, so the snapshot contains nothing after this position
    position = optional_row(session, "SELECT pg_last_wal_replay_lsn()::text")
    if on_replica and position is not None and position[0] is not None:
        return Exported(snapshot, Lsn.parse(position[0]))
    with connections.open("admin") as primary:
        return Exported(snapshot, current_lsn(primary))


@contextmanager
def exporting(connections: Connections, *, on_replica: bool) -> Iterator[Session]:
    """Open a PostgreSQL session with a transaction in which all statements use one snapshot."""
    with connections.open("snapshot", on_replica=on_replica, statement_timeout_s=0) as session:
        session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        session.read_only = True
        session.autocommit = False
        yield session


def export(session: Session) -> str:
    """Allow other PostgreSQL sessions to import this transaction's snapshot; return its id."""
    row = session.execute("SELECT pg_export_snapshot()").fetchone()
    return row[0] if row else ""


@dataclass(frozen=True)
class Exported:
    """A snapshot that a PostgreSQL session exports, and the snapshot's position.

    Args:
        snapshot: The snapshot's id; empty if each session takes a snapshot of its own.
        upper_bound: A position in the log. An exported snapshot contains no change after this
            position.
        exact: Whether the snapshot contains exactly the transactions that committed before
            ``upper_bound``.
    """

    snapshot: str
    upper_bound: LogPosition
    exact: bool = False


def proven(
    connections: Connections,
    session: Session,
    exported: Exported,
    marker: Marker,
    *,
    on_replica: bool,
) -> View:
    """Check that a PostgreSQL session sees the marker row on the right server; return a `View`.

    Raises:
        ReplicaError: The view lacks the marker, or the replica is not a standby of the primary.
    """
    where = connections.where(on_replica=on_replica)
    if not marker_visible(session, marker):
        raise ReplicaError(
            f"a view on the {where} does not show the marker that the copy wrote",
            remedy=one_server(on_replica=on_replica),
        )
    found = identity(session)
    return View(
        snapshot_id=exported.snapshot,
        upper_bound=exported.upper_bound,
        opened_at=datetime.now(timezone.utc),
        on_replica=on_replica,
        marker=marker,
        identity=found,
        warnings=_standby_warnings(session, found, marker, where) if on_replica else (),
        split=KnownSplit(exported.upper_bound) if exported.exact else None,
    )


def one_server(*, on_replica: bool) -> str:
    """Return the remedy for sessions that reach another server than the one of their view."""
    return (
        f"Point `{'replica' if on_replica else 'primary'}` at one server: a load balancer over"
        " several, or a failover during the copy, sends sessions to another server. Then copy the"
        " table again."
    )


def _standby_warnings(
    session: Session, found: ServerIdentity, marker: Marker, where: str
) -> tuple[str, ...]:
    """Return the warnings for a copy that reads from a PostgreSQL standby.

    Raises:
        ReplicaError: The server is not a standby of the primary.
    """
    warnings = check_standby(found, marker, where)
    others, _ = importers.importing(session)
    return warnings if others is None else (*warnings, f"{others}. {importers.REMEDY}")


def closed_view(source: str, view: View) -> SnapshotLostError:
    """Return the error for a PostgreSQL view that is no longer open."""
    return SnapshotLostError(
        f"view {view.snapshot_id} of source {source} is closed",
        remedy="Open a new view.",
        source=source,
    )


def assert_alive(connections: Connections, exporter: Exporter) -> None:
    """Check that the exporting PostgreSQL session is alive, and is still on the same server.

    Raises:
        SnapshotLostError: The session is gone, or the server is not the same one.
    """
    view = exporter.view
    try:
        with exporter.lock:
            found = identity(exporter.session)
            visible = marker_visible(exporter.session, view.marker)
    except (psycopg.Error, SourceError) as error:
        raise lost_view(connections, view, str(error)) from error
    _require_same(connections, view, found, visible=visible)


def assert_same_server(connections: Connections, view: View) -> None:
    """Check that the PostgreSQL server is still the one on which a view was opened.

    The view has no shared snapshot, so no session stays open that could be checked.

    Raises:
        SnapshotLostError: The server is not the same one, or cannot be reached.
    """
    try:
        found, visible = _marker_look(
            connections, view.marker, on_replica=view.on_replica, new_login=True
        )
    except SourceError as error:
        raise lost_view(connections, view, str(error)) from error
    _require_same(connections, view, found, visible=visible)


def _require_same(
    connections: Connections, view: View, found: ServerIdentity, *, visible: bool
) -> None:
    """Check that a view's PostgreSQL server is still the same, and shows the marker row."""
    where = connections.where(on_replica=view.on_replica)
    moved_on = is_ahead(found, view.identity) and is_ahead(found, view.marker)
    same_server = (found.system_identifier, found.in_recovery) == (
        view.identity.system_identifier,
        view.identity.in_recovery,
    )
    if moved_on or not same_server or not visible:
        raise SnapshotLostError(
            f"the {where} changed while the view was open: it was {view.identity}, and is now"
            f" {found}",
            remedy="Point `replica` at one standby of the primary, then copy the table again."
            if view.on_replica
            else "Point `primary` at the server that takes writes, then copy the table again.",
        )


def lost_view(connections: Connections, view: View, reason: str) -> SnapshotLostError:
    """Return the error for a lost PostgreSQL view, with the replica's lag and relevant settings."""
    where = connections.where(on_replica=view.on_replica)
    facts = conflict_facts(connections) if view.on_replica else []
    remedy = (
        CONFLICT_REMEDY
        if is_recovery_conflict(reason)
        else "Run the command again; it keeps what is already committed where that stays exact."
    )
    return SnapshotLostError(
        f"the view on the {where} is gone: {' '.join(reason.split())}"
        + (f" ({', '.join(facts)})" if facts else ""),
        remedy=remedy,
        snapshot=view.snapshot_id,
    )


def conflict_facts(connections: Connections) -> list[str]:
    """Return the PostgreSQL replica's lag, and its settings that limit how long a view is open."""
    try:
        with connections.open("snapshot", on_replica=True) as session:
            rows = session.execute(
                "SELECT name, current_setting(name) FROM pg_catalog.pg_settings "
                "WHERE name = ANY(%s) ORDER BY name",
                (list(_SETTINGS),),
            ).fetchall()
        return [f"{name} = {value}" for name, value in rows] + [
            describe_lag(replica_position(connections))
        ]
    except SourceError as error:
        return [f"its settings could not be read: {error}"]
