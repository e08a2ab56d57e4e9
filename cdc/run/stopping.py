"""Decides the state of a table after an error has stopped its run."""

from __future__ import annotations

from datetime import datetime

from cdc.capture.remembered_losses import RememberedLossError
from cdc.errors import (
    LakeError,
    LostEventsError,
    LostHistoryError,
    LostLogError,
    MissingTableError,
    PausedByPolicyError,
    SchemaChangeError,
)
from cdc.run import plan
from cdc.store.table_state import Cause, State, TableRecord, transition
from schemas.errors import TributaryError

RUN_STATES = frozenset({State.CATCHING_UP, State.INCREMENTAL})
"""States in which a run applies changes."""


def stopped(record: TableRecord, error: TributaryError, *, at: datetime) -> TableRecord:
    """Return the record of a table after an error has stopped its run.

    Args:
        record: The table's record. If the table's state no longer allows a run, the record is
            returned unchanged.
        error: The error.
        at: Now, in UTC.
    """
    if record.state is State.FAILED and record.resume_to in RUN_STATES:
        record = transition(record, record.resume_to, at=at)
    if record.state not in RUN_STATES:
        return record
    cause = Cause(error.message, error)
    if isinstance(error, (LostHistoryError, SchemaChangeError, MissingTableError)):
        lost = isinstance(error, (LostLogError, RememberedLossError))
        cause = Cause(error.message, error, capture_lost=lost)
        return transition(record, State.NEEDS_BOOTSTRAP, at=at, cause=cause)
    if isinstance(error, PausedByPolicyError):
        return transition(record, State.PAUSED, at=at, cause=cause)
    cause = Cause(error=error, retry_at=plan.retry_at(record.failures + 1, at))
    return transition(record, State.FAILED, at=at, cause=cause)


def counts_as_loss(error: TributaryError, *, beside: bool) -> bool:
    """Whether an error that stops a run counts as a loss for all generations of the table.

    Args:
        error: The error of a run.
        beside: Whether the run is of a new generation that is built beside the serving generation.
            A new generation has its own offsets and its own lake table. The serving generation can
            still have a record that the new generation has lost.
    """
    if beside:
        return isinstance(error, (LostEventsError, LostLogError, MissingTableError))
    lost = isinstance(error, (LostHistoryError, MissingTableError))
    return lost and not isinstance(error, RememberedLossError)


def unexpected(record: TableRecord, error: Exception) -> TributaryError:
    """Return an unforeseen error of a table's run as a LakeError with a remedy."""
    first = next(iter(str(error).splitlines()), "")
    return LakeError(
        f"the run of table {record.table} failed: {type(error).__name__}: {first}",
        remedy="The log has the whole error. Nothing of the batch was committed; the next run"
        f" takes it again, or `tributary retry {record.table}` does so now.",
        table=record.table,
        topic=record.topic,
    )
