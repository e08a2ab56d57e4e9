"""Renders a table's key as one text, which is the record key.

Different keys have different texts. No code parses a text back into the key's values.

Hudi's bucket index parses a record key that has a comma and a colon, and for some values its parser
never ends. So the text of a key has no comma.

Two keys that are equal in the source have the same text: 0.0 equals -0.0, and NaN equals NaN.

A bloom index searches for a key only in files whose range of keys contains the key. Hudi finds a
file's least and greatest key by the order of UTF-8, but compares other keys with these two keys by
the order of UTF-16. The two orders differ only for characters from U+10000. So the text of a key
has no such character.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.rows.semantic_types import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

    from schemas.table import Column

FORM = 3
"""The current form of the text. A table whose rows have another form is copied again."""

_NATURAL_TYPES = frozenset({"tinyint", "smallint", "int", "bigint"})
_ESCAPES = (("\\", "\\\\"), (",", "\\."), ("|", "\\|"))
_NULL = "\\N"
"""The text of NULL. No value has this text, since each backslash in a value begins an escape."""
_BEYOND, _HEX = r"[\x{10000}-\x{10FFFF}]", "\\U"
"""A pattern of the characters that two units of UTF-16 represent, and the prefix of the text of a
value with such a character. After the prefix, the text has the value's UTF-8 bytes in hexadecimal.
"""
_REAL = ("float", "double")


def is_natural(column: Column) -> bool:
    """Whether Hudi's key generators render the column's values correctly.

    Integers and UUIDs contain none of the generators' separators. Text can contain them. Text can
    also be empty, which the generators render as ``__empty__``. Bulk insert and upsert render
    dates, timestamps and decimals differently.
    """
    return column.lake_type in _NATURAL_TYPES or column.source_type == "uuid"


def key_form(key: Iterable[Column], *, shared: bool) -> int | None:
    """Return `FORM`, the version of the rules of `key_text`; None if Hudi itself renders the key.

    Args:
        key: The columns of the table's key.
        shared: Whether several shards share the table. The shard's name is then a part of the key.
    """
    columns = tuple(key)
    return FORM if columns and (shared or not all(map(is_natural, columns))) else None


def key_text(key: Iterable[Column]) -> SparkColumn:
    """Return a Spark column with the key text of each lake row.

    The text is never empty and never ``__empty__``, by which Hudi would recognize an empty key.
    """
    parts = (
        _text(F.col(quoted(column.name)).cast(column.lake_type), column.lake_type) for column in key
    )
    return F.concat(F.lit("="), F.concat_ws("|", *parts))


def _text(value: SparkColumn, kind: str) -> SparkColumn:
    """Return one value of a lake row's key as text, for the row's key text.

    Special characters are escaped, and NULL has a text of its own.
    """
    text = F.hex(value) if kind == "binary" else value.cast("string")
    if kind in _REAL:
        text = F.when(value == 0, F.lit("0.0")).otherwise(text)
    if kind == "string":
        for plain, escaped in _ESCAPES:
            text = F.replace(text, F.lit(plain), F.lit(escaped))
        in_hex = F.concat(F.lit(_HEX), F.hex(value.cast("binary")))
        text = F.when(value.rlike(_BEYOND), in_hex).otherwise(text)
    return F.coalesce(text, F.lit(_NULL))
