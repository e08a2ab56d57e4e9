"""What a command did with one table, and what that makes of the exit code."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from cdc.state import State
from operate.exit_codes import ExitCode, asks_for_bootstrap, exit_code
from schemas.errors import TributaryError
from schemas.redaction import redact
from schemas.table import TableId

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """One table's part of a command.

    Args:
        table: Which table.
        action: What was done, in the past tense; what was tried when there is an error.
        state: The table's state afterwards, None when it is not on the plan.
        error: Why it failed.
        details: Plain values for ``--output json``.
    """

    table: TableId
    action: str
    state: State | None = None
    error: TributaryError | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether the table failed."""
        return self.error is not None

    @property
    def needs_bootstrap(self) -> bool:
        """Whether only another bootstrap helps the table."""
        return asks_for_bootstrap(self.error) or self.state is State.NEEDS_BOOTSTRAP

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain values."""
        return {
            "table": str(self.table),
            "action": self.action,
            "state": None if self.state is None else self.state.value,
            "error": None if self.error is None else self.error.to_dict(),
            **self.details,
        }


class UnexpectedError(TributaryError):
    """An error of one table that nobody foresaw."""


def unexpected(table: TableId, error: Exception) -> UnexpectedError:
    """Give an unforeseen error the form that the others have; its text may hold no secret."""
    lines = redact(str(error)).strip().splitlines()
    return UnexpectedError(
        f"table {table}: unexpected {type(error).__name__}: {lines[0] if lines else 'no message'}",
        remedy="Run the command again with -v, and report what it prints.",
        table=table,
    )


def exit_code_of(outcomes: Iterable[Outcome]) -> ExitCode:
    """The exit code of a command over several tables."""
    seen = list(outcomes)
    return exit_code(
        failed=any(outcome.failed for outcome in seen),
        needs_bootstrap=any(outcome.needs_bootstrap for outcome in seen),
    )


def for_each(
    tables: Sequence[TableId],
    work: Callable[[TableId], Outcome],
    *,
    action: str,
    parallel: int = 1,
) -> list[Outcome]:
    """Do something with each table; a failure of one is its outcome and stops no other.

    Args:
        tables: The tables.
        work: What to do with one of them.
        action: What is tried, for the outcome of a failure.
        parallel: How many at the same time.
    """

    def one(table: TableId) -> Outcome:
        try:
            return work(table)
        except TributaryError as error:
            return Outcome(table, action, error=error)
        except Exception as error:  # noqa: BLE001 - unforeseen, and still only this table's
            _log.exception("table %s: %s failed", table, action)
            return Outcome(table, action, error=unexpected(table, error))

    if parallel <= 1 or len(tables) <= 1:
        return [one(table) for table in tables]
    with ThreadPoolExecutor(parallel, thread_name_prefix="table") as pool:
        return list(pool.map(one, tables))
