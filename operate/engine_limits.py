"""Finds a table's columns that a query engine cannot read, or shows differently from the lake.

docs/readers_engines.md lists what each engine showed in a test.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.lake.partition_columns import partition_columns

if TYPE_CHECKING:
    from cdc.config.partitions import PartitionField
    from schemas.table import TableSchema

_NUMBER = re.compile(r"int|bigint|float|double|decimal\(.*\)")


@dataclass(frozen=True)
class EngineLimits:
    """Limits of query engines, such as Trino, that read a table by its name in a metastore.

    Args:
        notes: Remarks on values that an engine shows differently from the lake.
        problem: Why an engine's queries fail; empty if they do not fail.
        remedy: What to do about the problem.
    """

    notes: tuple[str, ...] = ()
    problem: str = ""
    remedy: str = ""


def partition_limits(schema: TableSchema, partition_by: Sequence[PartitionField]) -> EngineLimits:
    """Return the limits that query engines have because of a table's partition columns.

    Args:
        schema: The table's columns in the lake.
        partition_by: The table's partitions.
    """
    columns = partition_columns(schema, partition_by)
    # The texts of hours, months and years have no character that a folder's name encodes.
    texts = [
        one.name
        for one, field in zip(columns, partition_by, strict=True)
        if one.lake_type == "string" and not field.derived
    ]
    holes = [
        one.name for one in columns if one.nullable and _NUMBER.fullmatch(one.lake_type) is not None
    ]
    notes = f"Trino shows some texts of {_listed_columns(texts)} encoded, for example a%2Fb for a/b"
    if not holes:
        return EngineLimits((notes,) if texts else ())
    return EngineLimits(
        (notes,) if texts else (),
        f"Trino fails at rows with NULL in {_listed_columns(holes)}",
        "Set partition_by to columns that are NOT NULL on the source. The next run then asks for a"
        " copy.",
    )


def _listed_columns(names: Sequence[str]) -> str:
    """Return partition columns as text, for a note on a query engine's limits."""
    noun = "partition columns" if len(names) > 1 else "partition column"
    return f"{noun} {', '.join(names)}"
