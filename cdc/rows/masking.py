"""Replaces the values of hashed and masked columns.

All code that reads values calls `hidden` to hide them: the copy, the stream, the reads by key, and
both sides of ``verify``. The function takes values in their lake types. So the same value always
gets the same hash or mask.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.errors import ConfigError
from cdc.rows.columns import scratch
from cdc.rows.semantic_types import quoted
from cdc.runtime.local_frame import local_frame

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from cdc.config import LakeConfig
    from schemas.table import Column, TableSchema

MASK = "***"
"""The text that replaces each value of a masked column."""

_BLOCK_BYTES = 64
_INNER, _OUTER = scratch("inner_key"), scratch("outer_key")


def hidden(frame: DataFrame, schema: TableSchema, lake: LakeConfig) -> DataFrame:
    """Return the frame with a hash or mask in place of each hidden value; NULL stays NULL.

    Args:
        frame: The rows, with the original values in the columns to hide. The rows may have more
            columns than the table.
        schema: The table.
        lake: The settings with the secret key that hashes values.

    Raises:
        ConfigError: A column is to be hashed, and the settings have no secret key.
        SecretError: The secret key cannot be read.
    """
    columns = [column for column in schema.columns if column.hide]
    if not columns:
        return frame
    if not any(column.hide == "hash" for column in columns):
        return frame.withColumns({column.name: _masked_value(column) for column in columns})
    # The keys are in a frame of one row, since Spark prints the constants of a query: in its UI, in
    # event logs and in errors.
    keys = local_frame(
        frame.sparkSession, [_hmac_keys(schema, lake)], f"{_INNER} binary, {_OUTER} binary"
    )
    keyed = frame.crossJoin(F.broadcast(keys))
    replaced = {
        column.name: _hashed_value(column) if column.hide == "hash" else _masked_value(column)
        for column in columns
    }
    return keyed.withColumns(replaced).drop(_INNER, _OUTER)


def key_check(lake: LakeConfig) -> str | None:
    """Return a digest that identifies the secret key of hashed columns but does not reveal the key.

    Return None if there is no secret key.

    Raises:
        SecretError: The secret key cannot be read.
    """
    if lake.hash_key is None:
        return None
    key = lake.hash_key.resolve().encode()
    return hmac.new(key, b"tributary: which key", hashlib.sha256).hexdigest()[:16]


def hashed_texts(texts: Iterable[str], lake: LakeConfig) -> frozenset[str]:
    """Return the hashes that `hidden` puts in place of these strings in a hashed column.

    Args:
        texts: The strings.
        lake: The settings with the secret key that hashes values.

    Raises:
        SecretError: The secret key cannot be read.
    """
    key = lake.hash_key.resolve().encode() if lake.hash_key is not None else b""
    return frozenset(hmac.new(key, one.encode(), hashlib.sha256).hexdigest() for one in texts)


def _masked_value(column: Column) -> SparkColumn:
    """Return a Spark column with the mask in place of a masked column's value; NULL stays NULL."""
    return F.when(F.col(quoted(column.name)).isNotNull(), F.lit(MASK))


def _hashed_value(column: Column) -> SparkColumn:
    """Return a Spark column with a hashed column's HMAC-SHA-256 (RFC 2104) in lower hexadecimal.

    The hash is of a binary value's bytes, or of any other value's text.
    """
    value = F.col(quoted(column.name))
    if column.plain != "binary":
        value = value.cast("string").cast("binary")
    inner = F.unhex(F.sha2(F.concat(F.col(_INNER), value), 256))
    return F.sha2(F.concat(F.col(_OUTER), inner), 256)


def _hmac_keys(schema: TableSchema, lake: LakeConfig) -> tuple[bytearray, bytearray]:
    """Return the inner and the outer key of the hashed columns' HMAC, made from the secret key."""
    if lake.hash_key is None:
        raise ConfigError(
            f"the settings of table {schema.table} hash columns, and lake.hash_key is not set",
            remedy="Set lake.hash_key to a reference, ${NAME} or ${file:/path}.",
            table=schema.table,
            field="lake.hash_key",
        )
    key = lake.hash_key.resolve().encode()
    if len(key) > _BLOCK_BYTES:
        key = hashlib.sha256(key).digest()
    block = key.ljust(_BLOCK_BYTES, b"\0")
    return bytearray(byte ^ 0x36 for byte in block), bytearray(byte ^ 0x5C for byte in block)
