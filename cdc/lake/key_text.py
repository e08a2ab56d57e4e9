"""Renders a table's key as one string, the record key.

Different keys give different strings. No code of Tributary parses such a string.

Hudi's bucket index parses a record key that has a comma and a colon, and the parser never ends for
some of these keys. So the string has no comma.

Keys that are equal in the source give the same string: 0.0 equals -0.0, and NaN equals NaN.

A bloom index searches for a key only in files whose range of keys contains the key. Hudi compares
keys in the order of UTF-8 to find a file's least and greatest key, but in the order of UTF-16 to
find the files for a key. The two orders differ only for characters from U+10000. So the string has
no such character.
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
"""Version of the rules for record keys. A table whose keys have another version is copied again."""

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
    """Return whether Hudi's key generators render the column's values correctly.

    The generators render integers and UUIDs correctly. But a string can contain the generators'
    separators, and an empty string becomes ``__empty__``. Dates, timestamps and decimals are
    rendered differently by bulk insert and upsert.
    """
    return column.lake_type in _NATURAL_TYPES or column.source_type == "uuid"


def key_form(key: Iterable[Column], *, shared: bool) -> int | None:
    """Return `FORM`, the version of the rules of `key_text`; None if Hudi itself renders the key.

    Args:
        key: The columns of the table's key.
        shared: Whether several shards share the lake table. If so, the record key also contains the
            shard's name, so Tributary renders the key.
    """
    columns = tuple(key)
    return FORM if columns and (shared or not all(map(is_natural, columns))) else None


def key_text(key: Iterable[Column]) -> SparkColumn:
    """Return a Spark column with Hudi's record key of each row.

    The key is never empty, and never ``__empty__``, which for Hudi means an empty key.
    """
    parts = (
        _key_value_text(F.col(quoted(column.name)).cast(column.lake_type), column.lake_type)
        for column in key
    )
    return F.concat(F.lit("="), F.concat_ws("|", *parts))


def _key_value_text(value: SparkColumn, kind: str) -> SparkColumn:
    """Return one value of a Hudi record key as a string.

    Special characters are escaped, and NULL becomes a string that no value has.

    Args:
        value: The value.
        kind: The value's Spark SQL type.
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
