"""Finds table definitions that a MariaDB connector skips when it starts.

A connector that has skipped a definition stops at the next row of the table, or decodes the row by
an earlier definition: for example, it cuts a BIGINT to 32 bits, or exchanges columns.
`cdc.debezium.schema_history` explains when this happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.debezium.include_list import OWN
from cdc.debezium.schema_history import skipped_definition
from cdc.log.gtid import MariadbGtidSet
from schemas.table import TableId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from cdc.debezium import CaptureNames, Definitions
    from cdc.log.position import LogPosition


def skipped(
    names: CaptureNames,
    definitions: Callable[[], Definitions],
    stored: LogPosition | None,
    listed: Collection[TableId],
) -> str | None:
    """Return why a connector will skip a table definition at its next start.

    The result is None if the connector will skip no definition.

    Args:
        names: The capture.
        definitions: Returns the reader of the schema history.
        stored: The position that Connect has stored; None if it has stored none.
        listed: The tables in the connector's include list.

    Raises:
        KafkaError: The schema history cannot be read in time.
        DecodeError: A record in the schema history's topic is malformed.
    """
    if names.kind != "mariadb" or not isinstance(stored, MariadbGtidSet):
        return None
    tables = {*listed, *(TableId(names.source, *own) for own in OWN)}
    found = skipped_definition(definitions().learned(names), stored, tables)
    if found is None:
        return None
    return (
        f"connector {names.connector} skips a definition of table {found.table.relation} when it"
        f" starts: the schema history has the definition after GTID {found.gtids}, and the stored"
        f" position {stored} is of another server in the same domain"
    )
