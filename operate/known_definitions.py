"""Checks that a MySQL or MariaDB connector knows the definitions of the tables that join it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cdc.capture.known_definition import newest
from cdc.debezium import DefinitionChange, known_tables
from cdc.errors import CaptureError
from cdc.runtime.waiting import wait_while
from cdc.store.table_state import State

if TYPE_CHECKING:
    from cdc.debezium import CaptureNames
    from cdc.sources.base import Source
    from operate.context import Services
    from schemas.table import TableId

_KNOWN_POLL_S = 0.5


def require_known_definitions(
    services: Services, capture: CaptureNames, source: Source, tables: Sequence[TableId]
) -> None:
    """Check that a MySQL or MariaDB connector knows the definitions of the tables to capture.

    If a row of a captured table changes and the connector lacks the table's definition, the
    connector stops for all tables. The connector also stops if its definition of the table has more
    columns than the table. A running connector reports the definition of a new table within
    moments.

    Raises:
        CaptureError: The connector does not report a table's definition in time, or its definition
            of a table has more columns than the table.
    """
    effective = services.connect.connector(capture.connector)
    if not capture.reports_definitions or effective is None:
        return
    following = {
        one.table
        for one in services.store.tables()
        if one.state is State.INCREMENTAL and one.tier == capture.tier
    }
    tables = [table for table in tables if table not in following]
    definitions = services.definitions()

    def reported() -> tuple[DefinitionChange, ...]:
        return definitions.of(capture).changes

    def unknown() -> list[TableId]:
        found = sorted(set(tables) - known_tables(reported()))
        if found:
            source.nudge()
        return found

    def longer() -> list[TableId]:
        known = newest(reported())
        with source.reused_sessions():
            columns = {table: source.table(table).columns for table in tables}
        return [table for table in tables if len(known.get(table, ())) > len(columns[table])]

    limit = services.config.connect.timeout_s
    why = "the connector's login could not see the table when the connector first started"
    wrong = wait_while(unknown, timeout_s=limit, poll_s=_KNOWN_POLL_S)
    if not wrong:
        why = "the connector's definition has columns that the table does not have"
        wrong = wait_while(longer, timeout_s=limit, poll_s=_KNOWN_POLL_S)
    if wrong:
        names = ", ".join(map(str, wrong))
        raise CaptureError(
            f"connector {capture.connector} does not know the definition of {names}: {why}",
            remedy="Give such tables another tier (`tier` in their settings), whose connector"
            " reads the definitions when it first starts. Or offboard all tables of this connector"
            " and onboard them again, which copies them again.",
            connector=capture.connector,
            tables=tuple(wrong),
        )
