"""The settings of a lake table that several shards share."""

from __future__ import annotations

from typing import Any, cast

from cdc.config import TableSettings
from cdc.lake.commit import CommitRecord
from cdc.lake.shard_write import ShardWrite, carried, record_of, settings_of
from cdc.lake.timeline import Committed
from schemas.table import Column, Shard, TableId, TableSchema

TABLE = TableId("shop", "public", "orders")
SCHEMA = TableSchema(TABLE, (Column("id", "int", "int"),), ("id",))


def write(name: str, keep: str) -> ShardWrite:
    commit = CommitRecord(kind="run", table=TABLE, attempt="a")
    return ShardWrite(
        shard=Shard("orders", name, "_shard", "file:///lake/orders"),
        schema=SCHEMA,
        settings=TableSettings(readers_keep=keep),
        rows=None,
        commit=commit,
        guard=cast("Any", None),
    )


def test_readers_of_a_shared_table_keep_files_for_as_long_as_any_shard_asks() -> None:
    eu, us, shorter = write("eu", "3h"), write("us", "30m"), write("eu", "10m")
    assert settings_of([us, eu], {}).readers_keep_s == 10800

    committed = Committed("20260101000000000", "commit", record_of([us, eu], {}, {}))
    entries = carried(committed)
    assert settings_of([us], entries).readers_keep_s == 10800, "of a shard that commits nothing"
    assert settings_of([shorter], entries).readers_keep_s == 1800, "its own is the newest"
    assert list(map(str, settings_of([us], entries).partition_by)) == ["_shard"]
