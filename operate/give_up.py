"""Finds captures that hold back too much log, and gives up those that would fill a primary's disk.

To give up a capture means to drop its slot. The capture then has lost changes, so all of its tables
have to be copied again. Each step can be repeated. First the loss is counted in the state store:
from then on no table continues from its stream, even if this process dies. Only then is the slot
dropped. If this process dies before it drops the slot, the slot stays over its limit, so the next
process repeats all steps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.capture.captured_tables import captures_of
from cdc.capture.log_limits import Level, OverLimit, over_limit
from cdc.errors import ConnectError, LeaseHeldError, OtherConnectorError
from cdc.runtime.failpoints import crash
from cdc.store.loss_counts import Losses
from cdc.store.table_state import TRANSITIONS, Cause, State, transition
from operate.lost_capture import dependent
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from cdc.store.table_state import TableRecord
    from operate.context import Services

_log = logging.getLogger(__name__)


def over_limits(services: Services, records: Iterable[TableRecord]) -> list[OverLimit]:
    """Return, for ``run``, the captures that hold back more log than their limits.

    Only captures of the given tables are examined. A source that does not answer is left out; other
    checks report this source.
    """
    captures = [one.names for one in captures_of(services.config, records)]
    found = []
    for capture in sorted(captures, key=lambda one: (one.source, one.tier)):
        try:
            found.append(_exceeded_limit(services, capture))
        except TributaryError as error:
            _log.info("the log of %s was not looked at: %s", capture.resource, error)
    return [one for one in found if one is not None]


def give_up(services: Services, over: OverLimit) -> OverLimit | None:
    """Stop a capture's connector, drop the slot, and mark the capture's tables NEEDS_BOOTSTRAP.

    Args:
        services: The services of the command.
        over: The capture that is over the limit ``give_up``.

    Returns:
        The limit that the capture exceeded, as seen under the capture's lease. None if the capture
        was not given up: it is below the limit again, another installation made its connector, or
        Connect cannot stop the connector.

    Raises:
        LeaseHeldError: Another process changes the capture.
        TributaryError: The slot cannot be dropped, or the state store cannot be used.
    """
    capture = over.capture
    with services.leases.hold(capture.resource):
        now = _exceeded_limit(services, capture)
        if now is None or now.level is not Level.GIVE_UP:
            return None
        if not _may_give_up(services, capture):
            return None
        what = f"{now.message}, so the capture was given up"
        _log.warning("%s", what)
        Losses(services.store).note(capture.resource, what)
        crash("give_up.after_note")
        _stop_connector(services, capture)
        crash("give_up.after_stop")
        if (kept := services.source(capture.source).capture(capture).kept_log) is not None:
            kept.drop()
        crash("give_up.after_drop")
    for record in dependent(services, capture):
        _mark_for_bootstrap(services, record, what)
    return now


def _exceeded_limit(services: Services, capture: CaptureNames) -> OverLimit | None:
    """Return the limit that a capture's log exceeds now; None if the log exceeds no limit."""
    limits = services.config.source(capture.source).log_limits
    if not limits:
        return None
    log = services.source(capture.source).capture(capture).log_health()
    return over_limit(capture, log, limits)


def _may_give_up(services: Services, capture: CaptureNames) -> bool:
    """Whether a capture can be given up, that is, whether its slot can be dropped.

    The slot cannot be dropped in two cases: another installation made the connector; or a process
    reads the slot, and Connect does not answer, so the connector cannot be stopped. In both cases,
    the loss would be counted although the slot stays.
    """
    try:
        services.connect.require_own(capture.connector)
    except OtherConnectorError as error:
        _log.warning("the capture of %s is not given up: %s", capture.resource, error)
        return False
    except ConnectError as error:
        kept = services.source(capture.source).capture(capture).kept_log
        if kept is not None and (reader := kept.reader()) is not None:
            _log.warning(
                "the capture of %s is not given up yet: process %s still reads the slot, and its"
                " connector cannot be stopped: %s",
                *(capture.resource, reader, error),
            )
            return False
    return True


def _stop_connector(services: Services, capture: CaptureNames) -> None:
    """Stop the connector of a capture that is given up, so that nothing reads the slot.

    An error of Connect is only logged: if the connector still reads the slot, the drop fails.
    """
    try:
        if services.connect.status(capture.connector) is not None:
            services.connect.stop(capture.connector, progress=services.progress)
    except ConnectError as error:
        _log.warning("connector %s could not be stopped: %s", capture.connector, error)


def _mark_for_bootstrap(services: Services, record: TableRecord, what: str) -> None:
    """Put a table of a given-up capture in state NEEDS_BOOTSTRAP.

    If ``record`` is the record of a next generation, the record is deleted instead. If another
    process works on the table, that process or the next run finds the counted loss.
    """
    try:
        with services.leases.hold(record.resource):
            newest = services.store.newest(record)
            if newest.beside:
                services.store.delete(newest.table, beside=True)
            elif State.NEEDS_BOOTSTRAP in TRANSITIONS[newest.state]:
                remedy = (
                    "Correct what kept the connector from reading, then run `tributary bootstrap"
                    f" {newest.table}`, which makes the slot and the connector again."
                )
                cause = Cause(reason=what, remedy=remedy, capture_lost=True)
                at = datetime.now(timezone.utc)
                services.store.put(transition(newest, State.NEEDS_BOOTSTRAP, at=at, cause=cause))
    except LeaseHeldError as error:
        _log.info("table %s is marked later: %s", record.table, error)
