"""Stores the results of checks: the newest ones of each check, and their history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from cdc.errors import StateError
from cdc.store.actor import Actor
from cdc.store.documents import Codec, Part
from cdc.store.table_state import STORE_REMEDY
from cdc.store.tables import check_result_rows, check_rows, named, of_table
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.store.state_store import Store

Outcome = Literal["passed", "failed", "skipped", "error"]
"""How a check ended.

``skipped``: the table could not be checked now. ``error``: the check itself did not work. Neither
says anything about the data.
"""


@dataclass(frozen=True)
class Reach(Part):
    """Which rows of a table a check of kind ``verify`` has compared, without values of keys.

    Args:
        method: ``all``: all rows. ``pieces``: some pieces (ranges of the key), since the comparison
            goes on piece by piece. ``window``: the rows of a time range. ``sample``: random ranges
            of the key.
        column: The column with the time of a window; empty for other methods.
        begin: The start of the window, as text that sorts like its time.
        end: The end of the window.
        to_end: Whether a comparison in pieces has reached the end of the table. A comparison in
            pieces begins at the first piece that earlier comparisons did not find equal. So a
            comparison that reaches the end has compared every such piece again.
        primary: Whether the source's rows were read from the primary.
    """

    method: Literal["all", "pieces", "window", "sample"]
    column: str = ""
    begin: str = ""
    end: str = ""
    to_end: bool = False
    primary: bool = False

    def covers(self, other: Reach) -> bool:
        """Whether a passed result of this reach shows that a failure of reach ``other`` is over."""
        if other.primary and not self.primary:
            return False
        if self.method == "all":
            return True
        if self.method == other.method == "pieces":
            return self.to_end
        of_time = self.method == other.method == "window" and self.column == other.column
        return of_time and self.begin <= other.begin and other.end <= self.end

    def with_earlier(self, other: Reach) -> Reach:
        """Return a reach so wide that whatever covers it also covers this reach and ``other``."""
        primary = self.primary or other.primary
        if self.method == other.method == "window" and self.column == other.column:
            begin, end = min(self.begin, other.begin), max(self.end, other.end)
            return replace(self, begin=begin, end=end, primary=primary)
        if self.method == other.method:
            return replace(self, primary=primary)
        return Reach("all", primary=primary)


@dataclass(frozen=True)
class CheckResult(Part):
    """One result of a check, without values of rows.

    Args:
        table: The table.
        check: The check's name.
        kind: What was checked: a kind of `cdc.config.checks`.
        policy: What follows from a failure, as configured when the check was executed.
        attempt: Identity of the attempt (the copy) whose lake table was checked; empty if the table
            had no attempt.
        started_at: When the check began, by the state store's clock.
        finished_at: When the check ended, by the state store's clock.
        outcome: How the check ended.
        counts: Numbers by name. For example, the number of rows has the name ``rows``, and the
            number of a column's violations has the column's name.
        detail: The result in words, without values of rows.
        instant: Hudi's instant as of which the rows were read; empty if no rows were read.
        commits: Number of commits of the table's runs before the check began.
        by: The command that executed the check.
        reach: Which rows a check of kind ``verify`` has compared; None for other kinds, and if
            nothing was compared.
        format: Version of this document.
    """

    table: TableId
    check: str
    kind: str
    policy: str
    attempt: str
    started_at: datetime
    finished_at: datetime
    outcome: Outcome
    counts: Mapping[str, int]
    detail: str
    instant: str
    commits: int
    by: Actor
    reach: Reach | None = None
    format: Literal[1] = 1

    @property
    def conclusive(self) -> bool:
        """Whether the result says something about the data."""
        return self.outcome in ("passed", "failed")

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {
            "table": str(self.table),
            "check": self.check,
            "kind": self.kind,
            "policy": self.policy,
            "started_at": self.started_at.isoformat(),
            "finished_at": self.finished_at.isoformat(),
            "outcome": self.outcome,
            "counts": dict(self.counts),
            "detail": self.detail,
            "instant": self.instant or None,
            "by": self.by.to_json(),
        }


@dataclass(frozen=True)
class CheckRecord(Part):
    """The newest results of one check of a table.

    Args:
        newest: The newest result.
        conclusive: The newest result that says something about the data; None if there is none.
        passed_at: When the check last passed; None if it never did.
        failure: The newest failure that no later passed result covers; None if there is none. Its
            ``reach`` includes the rows of all such failures.
        pausing: Whether a pause of the table because of the failure is due and has not happened.
        format: Version of this document.
    """

    newest: CheckResult
    conclusive: CheckResult | None = None
    passed_at: datetime | None = None
    failure: CheckResult | None = None
    pausing: bool = False
    format: Literal[1] = 1

    @property
    def failed(self) -> bool:
        """Whether the check has failed, and no later passed result covers the failure."""
        return self.failure is not None


CHECK_RESULTS = Codec(CheckResult, error=StateError, remedy=STORE_REMEDY)
"""The codec of the state store's results of checks."""
CHECK_RECORDS = Codec(CheckRecord, error=StateError, remedy=STORE_REMEDY)
"""The codec of the state store's newest results of checks."""


def after(earlier: CheckRecord | None, result: CheckResult) -> CheckRecord:
    """Return a data check's record for the state store with one more result taken into account."""
    known = CheckRecord(result) if earlier is None else replace(earlier, newest=result)
    if not result.conclusive:
        return known
    known = replace(known, conclusive=result)
    if result.outcome == "failed":
        pausing = known.pausing or result.policy == "pause"
        return replace(known, failure=_failure_with_earlier(known.failure, result), pausing=pausing)
    known = replace(known, passed_at=result.finished_at)
    if known.failure is not None and not _ends_failure(result, known.failure):
        return known
    return replace(known, failure=None, pausing=False)


def _ends_failure(passed: CheckResult, failure: CheckResult) -> bool:
    """Whether a passed result of a data check ends a recorded failure.

    The result must be about all rows of the failure. Two kinds of failures end even without this
    condition: a failure of another copy of the table, and a failure from a time when the check of
    this name was of another kind.
    """
    if not _same_check_and_copy(passed, failure) or failure.reach is None or passed.reach is None:
        return True
    return passed.reach.covers(failure.reach)


def _failure_with_earlier(earlier: CheckResult | None, failure: CheckResult) -> CheckResult:
    """Return a failed result of a data check in the form in which it is recorded.

    If an earlier failure of this check and this attempt is still recorded, the reach (which rows
    were compared) of the returned result includes the reach of the earlier failure, too.
    """
    if earlier is None or not _same_check_and_copy(earlier, failure):
        return failure
    if failure.reach is None or earlier.reach is None:
        return failure
    return replace(failure, reach=failure.reach.with_earlier(earlier.reach))


def _same_check_and_copy(one: CheckResult, other: CheckResult) -> bool:
    """Whether two recorded results are of the same kind of data check and the same attempt."""
    return (one.kind, one.attempt) == (other.kind, other.attempt)


class Checks:
    """The results of checks; all processes of a state store share these results.

    Args:
        store: The state store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self, only: TableId | None = None) -> dict[TableId, dict[str, CheckRecord]]:
        """Return, with one SQL statement, a mapping from table and check to the newest results.

        Args:
            only: The only table to return; None for all tables.

        Raises:
            StateError: The state store cannot be used, or a stored document is not a result.
        """
        query = sa.select(check_rows)
        query = query if only is None else query.where(of_table(check_rows, only))
        with self._store.transaction() as connection:
            rows = connection.execute(query).all()
        found: dict[TableId, dict[str, CheckRecord]] = {}
        for row in rows:
            table = TableId(row.source, row.schema_name, row.table_name)
            found.setdefault(table, {})[row.check_name] = _read_check_record(row, table)
        return found

    def of(self, table: TableId, check: str) -> CheckRecord | None:
        """Return the newest results of one check; None if the check was never executed.

        Raises:
            StateError: The state store cannot be used, or the stored document is not a result.
        """
        query = sa.select(check_rows).where(_rows_of_check(check_rows, table, check))
        with self._store.transaction() as connection:
            row = connection.execute(query).first()
        return None if row is None else _read_check_record(row, table)

    def last(self, table: TableId, check: str, count: int) -> list[CheckResult]:
        """Return a check's newest conclusive results from the history, newest first.

        Args:
            table: The table.
            check: The check's name.
            count: Maximum number of results.

        Raises:
            StateError: The state store cannot be used, or a stored document is not a result.
        """
        rows = check_result_rows
        query = sa.select(rows.c.result).where(_rows_of_check(rows, table, check))
        name = f"a result of check {check} of table {table}"
        found: list[CheckResult] = []
        with self._store.transaction() as connection:
            for row in connection.execute(query.order_by(rows.c.id.desc())):
                result = CHECK_RESULTS.read(row.result, name, table=table)
                found += [result] if result.conclusive else []
                if len(found) == count:
                    break
        return found

    def keep(self, result: CheckResult) -> CheckRecord:
        """Add a result to the history, and store it as the check's newest result.

        The caller holds the lease of the table's checks, so no other process adds a result
        meanwhile.

        Raises:
            StateError: The state store cannot be used.
        """
        table, check = result.table, result.check
        record = after(self.of(table, check), result)
        text = {"record": CHECK_RECORDS.write(record)}
        again = sa.update(check_rows).where(_rows_of_check(check_rows, table, check)).values(**text)
        row = {**named(table), "check_name": check}
        note = {"noted_at": self._store.clock, "result": CHECK_RESULTS.write(result)}
        for _ in range(2):
            try:
                with self._store.transaction() as connection:
                    if connection.execute(again).rowcount != 1:
                        connection.execute(sa.insert(check_rows).values(**row, **text))
                    connection.execute(sa.insert(check_result_rows).values(**row, **note))
            except IntegrityError:  # a process whose lease has expired has just stored the first
                continue
            break
        return record

    def paused(self, table: TableId, check: str) -> None:
        """Record that the pause that a check's failure required is no longer due.

        The caller holds the lease of the table's checks.

        Raises:
            StateError: The state store cannot be used, or the stored document is not a result.
        """
        record = self.of(table, check)
        if record is None or not record.pausing:
            return
        text = CHECK_RECORDS.write(replace(record, pausing=False))
        row = _rows_of_check(check_rows, table, check)
        with self._store.transaction() as connection:
            connection.execute(sa.update(check_rows).where(row).values(record=text))


def _rows_of_check(rows: sa.Table, table: TableId, check: str) -> sa.ColumnElement[bool]:
    """Return the SQL condition on the rows of one data check of a table."""
    return of_table(rows, table) & (rows.c.check_name == check)


def _read_check_record(row: Any, table: TableId) -> CheckRecord:
    """Read a data check's record from its SQL row in the state store."""
    name = f"the newest result of check {row.check_name} of table {table}"
    return CHECK_RECORDS.read(row.record, name, table=table)
