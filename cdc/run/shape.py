"""Which columns a lake table carries: those of the source now, and those it had before."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cdc.errors import SchemaChangeError
from cdc.lake.write import LakeTable
from schemas.evolution import AddColumn, ChangeType, DropColumn, WidenType, changes
from schemas.table import Column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.config import TableSettings
    from cdc.sources.values import SourceTable
    from schemas.table import TableSchema

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LakeShape:
    """A lake table and its columns.

    Args:
        lake: The lake table, with all the columns that it carries from now on.
        lake_columns: Spark type by name of the source columns that it holds already.
        source_table: The table as the source's catalog has it.
        source_schema: Its lake schema by that catalog.
        widened: Columns whose type becomes wider.
    """

    lake: LakeTable
    lake_columns: Mapping[str, str]
    source_table: SourceTable
    source_schema: TableSchema
    widened: frozenset[str] = frozenset()


def lake_shape(
    spark: SparkSession,
    source_table: SourceTable,
    source_schema: TableSchema,
    settings: TableSettings,
    *,
    path: str,
    handoff: Mapping[str, Any],
) -> LakeShape:
    """Let the lake follow the source's columns, as far as that needs no copy.

    Args:
        spark: The session.
        source_table: The table as the source's catalog has it.
        source_schema: Its lake schema by that catalog.
        settings: The table's settings.
        path: Base path of the lake table.
        handoff: What the newest commit carries of the handoff, with the lake's columns.

    Raises:
        SchemaChangeError: It does need one.
    """
    table = source_schema.table
    copied_key = tuple(handoff["key"])
    if copied_key != source_schema.key:
        raise _refused(source_schema, f"its key was {copied_key}, is {source_schema.key}")
    lake_columns = {str(column["name"]): str(column["lake"]) for column in handoff["columns"]}
    kept: list[Column] = []
    widened = set()
    for change in changes(lake_columns, source_schema):
        if isinstance(change, ChangeType):
            raise _refused(source_schema, str(change))
        if isinstance(change, AddColumn) and _was_there(change.name, handoff):
            raise _refused(
                source_schema, f"column {change.name!r} was left out when the table was copied"
            )
        if isinstance(change, DropColumn):
            kept.append(Column(change.name, "dropped", lake_columns[change.name]))
        else:
            _log.info("table %s: %s", table, change)
        if isinstance(change, WidenType):
            widened.add(change.name)
    carried = replace(source_schema, columns=(*source_schema.columns, *kept))
    lake = LakeTable(spark, path, carried, settings)
    return LakeShape(lake, lake_columns, source_table, source_schema, frozenset(widened))


def with_columns(handoff: Mapping[str, Any], schema: TableSchema) -> dict[str, Any]:
    """The handoff as the next commit carries it: with the columns that the lake has then."""
    columns = [
        {"name": column.name, "source": column.source_type, "lake": column.lake_type}
        for column in schema.columns
    ]
    return {**handoff, "columns": columns}


def _was_there(name: str, handoff: Mapping[str, Any]) -> bool:
    """Whether the source's table had the column when it was copied."""
    columns = (handoff.get("fingerprint") or {}).get("columns") or {}
    return any(facts.get("name") == name for facts in columns.values())


def _refused(schema: TableSchema, what: str) -> SchemaChangeError:
    return SchemaChangeError(
        f"the lake cannot follow table {schema.table} in place: {what}",
        remedy=f"Copy the table again: `tributary bootstrap {schema.table}`.",
        table=schema.table,
    )
