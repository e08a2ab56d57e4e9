"""Counts losses, so that a run stops a table for a loss that another process has noticed.

No run checks a table while the table is copied, PAUSED or FAILED. So every process that notices a
loss counts it in the state store. A run compares this count with the count that was recorded before
O, the offset from which on the table's stream is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from cdc.capture.judgement import Finding, Severity, follows, stopping
from cdc.capture.onboarded_names import capture_of
from cdc.errors import ConfigError, LostHistoryError

if TYPE_CHECKING:
    from cdc.config import Config
    from cdc.debezium import CaptureNames
    from cdc.store.loss_counts import Loss, Losses
    from cdc.store.table_state import TableRecord
    from schemas.table import TableId


class RememberedLossError(LostHistoryError):
    """A loss of a table or its capture was counted since O, where the table's stream begins."""


def remember(losses: Losses, scope: str, findings: Iterable[Finding]) -> None:
    """Count a loss in the state store if findings about a capture show a loss of changes.

    Args:
        losses: The counts in the state store.
        scope: The name under which the loss is counted: a capture's `CaptureNames.resource`, or a
            table's `table_scope`.
        findings: The findings.

    Raises:
        StateError: The state store cannot be used.
    """
    if problems := stopping([*findings]):
        losses.note(scope, "; ".join(problems))


def table_scope(names: CaptureNames, table: TableId) -> str:
    """Return the name under which the losses of one table in one capture are counted.

    A table that moves to another tier is in two captures. A loss in one capture does not stop the
    table's generation (its image in the lake) that follows the other capture.

    Args:
        names: The capture.
        table: The table.
    """
    return f"table {table} in {names.resource}"


def loss_scopes(names: CaptureNames, *tables: TableId) -> tuple[str, ...]:
    """Return the names under which losses are counted for a capture, and for tables in it.

    Args:
        names: The capture.
        tables: The tables.
    """
    return (names.resource, *(table_scope(names, table) for table in tables))


def scopes_if_configured(config: Config, record: TableRecord) -> tuple[str, ...]:
    """Return the names under which losses are counted for a table and its recorded capture.

    The result is empty if the table's source is not configured.
    """
    try:
        return loss_scopes(capture_of(config, record), record.table)
    except ConfigError:
        return ()


def times(seen: Mapping[str, Loss], names: CaptureNames, table: TableId) -> int:
    """Return how many losses are counted for a table, including the losses of its whole capture.

    Args:
        seen: A mapping from scopes (`loss_scopes`) to the losses counted under each.
        names: The table's capture.
        table: The table.
    """
    return sum(loss.times for loss in _losses_of_table(seen, names, table))


def check_losses(seen: Mapping[str, Loss], names: CaptureNames, record: TableRecord) -> None:
    """Check that no loss of a table or its capture was counted since the table's stream began.

    Args:
        seen: A mapping from scopes (`loss_scopes`) to the losses counted under each.
        names: The table's capture.
        record: The table. It has an attempt with O, the offset where the table's stream begins.

    Raises:
        RememberedLossError: A loss was counted. The error names the newest loss.
    """
    table, known = record.table, record.attempt.losses if record.attempt is not None else 0
    if times(seen, names, table) <= known:
        return
    newest = max(_losses_of_table(seen, names, table), key=lambda loss: loss.seen_at)
    raise RememberedLossError(
        f"table {table} has lost changes since its copy began, as was seen at"
        f" {newest.seen_at:%Y-%m-%d %H:%M:%S} UTC: {newest.what}",
        remedy=f"Copy the table again: `tributary bootstrap {table}`. Until then readers keep what"
        " was committed.",
        table=table,
    )


def of_remembered_losses(
    seen: Mapping[str, Loss], names: CaptureNames, record: TableRecord
) -> Iterator[Finding]:
    """Yield a finding if the next run will stop the table because of a counted loss.

    Args:
        seen: A mapping from scopes (`loss_scopes`) to the losses counted under each.
        names: The table's capture.
        record: The table.
    """
    if not seen or not follows(record):
        return
    try:
        check_losses(seen, names, record)
    except RememberedLossError as lost:
        yield Finding(Severity.LOST, f"table {record.table}", lost.message, lost.remedy)


def _losses_of_table(seen: Mapping[str, Loss], names: CaptureNames, table: TableId) -> list[Loss]:
    """Return the counted losses of a table in a capture, and those of the whole capture."""
    return [seen[scope] for scope in loss_scopes(names, table) if scope in seen]
