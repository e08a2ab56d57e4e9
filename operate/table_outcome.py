"""The outcome of a command for each table, and the exit code that follows from all outcomes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cdc.store.table_state import State, TableRecord
from operate.exit_codes import ExitCode, exit_code, requires_bootstrap
from schemas.errors import TributaryError
from schemas.redaction import redact
from schemas.table import TableId

if TYPE_CHECKING:
    from cdc.store.lease import HeldLease

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command for one table.

    Args:
        table: The table.
        action: What happened, as the rest of a sentence that begins with the table's name. If there
            is an error, the name of the action that failed.
        state: The table's state afterwards; None if it is unknown, or the table is not on the plan.
        error: The reason why the table failed or was left out; None if neither happened.
        details: Plain values for ``--output json``.
        left_out: Whether the table was left out, which is no failure. This is so if it cannot be
            replicated and only wildcards select it, or if it was offboarded.
        offboarded: Whether the table was left out since it was offboarded.
        counted_as: The words for this outcome in the summary of many tables, for example
            ``copied``. Not used if there is an error.
        unchanged: Whether there was nothing to do, so that a list of many tables leaves this table
            out.
    """

    table: TableId
    action: str
    state: State | None = None
    error: TributaryError | None = None
    details: dict[str, Any] = field(default_factory=dict)
    left_out: bool = False
    offboarded: bool = False
    counted_as: str = "done"
    unchanged: bool = False

    @property
    def failed(self) -> bool:
        """Whether the command failed for the table; a table that was left out has not failed."""
        return self.error is not None and not self.left_out

    @property
    def needs_bootstrap(self) -> bool:
        """Whether a command's table needs another bootstrap."""
        return requires_bootstrap(self.error) or self.state is State.NEEDS_BOOTSTRAP

    def to_json(self) -> dict[str, Any]:
        """A command's outcome as plain values."""
        return {
            "table": str(self.table),
            "action": self.action,
            "state": None if self.state is None else self.state.value,
            "error": None if self.error is None else self.error.to_dict(),
            **self.details,
        }


class UnexpectedError(TributaryError):
    """An unforeseen error of one table in a command."""


def as_unexpected_error(table: TableId, error: Exception) -> UnexpectedError:
    """Convert a command's unforeseen exception to an error that has a remedy."""
    lines = redact(str(error)).strip().splitlines()
    return UnexpectedError(
        f"table {table}: unexpected {type(error).__name__}: {lines[0] if lines else 'no message'}",
        remedy="Run the command again with -v, and report its output.",
        table=table,
    )


THESE = "<table>"
"""The placeholder for a table's name in a message about several tables."""


@dataclass(frozen=True)
class OutcomeProblem:
    """One problem that one or more tables of a command have.

    Args:
        tables: The tables.
        message: What happened. If there are several tables, the placeholder `THESE` stands for each
            table's name.
        remedy: What to do. The remedy has the same placeholder.
    """

    tables: tuple[TableId, ...]
    message: str
    remedy: str


def problems(outcomes: Iterable[Outcome]) -> list[OutcomeProblem]:
    """Return a command's problems. Errors that differ only in the table's name are one problem."""
    alike: dict[tuple[str, str], list[tuple[TableId, TributaryError]]] = {}
    for outcome in outcomes:
        if outcome.error is not None:
            table, error = outcome.table, outcome.error
            same = (_without_own_name(table, error.message), _without_own_name(table, error.remedy))
            alike.setdefault(same, []).append((table, error))
    return [
        OutcomeProblem((found[0][0],), found[0][1].message, found[0][1].remedy)
        if len(found) == 1
        else OutcomeProblem(tuple(table for table, _ in found), *same)
        for same, found in alike.items()
    ]


def _without_own_name(table: TableId, text: str) -> str:
    """Return an outcome's message or remedy with `THESE` in place of the table's name."""
    return text.replace(str(table), THESE).replace(table.relation, THESE)


def exit_code_of(
    outcomes: Iterable[Outcome], *, strict: bool = False, incomplete: bool = False
) -> ExitCode:
    """Return the exit code of a command over several tables.

    Args:
        outcomes: One per table.
        strict: Whether a table that was left out counts as a failure. If all tables were left out,
            the command fails in any case, unless all of them were offboarded: an operator wants
            that, so there is nothing to do.
        incomplete: Whether the command could not find all tables that its arguments select.
    """
    seen = list(outcomes)
    left_out = [outcome for outcome in seen if outcome.left_out]
    nothing_done = len(left_out) == len(seen) and not all(one.offboarded for one in left_out)
    counted = nothing_done or (strict and bool(left_out))
    return exit_code(
        failed=any(outcome.failed for outcome in seen) or counted or incomplete,
        needs_bootstrap=any(outcome.needs_bootstrap for outcome in seen),
    )


def for_each(
    tables: Sequence[TableId],
    work: Callable[[TableId], Outcome],
    *,
    action: str,
    parallel: int = 1,
    interrupt: Callable[[], object] = lambda: None,
) -> list[Outcome]:
    """Call ``work`` for each of a command's tables, and return the outcomes in order.

    An error of one table becomes this table's outcome. The work for the other tables continues.

    Args:
        tables: The tables.
        work: The work for one table.
        action: The name of the work, for the outcome of a failure.
        parallel: Number of tables at the same time.
        interrupt: Ends the waits of ``work``. Called if a signal ends the command, since a copy can
            wait for hours.
    """

    def one(table: TableId) -> Outcome:
        try:
            return work(table)
        except TributaryError as error:
            return Outcome(table, action, error=error)
        except Exception as error:  # noqa: BLE001 - unforeseen, and still only this table's
            _log.info("table %s: %s failed", table, action, exc_info=True)
            return Outcome(table, action, error=as_unexpected_error(table, error))

    if parallel <= 1 or len(tables) <= 1:
        return [one(table) for table in tables]
    with ThreadPoolExecutor(parallel, thread_name_prefix="table") as pool:
        try:
            return list(pool.map(one, tables))
        except BaseException:
            interrupt()
            raise


def unfinished(record: TableRecord) -> str | None:
    """Return what an operator must do to complete a table's copy; None if no copy is pending."""
    if record.state not in (State.REGISTERED, State.BOOTSTRAPPING, State.CATCHING_UP):
        return None
    return f"Run `tributary bootstrap {record.table}`, unless another process copies it now."


def abandoned(record: TableRecord, held: Mapping[str, HeldLease]) -> bool:
    """Return whether an operator must repeat a published table's copy, which no process works on.

    A command that was killed leaves such a table behind: readers see the former commits, runs do
    not follow the table, and nothing changes until the command is repeated.

    Args:
        record: The table's record.
        held: The leases that processes hold, by resource.
    """
    # A table that is onboarded again is REGISTERED, and its new folder has no readers yet.
    if record.state not in (State.BOOTSTRAPPING, State.CATCHING_UP) or record.never_published:
        return False
    lease = held.get(str(record.table))
    return lease is None or lease.abandoned
