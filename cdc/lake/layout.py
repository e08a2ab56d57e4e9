"""The shape of a lake row: meta columns, source columns, record key and partition columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc.lake.key_text import is_natural, key_text
from cdc.lake.partition_columns import partition_column, partition_columns
from cdc.lake.partition_values import require_zones, value_of
from cdc.rows.columns import (
    DELETED,
    DELETED_COLUMN,
    KEY,
    KEY_COLUMN,
    META_COLUMNS,
    OP,
    ROW,
    ROW_COLUMN,
    is_reserved,
)
from cdc.rows.semantic_types import quoted
from cdc.runtime.java_calls import select_sql
from cdc.sources.selection import LAKE_NAME
from schemas.errors import SchemaError
from schemas.table import Column, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

    from cdc.config.partitions import PartitionField

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Name of the partition of rows whose partition column is NULL. Hudi also writes rows with an empty
text to this partition."""


@dataclass(frozen=True)
class LakeLayout:
    """The layout of a lake table's rows: record key, partitions and columns.

    A table without a key is an append table. Its record key in the lake is the column `ROW`, and
    no row is ever replaced.

    Args:
        schema: The table's columns and key.
        partition_by: The table's partitions: columns, and expressions of columns. The lake has a
            further column for each expression. Empty for a table without partitions.
        soft_delete: Whether deleted rows stay in the lake, with the column `DELETED` set.

    Raises:
        SchemaError: The table lacks a partition column, or the column's type cannot be used for
            partitions. Or a column name is reserved, is invalid, or differs from another column
            name only in case.
    """

    schema: TableSchema
    partition_by: tuple[PartitionField, ...] = ()
    soft_delete: bool = False

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for column in self.schema.columns:
            folded = column.name.lower()
            if is_reserved(folded):
                raise _unwritable_column_error(
                    self.schema, column.name, "its prefix is reserved in the lake"
                )
            if not LAKE_NAME.fullmatch(column.name):
                reason = "Hudi's schema takes letters, digits and _ only"
                raise _unwritable_column_error(self.schema, column.name, reason)
            if folded in seen:
                raise _unwritable_column_error(
                    self.schema,
                    column.name,
                    f"Spark does not distinguish it from {seen[folded]!r}",
                )
            seen[folded] = column.name
        partition_columns(self.schema, self.partition_by)

    @property
    def is_log(self) -> bool:
        """Whether the lake table is an append table, which has no key."""
        return not self.schema.key

    @property
    def needs_key_column(self) -> bool:
        """Whether the record key is the column `KEY`.

        Tributary fills `KEY` with the key columns' values as text. The column is needed if Hudi's
        own key generators would render one of these values incorrectly (`is_natural`).
        """
        return not all(map(is_natural, self._key))

    @property
    def record_key(self) -> tuple[str, ...]:
        """The lake columns that form the record key."""
        if self.is_log:
            return (ROW,)
        return (KEY,) if self.needs_key_column else self.schema.key

    @property
    def moves_partitions(self) -> bool:
        """Whether an update can move a row to another lake partition; False for an append table."""
        return not self.is_log and not all(
            one.column in self.schema.key and one.lasting for one in self.partition_by
        )

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The names of the lake's partition columns."""
        return tuple(one.lake_name for one in self.partition_by)

    @property
    def derived(self) -> tuple[PartitionField, ...]:
        """The partitions that are expressions; the lake has a further column for each of them."""
        return tuple(one for one in self.partition_by if one.derived)

    @property
    def derived_schema(self) -> TableSchema:
        """The table's columns, followed by the lake's columns for `derived`."""
        further = (partition_column(self.schema, one) for one in self.derived)
        return replace(self.schema, columns=(*self.schema.columns, *further))

    def with_derived(self, rows: DataFrame) -> DataFrame:
        """Return ``rows`` (source columns in lake types) with the columns of `derived` added."""
        return rows.select("*", *map(self._value, self.derived))

    def _value(self, field: PartitionField) -> SparkColumn:
        """Return a Spark column with the values of a partition expression, named as in the lake."""
        kind = self.schema.column(field.column).lake_type
        cell = column(field.column).cast(kind)
        return value_of(field, cell, kind).cast(field.lake_type).alias(field.lake_name)

    @property
    def _key(self) -> tuple[Column, ...]:
        return tuple(map(self.schema.column, self.schema.key))

    @property
    def _meta(self) -> tuple[tuple[str, str], ...]:
        """Name and Spark type of each column that `project` needs besides the source's columns."""
        return (*META_COLUMNS, ROW_COLUMN) if self.is_log else META_COLUMNS

    @property
    def input_columns(self) -> tuple[tuple[str, str], ...]:
        """Name and Spark type of each column in the input of `project`."""
        source = ((column.name, column.lake_type) for column in self.schema.columns)
        return (*self._meta, *source)

    @property
    def key_generator(self) -> str:
        """Name of Hudi's class that renders record key and partition path."""
        if not self.partition_by:
            name = "NonpartitionedKeyGenerator"
        elif len(self.record_key) == 1 and len(self.partition_by) == 1:
            name = "SimpleKeyGenerator"
        else:
            name = "ComplexKeyGenerator"
        return f"org.apache.hudi.keygen.{name}"

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Name and Spark type of every column of the lake table, in order."""
        return (
            *self._meta,
            *((DELETED_COLUMN,) if self.soft_delete else ()),
            *((KEY_COLUMN,) if self.needs_key_column else ()),
            # Before the source's columns, of which there can be more later.
            *((one.lake_name, one.lake_type) for one in self.derived),
            *((column.name, column.lake_type) for column in self.schema.columns),
        )

    def project(self, rows: DataFrame) -> DataFrame:
        """Return ``rows`` with exactly the lake table's columns, in the lake's order and types.

        Raises:
            ConfigError: Java does not know the time zone of a partition's expression.
            SchemaError: ``rows`` lacks a column of the lake table.
        """
        require_zones(rows.sparkSession, self.schema.table, self.derived)
        have = {name.lower() for name in rows.columns}
        derived = {one.lake_name: one for one in self.derived}
        partitions = {one.lower() for one in self.partition_columns}
        computed: dict[str, SparkColumn] = {}
        expressions: list[str] = []
        for name, lake_type in self.columns:
            expression = quoted(name)
            if name in derived:
                computed[name] = self._value(derived[name])
            elif name == KEY:
                computed[name] = key_text(self._key)
            elif name == DELETED:
                expression = f"{OP} = 'd' AS {name}"
            elif name.lower() not in have:
                raise _unwritable_column_error(self.schema, name, "the rows to write lack it")
            elif lake_type == "string" and name.lower() in partitions:
                computed[name] = self._partition_text(name)
            else:
                expression = f"CAST({expression} AS {lake_type}) AS {expression}"
            expressions.append(expression)
        projected = select_sql(rows.withColumns(computed) if computed else rows, *expressions)
        # Lake columns are nullable even if input columns are not: a later schema can lack a column,
        # and a delete has only its key.
        fields = projected.schema.fields
        if all(one.nullable for one in fields):
            return projected
        return select_sql(projected, *map(_nullable_sql, fields))

    def _partition_text(self, name: str) -> SparkColumn:
        """Return a Spark column with the strings of a partition column.

        The write fails if a string is one that readers would read as NULL: an empty string, or the
        name of Hudi's partition for NULL.
        """
        cell = column(name).cast("string")
        failure = F.raise_error(
            F.lit(
                f"column {name} of table {self.schema.table} has a text that a lake partition"
                f" cannot hold: it is empty or {_NULL_PARTITION}. Choose other columns for"
                " partition_by, then run `tributary resync`"
            )
        )
        return F.when(cell.isin("", _NULL_PARTITION), failure.cast("string")).otherwise(cell)


def column(name: str) -> SparkColumn:
    """Return the Spark column of lake rows with this exact name, which can have any characters."""
    return F.col(quoted(name))


def _nullable_sql(field: StructField) -> str:
    """Return Spark SQL that selects a column of rows, so that the lake's column allows NULL."""
    name = quoted(field.name)
    return name if field.nullable else f"CASE WHEN TRUE THEN {name} END AS {name}"


def _unwritable_column_error(schema: TableSchema, name: str, reason: str) -> SchemaError:
    """Return the error for a column of a table that cannot be written to the lake."""
    return SchemaError(
        f"column {name!r} of table {schema.table} cannot be written to the lake: {reason}",
        remedy=f"Leave it out with columns.exclude: [{name}], or rename it on the source.",
        table=schema.table,
        field=name,
    )
