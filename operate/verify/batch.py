"""The verification of several tables at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from operate.table_outcome import Outcome, for_each
from operate.verify.table import Verification, verify_table
from schemas.table import TableId

if TYPE_CHECKING:
    from operate.context import Services


def verify_tables(
    services: Services, tables: Sequence[TableId]
) -> tuple[list[Verification], list[Outcome]]:
    """Verify the tables, ``spark.parallel_tables`` at a time.

    Args:
        services: The services of the command.
        tables: The tables.

    Returns:
        The results, in the order given, and the tables that could not be verified.
    """
    context = services.run_context
    found: dict[TableId, Verification] = {}

    def one(table: TableId) -> Outcome:
        found[table] = verify_table(services, context, table)
        return Outcome(table, "verified")

    parallel = min(services.config.spark.parallel_tables, max(1, len(tables)))
    outcomes = for_each(tables, one, action="verify", parallel=parallel)
    return (
        [found[table] for table in tables if table in found],
        [outcome for outcome in outcomes if outcome.failed],
    )
