"""``resync``: builds new generations (copies) of tables, which then replace the serving ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cdc.errors import StateError
from cdc.store.table_state import State
from operate.copy_order import copies
from operate.generations import clean
from operate.lifecycle import require
from operate.onboard import copied, recaptured
from operate.table_outcome import Outcome

if TYPE_CHECKING:
    from cdc.store.table_state import TableRecord
    from operate.context import Services
    from schemas.table import TableId


def resync(
    services: Services,
    tables: Sequence[TableId],
    *,
    still: Callable[[TableRecord], bool] = lambda _: True,
) -> list[Outcome]:
    """Build and publish new generations (copies) of tables, or continue interrupted resyncs.

    Args:
        services: The services of the command.
        tables: The tables.
        still: Returns, from a table's current record, whether the table still needs the resync.
            Another process could have done the resync meanwhile.
    """
    return recaptured(services, tables, partial(_resync_captured, still=still))


def _resync_captured(
    services: Services, tables: Sequence[TableId], *, still: Callable[[TableRecord], bool]
) -> list[Outcome]:
    """Resync a command's tables, several at a time. The tables' captures are already prepared."""
    if not tables:
        return []
    from bootstrap.resync import resync_table

    context = services.run_context

    def one(table: TableId) -> Outcome:
        record = require(services, table)
        if not still(record):
            return Outcome(table, "was copied by another process meanwhile", record.state)
        if record.state is State.REGISTERED:
            raise StateError(
                f"table {table} was never copied, so it cannot be copied again",
                remedy=f"Run `tributary bootstrap {table}`.",
                table=table,
                state=record.state.value,
            )
        done = resync_table(context, services.connect, record)
        clean(services, table)
        return copied(done, f"published generation {done.record.generation}")

    return copies(services, tables, one, action="resync")
