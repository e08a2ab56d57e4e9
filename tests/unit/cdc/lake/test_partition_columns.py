"""Decisions about partitions by expressions that are made before any row is read."""

from __future__ import annotations

import pytest

from cdc.config import TableSettings
from cdc.config.partitions import partition_field
from cdc.errors import ConfigError
from cdc.lake.index import IndexLayout, SnapshotSize
from cdc.lake.layout import LakeLayout
from cdc.lake.options import table_options
from schemas.errors import SchemaError
from schemas.table import Column, TableId, TableSchema

TABLE = TableId("shop", "public", "orders")
ONE = SnapshotSize(rows=1, bytes=1, commits=1)


def layout(key: str, *by: str, **columns: str) -> LakeLayout:
    types = {"id": "bigint", "at": "timestamp", **columns}
    listed = tuple(Column(name, kind, kind) for name, kind in types.items())
    schema = TableSchema(TABLE, listed, tuple(key.split(",")))
    return LakeLayout(schema, tuple(map(partition_field, by)))


def test_an_expression_is_a_column_of_the_lake_before_those_of_the_source() -> None:
    made = layout("id", "id", "day(at, Asia/Tokyo)", "hash(id, 8) as shard")
    assert made.partition_columns == ("id", "at_day", "shard")
    assert made.columns[-4:] == (
        *(("at_day", "date"), ("shard", "int")),
        *(("id", "bigint"), ("at", "timestamp")),
    )
    assert [name for name, _ in made.input_columns[-2:]] == ["id", "at"], "no run reads it"
    options = table_options(made, IndexLayout("bloom"), {}, operation="bulk_insert")
    assert options["hoodie.datasource.write.partitionpath.field"] == "id,at_day,shard"
    assert options["hoodie.bulkinsert.sort.mode"] == "PARTITION_SORT"
    sort = "hoodie.bulkinsert.sort.mode"
    own = table_options(made, IndexLayout("bloom"), {sort: "GLOBAL_SORT"}, operation="bulk_insert")
    assert own[sort] == "GLOBAL_SORT"


@pytest.mark.parametrize(
    ("key", "by", "moves"),
    [
        ("id", "hash(id, 8)", False),
        ("id", "day(at)", True),
        ("id,at", "day(at)", False),
        ("id,at", "month(at)", False),
        ("id,at", "day(at, Europe/Berlin)", True),
    ],
)
def test_rows_stay_if_key_and_expression_never_disagree(key: str, by: str, moves: bool) -> None:
    """The rules of a time zone can change, and then the same key falls on another day."""
    made = layout(key, by)
    assert made.moves_partitions is moves
    options = table_options(made, IndexLayout.choose(TableSettings(), made, ONE), {}, operation="u")
    assert (options["hoodie.index.type"] == "GLOBAL_BLOOM") is moves
    if moves:
        with pytest.raises(ConfigError, match="partition can change"):
            IndexLayout.choose(TableSettings(index="bucket"), made, ONE)


@pytest.mark.parametrize(
    ("by", "lake_type", "reason"),
    [
        ("hour(x)", "date", r"hour\(x\): column 'x' has the type date in the lake, .* a time$"),
        ("day(x)", "string", r"day\(x\): .* string .* not a time or a date"),
        ("year(x, Asia/Tokyo)", "bigint", "not a time or a date"),
        ("hash(x, 4)", "double", "the type double in the lake: Hudi names"),
        ("hash(x, 4)", "timestamp", "the type timestamp in the lake"),
        ("hash(x, 4)", "decimal(10,2)", r"the type decimal\(10,2\) in the lake"),
    ],
)
def test_a_column_of_a_wrong_type_is_refused(by: str, lake_type: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason) as caught:
        layout("id", by, x=lake_type)
    assert caught.value.context["field"] == "partition_by"
    assert layout("id", "day(x)", x="date").partition_columns == ("x_day",)


@pytest.mark.parametrize(
    "kind", ["binary", "string", "boolean", "smallint", "decimal(20,0)", "date"]
)
def test_a_hash_takes_bytes_and_what_makes_partitions(kind: str) -> None:
    assert layout("id", "hash(x, 4)", x=kind).derived_schema.column("x_hash").lake_type == "int"


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        ("day(at)", "the lake gets the column 'at_day': the table has the column 'AT_day'"),
        ("hash(id, 2) as id", "the lake gets the column 'id': the table has the column 'id'"),
        ("hash(id, 2) as _cdc_x", "its prefix is reserved"),
        ("day(nowhere)", "has no column 'nowhere'"),
    ],
)
def test_the_name_of_another_column_is_refused(by: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        layout("id", by, AT_day="int")


def test_another_name_solves_it() -> None:
    made = layout("id", "day(at) as day_of_at", AT_day="int")
    assert made.partition_columns == ("day_of_at",)
