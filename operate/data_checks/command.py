"""Executes the checks of tables: the due checks, the named checks, or all checks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from cdc.errors import ConfigError, LeaseHeldError, StateError
from cdc.store.actor import Actor
from cdc.store.checks import CheckResult, Checks
from cdc.store.commit_counts import commit_counts
from cdc.store.table_state import State
from cdc.store.verifications import Verifications
from operate.check_status import CheckStatus, readable, statuses
from operate.data_checks.findings import Finding, freshness, volume
from operate.data_checks.pausing import current, lease_of_checks, pause_failed
from operate.lifecycle import require
from operate.status import status
from operate.table_outcome import Outcome, as_unexpected_error, for_each
from schemas.errors import TributaryError

if TYPE_CHECKING:
    from cdc.config.checks import CheckSettings
    from cdc.run import RunContext
    from cdc.store.table_state import TableRecord
    from operate.context import Services
    from operate.status import TableStatus
    from schemas.table import TableId

_log = logging.getLogger(__name__)
_WITHOUT_SPARK = frozenset({"freshness"})


@dataclass(frozen=True)
class Wanted:
    """Which checks of the chosen tables a command executes.

    Args:
        everything: Whether all enabled checks are executed, and not only those that are due.
        names: Names of the checks to execute, due or not; empty if no names are given.
    """

    everything: bool = False
    names: frozenset[str] = frozenset()

    def chosen(self, known: Iterable[CheckStatus]) -> dict[str, CheckSettings]:
        """Return the checks of a table that the command executes, as a mapping from the name."""
        if self.names:
            return {one.name: one.settings for one in known if one.name in self.names}
        return {one.name: one.settings for one in known if self.everything or one.due}


@dataclass(frozen=True)
class Executed:
    """What the checks of a command have found.

    Args:
        results: The results, in the order of the tables.
        outcomes: The outcomes of tables whose checks could not be executed, and of tables that a
            failed check has paused.
    """

    results: list[CheckResult] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether a check did not work, or a check failed with a policy other than ``report``."""
        return any(outcome.failed for outcome in self.outcomes) or any(
            one.outcome == "error" or (one.outcome == "failed" and one.policy != "report")
            for one in self.results
        )


def known_checks(
    services: Services, tables: Sequence[TableId]
) -> dict[TableId, tuple[CheckStatus, ...]]:
    """Return, for each given table on the plan, the enabled data checks with the newest results.

    Raises:
        ConfigError: A table's settings cannot work.
        StateError: The state store cannot be used.
    """
    wanted, store = set(tables), services.store
    results, commits, now = Checks(store).all(), commit_counts(store), store.now()
    verified = Verifications(store).all()
    return {
        record.table: statuses(
            services.config.table_settings(record.table).checks,
            record,
            results.get(record.table, {}),
            now=now,
            commits=commits.get(record.table, 0),
            verified=verified.get(record.table),
        )
        for record in store.tables()
        if record.table in wanted and record.state is not State.RETIRED
    }


class Ages:
    """The freshness of a command's tables, for which the servers are asked only once.

    Safe to share between threads.

    Args:
        services: The services of the command.
        tables: The tables that have a check of their freshness.
    """

    def __init__(self, services: Services, tables: Sequence[TableId]) -> None:
        self._services, self._tables = services, tables
        self._lock = threading.Lock()
        self._found: Mapping[TableId, TableStatus] | None = None

    def of(self, table: TableId) -> TableStatus:
        """Return what `status` shows of a table; the first call asks the servers.

        Raises:
            TributaryError: `status` cannot be executed.
        """
        with self._lock:
            if self._found is None:
                shown = status(self._services, self._tables, brief=True).tables
                self._found = {one.record.table: one for one in shown}
            return self._found[table]


def run_checks(services: Services, tables: Sequence[TableId], wanted: Wanted) -> Executed:
    """Execute data checks of tables, ``spark.parallel_tables`` tables at a time; store the results.

    If an earlier failed check should have paused a table and has not, the table is paused now, even
    if no check is due. Spark is started only if a check needs it. If another process is executing
    the checks of a table, this command leaves the table to that process.

    Raises:
        ConfigError: A table's settings cannot work, or no table has a check of a given name.
        StateError: The state store cannot be used.
    """
    known = known_checks(services, tables)
    if missing := wanted.names - {one.name for found in known.values() for one in found}:
        raise ConfigError(
            f"none of the tables has a check named {', '.join(sorted(missing))}",
            remedy="`tributary checks list` lists the checks of all tables.",
            field="checks",
        )
    plans = {table: wanted.chosen(found) for table, found in known.items()}
    unpaused = {table for table, found in known.items() if any(one.pausing for one in found)}
    plans = {table: one for table, one in plans.items() if one or table in unpaused}
    kinds = {check.kind for checks in plans.values() for check in checks.values()}
    context = services.run_context if kinds - _WITHOUT_SPARK else None
    aged = [table for table, checks in plans.items() if _has_check_of_kind(checks, "freshness")]
    ages = Ages(services, aged)
    found: dict[TableId, list[CheckResult]] = {}

    def one(table: TableId) -> Outcome:
        executor = _TableChecks(services, context, table, ages)
        found[table] = executor.results
        with ExitStack() as held:
            try:
                held.enter_context(services.leases.hold(lease_of_checks(table)))
            except LeaseHeldError:
                return Outcome(table, "is being checked by another process", unchanged=True)
            return executor.execute(plans[table], wanted)

    parallel = min(services.config.spark.parallel_tables, max(1, len(plans)))
    outcomes = for_each(list(plans), one, action="check", parallel=parallel)
    return Executed(
        [result for table in plans for result in found.get(table, ())],
        [outcome for outcome in outcomes if outcome.failed or not outcome.unchanged],
    )


class _TableChecks:
    """Executes checks of one table; see :func:`run_checks`.

    Args:
        services: The services of the command.
        context: The context of runs; None if no check needs Spark.
        table: The table.
        ages: The freshness of tables.
    """

    def __init__(
        self,
        services: Services,
        context: RunContext | None,
        table: TableId,
        ages: Ages,
    ) -> None:
        self._services, self._context, self._table = services, context, table
        self._ages = ages
        self.results: list[CheckResult] = []
        """The results so far."""
        self._instants: dict[str, str] = {}

    def execute(self, planned: Mapping[str, CheckSettings], wanted: Wanted) -> Outcome:
        """Execute checks, store the results, and pause the table if a failed check requires it.

        The due checks are determined again: another process can have executed some of them since
        the command chose them.
        """
        store, table = self._services.store, self._table
        record = require(self._services, table)
        commits = commit_counts(store, table).get(table, 0)
        now = [one for one in current(self._services, record) if one.name in planned]
        checks = wanted.chosen(now)
        for group in _checks_by_pass(checks):
            began = store.now()
            findings = self._group(record, {name: checks[name] for name in group}, began)
            for name in group:
                self._keep(record, name, checks[name], findings[name], (began, commits))
        paused = pause_failed(self._services, table)
        return paused or Outcome(table, "checked", record.state, unchanged=True)

    def _group(
        self, record: TableRecord, checks: Mapping[str, CheckSettings], now: datetime
    ) -> dict[str, Finding]:
        """Return the findings of checks that are executed together, as a mapping from the name."""
        if not readable(record):
            reason = Finding("skipped", f"the table is {record.state.value}")
            return dict.fromkeys(checks, reason)
        try:
            return self._found(record, checks, now)
        except TributaryError as error:
            # A state is no fault: the table, or the one that it refers to, is not followed now.
            refused = isinstance(error, StateError) and "state" in error.context
            outcome: Literal["skipped", "error"] = "skipped" if refused else "error"
            return dict.fromkeys(checks, Finding(outcome, error.message))
        except Exception as error:  # noqa: BLE001 - unforeseen, and still only these checks'
            unexpected = as_unexpected_error(self._table, error)
            _log.warning("%s", unexpected, exc_info=True)
            # The error's own text can have values of rows.
            reason = Finding("error", f"unexpected {type(error).__name__}; the log has the whole")
            return dict.fromkeys(checks, reason)

    def _found(
        self, record: TableRecord, checks: Mapping[str, CheckSettings], now: datetime
    ) -> dict[str, Finding]:
        (name, check), *_ = checks.items()
        context = self._context
        if check.kind == "freshness":
            return {name: self._freshness(check)}
        if context is None or record.attempt is None:
            raise AssertionError("a check of rows has a session, and its table a copy")
        if check.kind in ("reference", "verify"):
            return {name: self._of_source(name, check, context, now)}
        from operate.data_checks.lake_rows import lake_rows
        from operate.data_checks.rows import check_rows

        lake = lake_rows(context, record, record.attempt)
        self._instants |= dict.fromkeys(checks, lake.instant)
        findings = check_rows(lake.rows, lake.schema, checks, now=now)
        for one, settings in checks.items():
            if settings.kind == "volume" and findings[one].outcome == "passed":
                past = Checks(self._services.store).last(
                    self._table, one, settings.history * _REPEATED
                )
                findings[one] = volume(settings, findings[one].counts, past)
        return findings

    def _of_source(
        self, name: str, check: CheckSettings, context: RunContext, now: datetime
    ) -> Finding:
        """Return the finding of a check that reads the lake and the source."""
        from operate.data_checks.references import check_reference
        from operate.data_checks.verified import check_verified

        services, table = self._services, self._table
        if check.kind == "reference":
            found, instant = check_reference(services, context, table, check)
        else:
            found, instant = check_verified(services, context, table, check, now)
        self._instants[name] = instant
        return found

    def _freshness(self, check: CheckSettings) -> Finding:
        shown = self._ages.of(self._table)
        return freshness(check, shown.freshness_s, shown.target_s)

    def _keep(
        self,
        record: TableRecord,
        name: str,
        check: CheckSettings,
        finding: Finding,
        began: tuple[datetime, int],
    ) -> None:
        """Store a check's result.

        ``began`` has the time and the table's number of commits when the check began.
        """
        store = self._services.store
        result = CheckResult(
            table=self._table,
            check=name,
            kind=check.kind,
            policy=check.policy,
            attempt="" if record.attempt_id is None else str(record.attempt_id),
            started_at=began[0],
            finished_at=store.now(),
            outcome=finding.outcome,
            counts=dict(finding.counts),
            detail=finding.detail,
            instant=self._instants.get(name, ""),
            commits=began[1],
            by=Actor.current(),
            reach=finding.reach,
        )
        Checks(store).keep(result)
        self.results.append(result)


_REPEATED = 4
"""Number of results that are read for each period in a volume check's history. If the periods
have more results on average, the history has fewer periods than the setting ``history``."""


def _has_check_of_kind(checks: Mapping[str, CheckSettings], kind: str) -> bool:
    """Whether one of a table's data checks is of the given kind."""
    return any(check.kind == kind for check in checks.values())


def _checks_by_pass(checks: Mapping[str, CheckSettings]) -> list[list[str]]:
    """Return the check names of each pass: checks of rows together, each other check alone."""
    alone = [[name] for name, one in checks.items() if one.kind in _ALONE]
    together = [name for name, one in checks.items() if one.kind not in _ALONE]
    return [together, *alone] if together else alone


_ALONE = frozenset({"freshness", "reference", "verify"})
"""The kinds of checks that are executed one by one."""
