"""Verifies the tables of a command, several at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from operate.table_outcome import Outcome, for_each
from operate.verify.result import Verification
from operate.verify.scope import EVERYTHING, Scope
from operate.verify.table import require_published, verify_table
from schemas.table import TableId

if TYPE_CHECKING:
    from operate.context import Services


def verify_tables(
    services: Services, tables: Sequence[TableId], scope: Scope = EVERYTHING
) -> tuple[list[Verification], list[Outcome]]:
    """Verify the tables, ``spark.parallel_tables`` at a time.

    Args:
        services: The services of the command.
        tables: The tables.
        scope: Which part of each table is compared.

    Returns:
        The results in the order given, and the outcomes of tables that could not be verified.
    """
    found: dict[TableId, Verification] = {}

    def published(table: TableId) -> Outcome:
        require_published(services, table)
        return Outcome(table, "published")

    # Spark takes seconds to start. A table that is refused does not need it.
    refused = [one for one in for_each(tables, published, action="verify") if one.failed]
    accepted = [table for table in tables if table not in {one.table for one in refused}]
    if not accepted:
        return [], refused
    context = services.run_context

    def one(table: TableId) -> Outcome:
        found[table] = verify_table(services, context, table, scope)
        return Outcome(table, "verified")

    parallel = min(services.config.spark.parallel_tables, len(accepted))
    outcomes = for_each(accepted, one, action="verify", parallel=parallel)
    return (
        [found[table] for table in accepted if table in found],
        refused + [outcome for outcome in outcomes if outcome.failed],
    )
