"""A shard writes to its lake table only through the shared table."""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import DataFrame

from cdc.config import TableSettings
from cdc.lake.commit import CommitRecord
from cdc.lake.shard_write import ShardWrite
from cdc.lake.shards import ShardTable
from schemas.table import Column, Shard, TableId, TableSchema

TABLE = TableId("shop", "public", "orders")
SCHEMA = TableSchema(TABLE, (Column("id", "int", "int"),), ("id",))
COMMIT = CommitRecord(kind="run", table=TABLE, attempt="a")
ROWS = cast("DataFrame", object())
WRITES = ("upsert", "insert", "overwrite", "empty_commit")


class Shared:
    """A fake shared table that keeps the writes that shards ask for."""

    def __init__(self) -> None:
        self.wanted: list[ShardWrite] = []

    def write(self, wanted: ShardWrite) -> str:
        self.wanted.append(wanted)
        return "20260102030405006"


def test_every_write_of_a_shard_goes_through_the_shared_table() -> None:
    shared = Shared()
    table = ShardTable(
        cast("Any", None),
        "/lake/orders",
        SCHEMA,
        TableSettings(delete_mode="soft"),
        shard=Shard("sales.orders", "eu", "_shard", "/lake/orders"),
        write=shared.write,
    )
    for write in ("upsert", "insert", "overwrite"):
        assert getattr(table, write)(ROWS, COMMIT, lambda _: None) == "20260102030405006"
    table.empty_commit(COMMIT, lambda _: None)
    assert [(one.rows, one.replaces) for one in shared.wanted] == [
        (ROWS, False),
        (ROWS, False),
        (ROWS, True),
        (None, False),
    ]
    others = {name for name in dir(table) if not name.startswith("_")} - {*WRITES}
    assert others == {"keep_up", "layout", "path", "read", "timeline"}
