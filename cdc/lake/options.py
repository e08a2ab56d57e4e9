"""Hudi's settings for one table, and which of them may be overridden."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.lake.commit import COMMIT_PREFIX
from cdc.lake.layout import OFFSET, OP, RowLayout

if TYPE_CHECKING:
    from cdc.config import TableSettings


def table_options(layout: RowLayout, settings: TableSettings, *, operation: str) -> dict[str, str]:
    """All options of one write."""
    table = layout.schema.table
    return {
        "hoodie.table.name": f"{table.schema}_{table.name}",
        "hoodie.datasource.write.operation": operation,
        "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
        "hoodie.datasource.write.recordkey.field": ",".join(layout.record_key),
        "hoodie.datasource.write.partitionpath.field": ",".join(layout.partition_by),
        "hoodie.datasource.write.commitmeta.key.prefix": COMMIT_PREFIX,
        "hoodie.write.table.version": "6",
        "hoodie.write.auto.upgrade": "false",
        "hoodie.allow.empty.commit": "true",
        "hoodie.parquet.compression.codec": "zstd",
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
        "hoodie.write.markers.type": "DIRECT",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "1",
        "hoodie.datasource.write.precombine.field": OFFSET,
        "hoodie.payload.delete.field": OP,
        "hoodie.payload.delete.marker": "d",
    }
