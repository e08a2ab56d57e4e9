"""Decides, with pure functions, which checks of a table's data are due, and which have failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cronsim import CronSim

from cdc.config.checks import zone_of
from cdc.errors import ConfigError
from cdc.store.table_state import RESUMABLE, State

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.config.checks import CheckSettings
    from cdc.store.checks import CheckRecord, CheckResult
    from cdc.store.table_state import TableRecord
    from cdc.store.verifications import VerifyRecord


@dataclass(frozen=True)
class Moment:
    """The facts that decide which checks of a table are due.

    Args:
        now: The time by the state store's clock.
        since: When the table's copy began. A check that has no result becomes due at the first time
            after ``since`` that its cron expression names.
        commits: Number of commits of the table's runs so far.
    """

    now: datetime
    since: datetime
    commits: int = 0


@dataclass(frozen=True)
class CheckStatus:
    """A configured check of a table, and its newest results.

    Args:
        name: The check's name.
        settings: The check's settings.
        record: The newest results that still count (see `statuses`); None if there are none.
        due: Whether the check is due by its schedule.
        failure: The newest failure that still counts; None if no failure counts.
    """

    name: str
    settings: CheckSettings
    record: CheckRecord | None
    due: bool
    failure: CheckResult | None = None

    @property
    def failed(self) -> bool:
        """Whether the check has a failure that still counts."""
        return self.failure is not None

    @property
    def pausing(self) -> bool:
        """Whether a failure of the check must still pause the table."""
        asks = self.failed and self.settings.policy == "pause"
        return asks and self.record is not None and self.record.pausing

    @property
    def alarms(self) -> bool:
        """Whether the check has failed, and its policy is not ``report``."""
        return self.failed and self.settings.alarms

    def to_json(self) -> dict[str, Any]:
        """Return the check and its newest results as plain values."""
        record = self.record
        concluded = None if record is None else record.conclusive
        return {
            "check": self.name,
            "kind": self.settings.kind,
            "policy": self.settings.policy,
            "scheduled": self.settings.scheduled,
            "due": self.due,
            "failed": self.failed,
            "newest": None if record is None else record.newest.to_json(),
            "conclusive": None if concluded is None else concluded.to_json(),
            "failure": None if self.failure is None else self.failure.to_json(),
            "passed_at": None if record is None else record.passed_at,
        }


def readable(record: TableRecord) -> bool:
    """Whether a table's checks can run, that is, whether readers see the record's copy."""
    state = record.resume_to if record.state in RESUMABLE else record.state
    return state is State.INCREMENTAL and record.attempt is not None


def is_due(check: CheckSettings, done: CheckResult | None, moment: Moment) -> bool:
    """Return whether a check of a table's data is due.

    Args:
        check: The check's settings.
        done: The newest result that says something about the data; None if there is none. If
            an execution ends without passing or failing, this result does not change, so the check
            stays due.
        moment: The time, and the number of commits in the table.
    """
    if not check.scheduled:
        return False
    if check.cron is not None:
        start = moment.since if done is None else done.started_at
        if _next_check_time(check.cron, check.zone, start) <= moment.now:
            return True
    return check.every_commits is not None and (
        moment.commits - (0 if done is None else done.commits) >= check.every_commits
    )


@lru_cache(maxsize=65_536)
def _next_check_time(cron: str, zone: str, after: datetime) -> datetime:
    """Return the first time after ``after`` at which a check's cron expression matches."""
    return next(CronSim(cron, after.astimezone(zone_of(zone))))


def statuses(
    checks: Mapping[str, CheckSettings],
    record: TableRecord,
    known: Mapping[str, CheckRecord],
    *,
    now: datetime,
    commits: int,
    verified: VerifyRecord | None,
) -> tuple[CheckStatus, ...]:
    """Return the statuses of a table's enabled checks, sorted by the check's name.

    A result does not count if the check had another kind when it was executed. A result of a check
    of kind ``verify`` counts only until the table is copied again.

    Args:
        checks: The table's checks, by name.
        record: The table's record.
        known: The newest results of the table's checks, by name.
        now: The time by the state store's clock.
        commits: Number of commits of the table's runs.
        verified: The newest result of a `verify` of all rows; None if there is none.
    """
    found = []
    for name, check in sorted(checks.items()):
        if not check.enabled:
            continue
        results = known.get(name)
        if results is not None and not _still_counts(check, record, results):
            results = None
        due = False
        if record.attempt is not None and readable(record):
            moment = Moment(now, record.attempt.started_at, commits)
            due = is_due(check, None if results is None else results.conclusive, moment)
        failure = None if results is None else results.failure
        if failure is not None and _is_failure_over(failure, record, verified):
            failure = None
        found.append(CheckStatus(name, check, results, due, failure))
    return tuple(found)


def _is_failure_over(
    failure: CheckResult, record: TableRecord, verified: VerifyRecord | None
) -> bool:
    """Whether the failure of a check of kind ``verify`` is over, although no newer result exists.

    The failure is over if, after it, the table was copied again, or `verify` found all rows equal.
    If the check had read the primary, `verify` must have read the primary, too.
    """
    if failure.kind != "verify":
        return False
    if failure.attempt != str(record.attempt_id):
        return True
    if verified is None or verified.attempt != failure.attempt:
        return False
    by_primary = failure.reach is not None and failure.reach.primary
    since = verified.primary_equal_since if by_primary else verified.equal_since
    return since is not None and since >= failure.finished_at


def _still_counts(check: CheckSettings, record: TableRecord, results: CheckRecord) -> bool:
    """Whether a check's newest result still counts, despite changed settings or a new copy."""
    newest = results.newest
    if newest.kind != check.kind:
        return False
    return check.kind != "verify" or newest.attempt in ("", str(record.attempt_id))


def alarming(
    config: Config,
    record: TableRecord,
    known: Mapping[str, CheckRecord],
    verified: VerifyRecord | None,
) -> bool:
    """Return whether a table has a failed check whose policy is not ``report``.

    Args:
        config: The configuration, which has the table's checks. If the table's settings cannot
            work, no check counts: the table's runs report the reason.
        record: The table's record.
        known: The newest results of the table's checks, by name.
        verified: The newest result of a `verify` of all rows; None if there is none.
    """
    if not known:
        return False
    try:
        checks = config.table_settings(record.table).checks
    except ConfigError:
        return False
    now = record.updated_at  # whether a check is due does not matter here
    found = statuses(checks, record, known, now=now, commits=0, verified=verified)
    return any(one.alarms for one in found)
