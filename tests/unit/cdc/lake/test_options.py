"""What is decided before a lake table is written: options, index, key and partition columns."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.config import TableSettings
from cdc.config.partitions import partition_field
from cdc.errors import ConfigError
from cdc.lake.index import IndexLayout, SnapshotSize
from cdc.lake.layout import LakeLayout
from cdc.lake.options import check_overrides, require_keyed, table_options
from cdc.rows.columns import KEY
from schemas.errors import SchemaError
from schemas.table import Column, TableId, TableSchema

TABLE = TableId("shop", "public", "orders")


def layout(key: str = "id", *, partition_by: tuple[str, ...] = (), **columns: str) -> LakeLayout:
    types = {"id": "bigint", **columns}
    listed = tuple(Column(name, kind, kind) for name, kind in types.items())
    by = tuple(map(partition_field, partition_by))
    return LakeLayout(TableSchema(TABLE, listed, tuple(filter(None, key.split(",")))), by)


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        ("hoodie.table.name", "correctness"),
        ("hoodie.write.table.version", "correctness"),
        ("hoodie.datasource.write.recordkey.field", "correctness"),
        ("hoodie.datasource.write.operation", "correctness"),
        ("hoodie.payload.delete.marker", "correctness"),
        ("hoodie.write.concurrency.mode", "correctness"),
        ("hoodie.write.num.retries.on.conflict.failures", "correctness"),
        ("hoodie.clean.failed.writes.policy", "correctness"),
        ("hoodie.write.ignore.failed", "correctness"),
        ("hoodie.clustering.async.enabled", "correctness"),
        ("hoodie.clustering.inline", "correctness"),
        ("hoodie.clean.automatic", "correctness"),
        ("hoodie.archive.automatic", "correctness"),
        ("hoodie.partition.ttl.inline", "correctness"),
        ("hoodie.parquet.bloom.filter.enabled", "correctness"),
        ("hoodie.parquet.outputtimestamptype", "correctness"),
        ("hoodie.parquet.writelegacyformat.enabled", "correctness"),
        ("hoodie.index.type", "correctness"),
        ("hoodie.combine.before.upsert", "correctness"),
        ("hoodie.allow.empty.commit", "correctness"),
        ("hoodie.table.timeline.timezone", "correctness"),
        ("hoodie.datasource.hive_sync.password", "logs"),
        ("hoodie.write.meta.SecretKey", "logs"),
        ("spark.sql.shuffle.partitions", "not a Hudi setting"),
        ("tributary.commit", "not a Hudi setting"),
    ],
)
def test_overrides_that_would_break_the_lake_are_refused(refused: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        check_overrides(TABLE, {refused: "x"})
    assert caught.value.context["field"] == f"hudi.{refused}"
    assert caught.value.remedy


def test_a_number_of_commits_that_is_none_is_refused_before_anything_is_written() -> None:
    with pytest.raises(ConfigError, match="often is not a number of commits"):
        check_overrides(TABLE, {"hoodie.clustering.inline.max.commits": "often"})
    assert check_overrides(TABLE, {"hoodie.clustering.inline.max.commits": 4})


def test_a_clustering_so_rare_that_the_timeline_would_grow_is_refused() -> None:
    with pytest.raises(ConfigError, match="every commit reads") as caught:
        check_overrides(TABLE, {"hoodie.clustering.inline.max.commits": 1001})
    assert "small.file.limit" in (caught.value.remedy or "")
    assert check_overrides(TABLE, {"hoodie.clustering.inline.max.commits": 1000})


def test_overrides_that_only_cost_or_save_are_taken() -> None:
    given = {"hoodie.parquet.compression.codec": "snappy", "hoodie.parquet.block.size": 90}
    overrides = check_overrides(TABLE, given)
    options = table_options(layout(), IndexLayout("bucket", 1), overrides, operation="upsert")
    assert options["hoodie.parquet.compression.codec"] == "snappy"
    assert options["hoodie.parquet.block.size"] == "90"


@pytest.mark.parametrize("index", [IndexLayout("bloom"), IndexLayout("bucket", 2)])
def test_what_every_setting_depends_on_cannot_be_reached_by_an_override(
    index: IndexLayout,
) -> None:
    """Every option of a write is either overridable or refused; none is silently ignored."""
    plain = table_options(layout(), index, {}, operation="upsert")
    for key in plain:
        try:
            overrides = check_overrides(TABLE, {key: "overridden"})
        except ConfigError:
            continue
        options = table_options(layout(), index, overrides, operation="upsert")
        assert options[key] == "overridden", key


def test_no_option_of_a_write_looks_like_a_secret() -> None:
    for key in table_options(layout(), IndexLayout("bucket", 1), {}, operation="upsert"):
        assert "password" not in key
        assert "secret" not in key


ONE, SEVERAL = SnapshotSize(10**6, 200 * 2**20, 1), SnapshotSize(10**6, 200 * 2**20, 4)
SMALL, NARROW = SnapshotSize(10**5, 20 * 2**20, 1), SnapshotSize(10**6, 30 * 2**20, 1)


@pytest.mark.parametrize(
    ("settings", "size", "expected"),
    [
        ({}, None, IndexLayout("bucket", 1, automatic=True)),
        ({}, ONE, IndexLayout("bloom", automatic=True)),
        ({}, SMALL, IndexLayout("bucket", 1, automatic=True)),
        ({}, NARROW, IndexLayout("bloom", automatic=True)),
        ({}, SEVERAL, IndexLayout("bloom", automatic=True)),
        ({"index": "simple"}, ONE, IndexLayout("simple")),
        ({"index": "bucket"}, ONE, IndexLayout("bucket", 7)),
        ({"index": "bucket", "buckets": 7}, ONE, IndexLayout("bucket", 7)),
        ({"buckets": 7}, ONE, IndexLayout("bucket", 7, automatic=True)),
    ],
)
def test_the_index_follows_from_settings_and_size(
    settings: dict[str, Any], size: SnapshotSize | None, expected: IndexLayout
) -> None:
    chosen = IndexLayout.choose(TableSettings(**settings), layout(), size)
    assert chosen == expected
    assert IndexLayout.from_json(chosen.to_json()) == chosen


def test_rows_that_can_change_partition_are_found_in_all_of_them() -> None:
    moving = layout(partition_by=("day",), day="date")
    chosen = IndexLayout.choose(TableSettings(), moving, ONE)
    options = table_options(moving, chosen, {}, operation="upsert")
    assert options["hoodie.index.type"] == "GLOBAL_BLOOM"
    with pytest.raises(ConfigError, match="partition can change"):
        IndexLayout.choose(TableSettings(index="bucket"), moving, ONE)
    fixed = layout("id,day", partition_by=("day",), day="date")
    assert IndexLayout.choose(TableSettings(), fixed, SMALL).kind == "bucket"


@pytest.mark.parametrize(
    ("key", "columns", "expected"),
    [
        ("id", {}, ("id",)),
        ("id,line", {"line": "int"}, ("id", "line")),
        ("code", {"code": "string"}, (KEY,)),
        ("id,at", {"at": "timestamp"}, (KEY,)),
        ("id,amount", {"amount": "decimal(10,0)"}, (KEY,)),
    ],
)
def test_only_integer_keys_are_left_to_hudi(
    key: str, columns: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert layout(key, **columns).record_key == expected


def test_a_uuid_key_needs_no_column_of_its_own() -> None:
    schema = TableSchema(TABLE, (Column("id", "uuid", "string"),), ("id",))
    assert LakeLayout(schema).record_key == ("id",)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"_cdc_op": "string"}, "reserved"),
        ({"_HOODIE_x": "string"}, "reserved"),
        ({"ID": "string"}, "does not distinguish it from 'id'"),
        ({"a b": "string"}, "letters, digits"),
        ({"a`b": "string"}, "letters, digits"),
        ({"1st": "string"}, "letters, digits"),
        ({"a\nb": "string"}, "letters, digits"),
        ({"; drop table": "string"}, "letters, digits"),
    ],
)
def test_columns_that_the_lake_cannot_hold_are_refused_by_name(
    columns: dict[str, str], reason: str
) -> None:
    with pytest.raises(SchemaError, match=reason) as caught:
        layout(**columns)
    assert caught.value.context["field"] in columns


def test_a_log_is_keyed_by_where_a_row_comes_from() -> None:
    log = layout(key="", partition_by=("id",))
    assert log.record_key == ("_cdc_row",)
    assert ("_cdc_row", "string") in log.columns
    assert not log.moves_partitions, "a row that is never looked up needs no global index"
    assert ("_cdc_row", "string") not in layout().columns


def test_a_log_is_not_put_into_buckets_which_each_commit_would_write_anew() -> None:
    small = SnapshotSize(rows=1, bytes=1, commits=1)
    assert IndexLayout.choose(TableSettings(mode="append"), layout(key=""), small).kind == "bloom"
    assert IndexLayout.choose(TableSettings(), layout(), small).kind == "bucket"


def test_a_table_that_lost_its_key_does_not_become_a_log() -> None:
    with pytest.raises(SchemaError, match="no key"):
        require_keyed(layout(key="").schema, TableSettings())
    require_keyed(layout(key="").schema, TableSettings(mode="append"))


def test_a_partition_column_must_exist() -> None:
    with pytest.raises(SchemaError, match="nowhere"):
        layout(partition_by=("nowhere",))


@pytest.mark.parametrize(
    "lake_type",
    ["timestamp", "timestamp_ntz", "binary", "float", "double", "decimal(10,2)", "array<int>"],
)
def test_a_type_whose_text_is_not_one_for_each_value_makes_no_partitions(lake_type: str) -> None:
    with pytest.raises(
        SchemaError, match=f"cannot be partitioned by column 'at'.* {lake_type[:6]}"
    ):
        layout("id,at", partition_by=("at",), at=lake_type)
    for fine in ("string", "boolean", "smallint", "int", "bigint", "date", "decimal(10,0)"):
        assert layout("id,at", partition_by=("at",), at=fine).partition_columns == ("at",)
