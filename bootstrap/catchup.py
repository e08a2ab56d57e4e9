"""Applies the topic's changes to a generation that is not published yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bootstrap.capture_proof import show_offsets
from bootstrap.errors import BootstrapError
from bootstrap.steps import reaches
from cdc.run import run_table
from cdc.store.table_state import State

if TYPE_CHECKING:
    from cdc.run import RunContext
    from cdc.store.table_state import TableRecord


def catch_up(
    context: RunContext, record: TableRecord, upto: Mapping[int, int] | None = None
) -> TableRecord:
    """Apply the changes of a copied table up to given offsets, or up to the topic's end.

    Args:
        context: The runs' context.
        record: The generation's record, in state CATCHING_UP.
        upto: Offsets to reach per partition; None for the topic's end.

    Returns:
        The generation's current record.

    Raises:
        BootstrapError: The run that applies the changes failed, or ended before it reached the
            offsets ``upto``.
    """
    table = record.table
    result = run_table(context, record, until=upto)
    if result.error is not None:
        serving = context.store.get(table)
        moves = serving is not None and serving.tier != record.tier
        again = f"Run `tributary resync {table}` again, which begins another attempt."
        if moves:
            again = f"Run `tributary move {table}` again, which begins another attempt."
        spoiled = record.beside and result.state is State.NEEDS_BOOTSTRAP
        raise BootstrapError(
            f"{_shown_generation(record)} could not catch up: {result.error.message}",
            remedy=again if spoiled else result.error.remedy,
            table=table,
        )
    if result.skipped or not reaches(result.offsets, upto or {}):
        raise BootstrapError(
            f"the run of {_shown_generation(record)} ended at offsets"
            f" {show_offsets(result.offsets)}, before {show_offsets(upto or {})}."
            f" {' '.join(result.warnings)}",
            remedy="Run the command again; it goes on from there.",
            table=table,
        )
    return context.store.newest(record)


def _shown_generation(record: TableRecord) -> str:
    """Return the name of the generation that catches up, for errors."""
    return str(record.resource) if record.beside else f"table {record.table}"
