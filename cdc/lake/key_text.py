"""The record key as one text, which differs wherever two keys differ and is never taken apart.

Hudi's bucket index reads the columns back out of a record key that has a comma and a colon, and
for some values never comes to an end. So the text of a key has no comma.

The source decides what one key is: it takes 0.0 for -0.0, and NaN for NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.rows.semantic_types import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

    from schemas.table import Column

FORM = 2
"""Which text it is. A table whose rows have another is copied again."""

_NATURAL_TYPES = frozenset({"tinyint", "smallint", "int", "bigint"})
_ESCAPES = (("\\", "\\\\"), (",", "\\."), ("|", "\\|"))
_NULL = "\\N"
"""No value's text: there an escape follows each backslash."""
_REAL = ("float", "double")


def is_natural(column: Column) -> bool:
    """Whether Hudi's key generators render the column as they should.

    Integers and UUIDs have none of their separators. Text may have them, or be empty
    (``__empty__`` to them); dates, timestamps and decimals render differently in bulk insert and
    upsert.
    """
    return column.lake_type in _NATURAL_TYPES or column.source_type == "uuid"


def key_form(key: Iterable[Column], *, shared: bool) -> int | None:
    """Which form of the text the rows of a table have for their keys; None if they need none.

    Args:
        key: The columns of the table's key.
        shared: Whether several source tables feed it: then the name of each is a part of the key.
    """
    columns = tuple(key)
    return FORM if columns and (shared or not all(map(is_natural, columns))) else None


def key_text(key: Iterable[Column]) -> SparkColumn:
    """The text of a key, which is neither empty nor one of the words that mean so to Hudi."""
    parts = (
        _text(F.col(quoted(column.name)).cast(column.lake_type), column.lake_type) for column in key
    )
    return F.concat(F.lit("="), F.concat_ws("|", *parts))


def _text(value: SparkColumn, kind: str) -> SparkColumn:
    text = F.hex(value) if kind == "binary" else value.cast("string")
    if kind in _REAL:
        text = F.when(value == 0, F.lit("0.0")).otherwise(text)
    if kind == "string":
        for plain, escaped in _ESCAPES:
            text = F.replace(text, F.lit(plain), F.lit(escaped))
    return F.coalesce(text, F.lit(_NULL))
