"""Handles a capture that has lost changes: finds its tables, and discards their copies.

Such a capture must be recreated. The changes between the end of the old slot and the start of the
new slot are in no topic. A table depends on the old capture if its copy or stream began under the
old capture and would continue under the new one. Such a table would silently lack these changes. So
a capture is recreated only when no table depends on it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.capture.captured_tables import users
from cdc.capture.skipped_definitions import skipped
from cdc.debezium import read_server
from cdc.errors import CaptureError, LeaseHeldError
from cdc.store.table_state import Cause, State, TableRecord, transition

if TYPE_CHECKING:
    from cdc.capture.evidence import CaptureEvidence
    from cdc.debezium import CaptureNames
    from cdc.sources.base import SourceLog
    from cdc.sources.log_health import LogHealth
    from operate.context import Services
    from operate.tier_capture import Group
    from schemas.table import TableId

_CUT_OFF = frozenset({State.REGISTERED, State.NEEDS_BOOTSTRAP, State.RETIRED})
"""States in which a table does not depend on the events that its capture has sent so far."""


_log = logging.getLogger(__name__)


def not_retired(services: Services, capture: CaptureNames) -> list[TableRecord]:
    """Return the records of a capture's tables whose state is not RETIRED.

    For a table that is moving to the capture, the result has the record of its next generation.
    """
    known = _records_of_capture(services.store.tables(), capture)
    there = {record.table for record in known}
    moving = [
        record
        for record in _records_of_capture(services.store.builds(), capture)
        if record.table not in there
    ]
    return [record for record in (*known, *moving) if record.state is not State.RETIRED]


def users_of(services: Services, capture: CaptureNames) -> frozenset[TableId]:
    """Return the tables that need a capture (see `users`)."""
    return users((*services.store.tables(), *services.store.builds()), capture)


def dependent(
    services: Services, capture: CaptureNames, only: TableId | None = None
) -> list[TableRecord]:
    """Return the records of tables and of next generations that depend on a capture.

    To depend on a capture means to need the events that the capture has sent so far. Every next
    generation needs them. A table needs them unless its state is REGISTERED, NEEDS_BOOTSTRAP or
    RETIRED.

    Args:
        services: The services of the command.
        capture: The capture.
        only: The only table to check; None to check all tables of the capture.
    """
    records = [*services.store.tables(), *services.store.builds()]
    return [
        record
        for record in _records_of_capture(records, capture, only)
        if _continues_from_past(record)
    ]


def after_gtid_change(
    services: Services, capture: CaptureNames, source: SourceLog, log: LogHealth
) -> str | None:
    """Check whether a capture is lost because its source has turned GTIDs on or off.

    The switch shows in the positions R that are recorded for the tables' copies (upper bounds of
    what the copies have read): an R from before the switch cannot be compared with the binlog's
    current position. The connector's stored position does not show the switch.

    Returns:
        Why the capture is lost; None if no table has an R, or if at least one R can be compared
        with the binlog's current position.
    """
    rests = [
        log.problem(recorded=source.position(record.attempt.reads_upto))
        for record in not_retired(services, capture)
        if record.attempt is not None and record.attempt.reads_upto
    ]
    return rests[0] if rests and all(rests) else None


def of_another_server(services: Services, capture: CaptureNames, source: SourceLog) -> str | None:
    """Check whether a capture is lost because its tables were copied from another server.

    Returns:
        Why the capture is lost; None if at least one table was copied from the current server, or
        if the identities of the servers are not known.
    """
    attempts = (record.attempt for record in not_retired(services, capture))
    servers = (one for attempt in attempts if attempt is not None for one in attempt.servers)
    known = {one.system_identifier for one in servers if one.system_identifier}
    now = source.identity().system_identifier
    if not known or now is None or now in known:
        return None
    return f"is of server {now}, but its tables were captured on {', '.join(sorted(known))}"


def skipping_definition(services: Services, evidence: CaptureEvidence) -> str | None:
    """Return why a MariaDB connector will skip a table's new definition at its next start.

    Returns:
        The reason as a sentence; None if no definition will be skipped, or no connector is known.
    """
    connector = evidence.connector_facts
    if connector is None or connector.listed is None:
        return None
    definitions = services.definitions()
    stored = evidence.stored_position
    return skipped(evidence.names, lambda: definitions, stored, connector.listed)


def left_on_former_server(
    services: Services, group: Group, running: Mapping[str, str], wanted: Mapping[str, str]
) -> str | None:
    """Return what a capture leaves on the server that its connector has read until now.

    The former server can still run, and then the slot there retains that server's log. This process
    no longer knows how to reach that server.

    Args:
        services: The services of the command.
        group: The capture, with some of its tables.
        running: The settings of the capture's connector.
        wanted: The connector's settings, as the configuration file gives them.

    Returns:
        A note with the statements to execute on the former server. None if the connector reads the
        server that the configuration names, or if the capture has no slot.
    """
    capture, there, here = group.capture, read_server(running), read_server(wanted)
    on_source = services.source(capture.source).capture(capture)
    if there in (None, here) or on_source.kept_log is None:
        return None
    statements = " ".join(on_source.removal(group.tables[0], last=True))
    return (
        f"connector {capture.connector} has read {there} until now, and source {capture.source} is"
        f" {here}. If {there} is another server that still runs, nothing reads"
        f" {on_source.kept_log.title} there any more, which retains the log until the disk is full."
        f" Run there: {statements}"
    )


@contextmanager
def cut_off(
    services: Services, capture: CaptureNames, lost: str, only: TableId | None = None
) -> Iterator[None]:
    """Ensure that no table depends on a lost capture while a ``with`` block recreates the capture.

    Unpublished copies are discarded. The leases of their tables are held during the block, so that
    no other process begins a copy under the old capture. If a published table depends on the
    capture, an error is raised: a run must first record the loss in the state of that table.

    Args:
        services: The services of the command.
        capture: The capture. The caller holds its lease.
        lost: The loss, as a sentence without its period.
        only: The only table that has lost changes; None for all tables.

    Raises:
        CaptureError: A published table depends on the capture, or another process copies a table.
    """
    _refuse_followed_tables(services, capture, lost, only)
    with ExitStack() as held:
        mine = set()
        for record in dependent(services, capture, only):
            # Do not wait: an offboarding process holds this lease while it waits for the capture's
            # lease.
            try:
                held.enter_context(services.leases.hold(record.resource))
            except LeaseHeldError as error:
                raise CaptureError(
                    f"{lost}, and {error.message}",
                    remedy="Wait for that process to end, since its copy is no longer usable. Then"
                    " run this command again.",
                    table=record.table,
                    connector=capture.connector,
                ) from error
            mine.add(record.resource)
        # Check the tables again under their leases. A table that begins its copy later is proven
        # under the new capture.
        _refuse_followed_tables(services, capture, lost, only)
        for record in dependent(services, capture, only):
            if record.resource in mine:
                _discard_copy(services, record, lost)
        yield


def _discard_copy(services: Services, record: TableRecord, lost: str) -> None:
    """Discard a copy that depends on a lost capture.

    The record of a next generation is deleted. The state in a table's own record becomes
    NEEDS_BOOTSTRAP instead.
    """
    if record.beside:
        services.store.delete(record.table, beside=True)
    else:
        cause = Cause(
            reason=f"{lost} while the table was copied",
            remedy=f"Run `tributary bootstrap {record.table}`.",
            capture_lost=True,
        )
        at = datetime.now(timezone.utc)
        services.store.put(transition(record, State.NEEDS_BOOTSTRAP, at=at, cause=cause))
    _log.warning("%s; the copy of %s is discarded", lost, record.table)


def _refuse_followed_tables(
    services: Services, capture: CaptureNames, lost: str, only: TableId | None
) -> None:
    """Raise an error if published tables depend on a lost capture."""
    records = _records_of_capture(services.store.tables(), capture, only)
    followed = [
        record for record in records if _continues_from_past(record) and not record.is_copying
    ]
    if not followed:
        return
    paused = [record for record in followed if record.state is State.PAUSED]
    first = f"Run `tributary resume {_listed_tables(paused, ' ')}`, then" if paused else "Run"
    failed = any(record.state is State.FAILED for record in followed)
    when = " (a failed one at its next try)" if failed else ""
    raise CaptureError(
        f"{lost}, so changes are lost, and no run has marked these tables yet:"
        f" {_listed_tables(followed, ', ')}",
        remedy=f"{first} `tributary run`, which marks them{when}, then `tributary bootstrap` for"
        " all of them.",
        connector=capture.connector,
    )


def _continues_from_past(record: TableRecord) -> bool:
    """Whether a table, or its next generation, needs events that the capture has already sent."""
    # A next generation can record offsets at any moment.
    return record.state not in _CUT_OFF or record.beside


def _records_of_capture(
    records: Iterable[TableRecord], capture: CaptureNames, only: TableId | None = None
) -> list[TableRecord]:
    """Return the records of the tables in a capture; with ``only``, at most this table's record."""
    return [
        record
        for record in records
        if record.table.source == capture.source
        and record.tier == capture.tier
        and only in (None, record.table)
    ]


def _listed_tables(records: Sequence[TableRecord], between: str) -> str:
    """Return the tables of records as text, for the error on a lost capture."""
    return between.join(str(record.table) for record in records)
