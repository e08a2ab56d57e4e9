"""Pauses tables whose checks failed with the policy ``pause``, at once or as soon as possible.

The stored result of such a check says whether the table must still be paused. If another process
holds the table's lease for too long, or if this process dies, the next `checks run`, or `run`
between two rounds, pauses the table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from cdc.errors import LeaseHeldError, PausedByPolicyError
from cdc.store.checks import Checks
from cdc.store.commit_counts import commit_counts
from cdc.store.table_state import Cause, State, transition
from cdc.store.verifications import Verifications
from operate.check_status import statuses
from operate.lifecycle import LEASE_WAIT_S, require
from operate.table_outcome import Outcome
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.store.checks import CheckResult
    from cdc.store.table_state import TableRecord
    from operate.check_status import CheckStatus
    from operate.context import Services
    from schemas.table import TableId

_log = logging.getLogger(__name__)
_RUN_WAITS_S = 2.0
"""How long a run waits for the lease of a table that it has to pause, in seconds."""


def lease_of_checks(table: TableId) -> str:
    """Return the name of the lease of the process that executes a table's data checks."""
    return f"the checks of table {table}"


def current(services: Services, record: TableRecord) -> tuple[CheckStatus, ...]:
    """Return the enabled data checks of a table with their newest results.

    Raises:
        ConfigError: The table's settings cannot work.
        StateError: The state store cannot be used.
    """
    store, table = services.store, record.table
    return statuses(
        services.config.table_settings(table).checks,
        record,
        Checks(store).all(table).get(table, {}),
        now=store.now(),
        commits=commit_counts(store, table).get(table, 0),
        verified=Verifications(store).of(table),
    )


def pause_failed(
    services: Services, table: TableId, *, wait_s: float | None = None
) -> Outcome | None:
    """Pause a table if a failed data check still requires this; return None if no check does.

    The caller holds the lease of the table's checks.

    Args:
        services: The services of the command.
        table: The table.
        wait_s: Bound of the wait for another process that holds the table's lease, in seconds;
            `LEASE_WAIT_S` if None.

    Raises:
        LeaseHeldError: Another process still holds the table's lease. The pause is still due.
        ConfigError: The table's settings cannot work.
        StateError: The state store cannot be used.
    """
    failures = [
        one.failure
        for one in current(services, require(services, table))
        if one.pausing and one.failure is not None
    ]
    if not failures:
        return None
    return _pause_after_failed_checks(
        services, failures, LEASE_WAIT_S if wait_s is None else wait_s
    )


def _pause_after_failed_checks(
    services: Services, failures: list[CheckResult], wait_s: float
) -> Outcome:
    """Pause a table after failed data checks.

    Only an INCREMENTAL table is paused, and only if it was not copied again since the checks began.
    If the table is PAUSED now, or was copied again since the checks began, the pause is no longer
    due. In every other case, the pause stays due.
    """
    first, *_ = failures
    table, checks = first.table, Checks(services.store)
    try:
        with services.leases.hold(table, wait_s=wait_s):
            record = require(services, table)
            same = str(record.attempt_id) == first.attempt
            if record.state is State.INCREMENTAL and same:
                outcome = _pause_under_lease(services, record, first)
            else:
                outcome = Outcome(table, "checked", record.state, unchanged=True)
    except LeaseHeldError as held:
        raise LeaseHeldError(
            f"check {first.check} of table {table} failed, and the table is not paused yet:"
            f" {held.message}",
            remedy="Nothing to do: the next `tributary checks run`, or a run, pauses the table."
            f" `tributary pause {table}` waits for it.",
            table=table,
        ) from held
    if outcome.state is State.PAUSED or not same:
        for one in failures:
            checks.paused(table, one.check)
    return outcome


def _pause_under_lease(services: Services, record: TableRecord, failure: CheckResult) -> Outcome:
    """Pause a table, whose lease the caller holds, because of a failed data check."""
    table = failure.table
    error = PausedByPolicyError(
        f"check {failure.check} of table {table} failed: {failure.detail}",
        remedy=f"Correct the rows or the check, then run `tributary resume {table}`;"
        f" `tributary checks list {table}` has the results.",
        table=table,
    )
    cause = Cause(error.message, error)
    moved = transition(record, State.PAUSED, at=services.store.now(), cause=cause)
    record = services.store.put(moved)
    return Outcome(table, f"paused by check {failure.check}", record.state)


def pause_due(services: Services, records: Iterable[TableRecord]) -> None:
    """Pause the tables that failed data checks must still pause; runs do this between their rounds.

    A table whose checks another process executes now is left to that process.

    Raises:
        LeaseHeldError: The lease of a table is held. The next call tries again.
        TributaryError: The state store cannot be used, or the settings of a table cannot work.
    """
    known = Checks(services.store).all()
    failed: TributaryError | None = None
    for record in records:
        if record.state is not State.INCREMENTAL:
            continue
        if not any(one.pausing for one in known.get(record.table, {}).values()):
            continue
        try:
            with ExitStack() as held:
                try:
                    held.enter_context(services.leases.hold(lease_of_checks(record.table)))
                except LeaseHeldError:
                    continue  # the process that executes the checks pauses the table itself
                outcome = pause_failed(services, record.table, wait_s=_RUN_WAITS_S)
        except TributaryError as error:
            failed = error
            continue
        if outcome is not None and outcome.state is State.PAUSED:
            _log.warning("table %s: %s", record.table, outcome.action)
    if failed is not None:
        raise failed
