"""Brings a lake table up to date by runs, for a comparison that needs the newest changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bootstrap.steps import reaches
from cdc.errors import LakeError, LostHistoryError, StateError
from cdc.run import run_table
from cdc.runtime.waiting import wait_while
from cdc.store.table_state import State
from operate.lifecycle import require
from schemas.errors import TributaryError
from schemas.table import TableId

if TYPE_CHECKING:
    from bootstrap.capture_proof import Capture
    from cdc.run import RunContext, RunResult
    from cdc.store.attempt import Attempt
    from cdc.store.table_state import TableRecord
    from operate.context import Services

WAIT_S = 600.0
"""Bound of each wait for the replica, the capture or the lake, in seconds."""
_POLL_S = 0.5


@dataclass(frozen=True)
class Following:
    """A published table that this process can bring up to date by runs.

    Args:
        services: The services of the command.
        context: The context of the runs.
        capture: The capture of the table's changes.
        attempt: The attempt (one copy of the table) whose lake table the command reads.
    """

    services: Services
    context: RunContext
    capture: Capture
    attempt: Attempt

    @property
    def table(self) -> TableId:
        """The table."""
        return self.capture.table

    @property
    def topic(self) -> str:
        """The topic of the table's changes."""
        return self.capture.topic

    def advance(self, upto: Mapping[int, int] | None = None) -> None:
        """Apply changes to the lake table until it has all events before the given offsets.

        Without offsets, all events that the topic now has are applied. If another process holds the
        table's lease, the method waits until a run of that process has applied the events.
        """
        target = upto or self.services.kafka.high_watermarks(self.topic)
        self.capture.wait_until_readable(target, timeout_s=WAIT_S)

        def behind() -> bool:
            if self._reached(target):
                return False
            record = require(self.services, self.table)
            require_attempt(record, self.attempt)
            result = run_table(self.context, record, until=target)
            if result.error is not None:
                raise _failed_run_error(self.table, result)
            # If another run holds the table, that run gets there.
            return not self._reached(target)

        if wait_while(behind, timeout_s=WAIT_S, poll_s=_POLL_S):
            raise LakeError(
                f"the lake table of {self.table} did not reach offsets {target} of topic"
                f" {self.topic} within {WAIT_S:.0f} s",
                remedy=f"See `tributary status {self.table}` for what holds it back.",
                table=self.table,
                topic=self.topic,
            )

    def _reached(self, target: Mapping[int, int]) -> bool:
        """Whether the lake's newest commit has all events before the offsets in ``target``."""
        latest = self.context.timeline(self.attempt).latest_offsets()
        return latest is not None and reaches(latest.record.offsets, target)


def require_attempt(record: TableRecord, attempt: Attempt) -> None:
    """Check that a table still has the attempt (the copy) that ``verify`` compares.

    No run brings the rows of a former copy up to date.

    Raises:
        StateError: The table was copied again meanwhile, or is being copied.
    """
    if record.attempt is None or record.attempt.id != attempt.id:
        raise StateError(
            f"another copy has replaced the one of table {record.table} that was being verified"
            " (`resync` or `bootstrap`)",
            remedy="Run verify again once the table is incremental: it compares the new copy.",
            table=record.table,
            state=record.state.value,
        )


def _failed_run_error(table: TableId, result: RunResult) -> TributaryError:
    """Return the error of ``verify`` after a failed run of the table."""
    error = result.error
    kind = LostHistoryError if result.state is State.NEEDS_BOOTSTRAP else LakeError
    return kind(
        f"table {table} could not be brought up to date: {error.message if error else 'no reason'}",
        remedy=error.remedy if error else f"See `tributary status {table}`.",
        table=table,
    )
