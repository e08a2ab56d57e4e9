"""Composes Hudi's settings for one table.

A table's setting ``hudi`` can override some of these settings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cdc.errors import ConfigError
from cdc.lake.commit import COMMIT_PREFIX
from cdc.lake.file_sizes import FILL_BELOW_BYTES, LARGE_FILE_BYTES, UPDATED_FILE_BYTES
from cdc.lake.index import IndexLayout
from cdc.lake.layout import LakeLayout
from cdc.lake.table_services import (
    CLUSTERING_KEY,
    MOST_BETWEEN_CLUSTERINGS,
    service_options,
)
from cdc.rows.columns import OFFSET, OP
from schemas.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc.config import TableSettings
    from schemas.table import TableId, TableSchema

_FIXED = {
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.commitmeta.key.prefix": COMMIT_PREFIX,
    # Trino and Presto read version 6 and refuse later ones.
    "hoodie.write.table.version": "6",
    "hoodie.write.auto.upgrade": "false",
    # A later instant must have later offsets; local time would go back for an hour each autumn.
    "hoodie.table.timeline.timezone": "UTC",
    # Hudi waits this long for the clocks of concurrent writers. Here only one writer exists, and
    # the guard compares instants.
    "hoodie.time.generator.max_expected_clock_skew_ms": "1",
    # Offsets advance even when a batch changes no row.
    "hoodie.allow.empty.commit": "true",
    # A row that cannot be written fails its commit; Hudi's default drops the row.
    "hoodie.write.ignore.failed": "false",
    # No guard checks a clustering inside a commit. So upkeep runs clusterings, with the guard.
    "hoodie.clustering.inline": "false",
    # The lease, the guard, and the next writer's rollback of unfinished commits ensure that only
    # one writer commits.
    "hoodie.write.concurrency.mode": "SINGLE_WRITER",
    "hoodie.clean.failed.writes.policy": "EAGER",
    # A retried stale batch would bring deleted rows back.
    "hoodie.write.num.retries.on.conflict.failures": "0",
    "hoodie.datasource.write.precombine.field": OFFSET,
    # Rows stay in Spark's format from batch to file; the default merger converts them to Avro.
    "hoodie.write.record.merge.custom.implementation.classes": (
        "org.apache.hudi.DefaultSparkRecordMerger"
    ),
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.combine.before.insert": "false",
    # A tenth less CPU than the default handle when whole files are rewritten.
    "hoodie.write.merge.handle.class": "org.apache.hudi.io.HoodieWriteMergeHandle",
    "hoodie.write.set.null.for.missing.columns": "true",
    "hoodie.datasource.write.reconcile.schema": "false",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.partitionpath.urlencode": "true",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.populate.meta.fields": "true",
    # Either encoding works, as long as it stays the same for a table's life.
    "hoodie.write.complex.keygen.new.encoding": "false",
    "hoodie.write.complex.keygen.validation.enable": "false",
    # Listing files is cheaper than 0.6 CPU seconds per commit for a metadata table.
    "hoodie.metadata.enable": "false",
}
"""Settings on which the correctness of a table depends."""

_DELETES = {"hoodie.payload.delete.field": OP, "hoodie.payload.delete.marker": "d"}

_DEFAULTS = {
    "hoodie.parquet.compression.codec": "zstd",
    # Parquet also gives up a column's dictionary above this size. Keys and numbers differ in every
    # row: at the default of 1 MiB, their dictionaries took a tenth of a copy's time.
    "hoodie.parquet.page.size": str(128 * 1024),
    "hoodie.bulkinsert.sort.mode": "NONE",
    "hoodie.datasource.write.row.writer.enable": "true",
    "hoodie.parquet.small.file.limit": str(FILL_BELOW_BYTES),
    "hoodie.parquet.max.file.size": str(UPDATED_FILE_BYTES),
    # Without a large commit to learn from, a new file gets as many rows as the largest size has
    # rows of this size. The default of 1,024 bytes would make many small files.
    "hoodie.copyonwrite.record.size.estimate": "128",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
}
"""Settings that change costs, not results. A table's ``hudi:`` may change them."""

NO_REPEATED_TASKS = {"hoodie.fail.job.on.duplicate.data.file.detection": "true"}
"""Hudi's setting that fails a commit if Spark repeated a task that had begun a data file.

By default, Hudi deletes the files of a task's other tries before it commits. A try that still runs
may add its file later, and readers see each file of a completed commit. Readers never see files of
a failed commit.
"""

_OWNED = (
    "hoodie.table.",
    "hoodie.fail.job.",
    "hoodie.datasource.write.operation",
    "hoodie.datasource.write.recordkey.",
    "hoodie.datasource.write.partitionpath.",
    "hoodie.datasource.write.keygenerator.",
    "hoodie.datasource.write.payload.",
    "hoodie.datasource.write.insert.",
    "hoodie.datasource.write.record.merge",
    "hoodie.datasource.write.schema.",
    "hoodie.datasource.compaction.",
    "hoodie.datasource.clustering.",
    "hoodie.base.path",
    "hoodie.bloom.index.update.",
    "hoodie.simple.index.update.",
    "hoodie.bucket.",
    "hoodie.index.type",
    "hoodie.index.bucket.",
    "hoodie.payload.",
    "hoodie.record.",
    "hoodie.write.record.merge",
    "hoodie.write.lock.",
    "hoodie.write.concurrency.",
    "hoodie.write.handle.",
    "hoodie.write.concat.",
    "hoodie.combine.",
    "hoodie.merge.allow.",
    "hoodie.compact.",
    "hoodie.log.compaction.",
    "hoodie.schema.on.read.",
    "hoodie.avro.schema.",
    "hoodie.clean.async",
    "hoodie.clean.automatic",
    "hoodie.clean.policy",
    "hoodie.clean.commits.",
    "hoodie.clean.hours.",
    "hoodie.clean.fileversions.",
    "hoodie.clean.trigger.",
    "hoodie.cleaner.",
    "hoodie.keep.",
    "hoodie.archive.async",
    "hoodie.archive.automatic",
    "hoodie.clustering.async.",
    "hoodie.clustering.schedule.",
    "hoodie.clustering.updates.",
    "hoodie.clustering.rollback.",
    "hoodie.fail.writes.",
    # Without filters, a bloom index finds no row. Another type of times cuts their microseconds.
    "hoodie.parquet.bloom.filter.",
    "hoodie.parquet.outputtimestamptype",
    "hoodie.parquet.writelegacyformat.",
    "hoodie.partition.ttl.",
    "hoodie.write.can.ignore.",
    "hoodie.rollback.",
    "hoodie.heartbeat.",
    "hoodie.client.heartbeat.",
)
"""Prefixes of Hudi's settings that a table's ``hudi:`` may not have. This module or other settings
of the table decide the values of these settings."""

_SECRET = re.compile(r"passw|secret|token|credential|access.?key|private.?key", re.IGNORECASE)


def table_options(
    layout: LakeLayout, index: IndexLayout, overrides: Mapping[str, str], *, operation: str
) -> dict[str, str]:
    """Return all of Hudi's options for one write.

    Args:
        layout: The table's columns, key and partitions.
        index: The index by which Hudi finds rows.
        overrides: The table's ``hudi`` settings, as :func:`check_overrides` returns them.
        operation: Hudi's name of the write operation.
    """
    table = layout.schema.table
    return {
        **_DEFAULTS,
        # A delete is a row of an upsert, marked in the column OP. In soft delete mode, Hudi must
        # not treat such rows as deletes.
        **({} if layout.soft_delete else _DELETES),
        **service_options(
            clustered=not index.is_bucket,
            sort_columns=layout.record_key,
        ),
        **index.filter_options,
        **({"hoodie.parquet.max.file.size": str(LARGE_FILE_BYTES)} if layout.is_log else {}),
        # Else each task of a copy keeps a file open for each partition that it has met, and rows
        # lie in no order of time.
        **({"hoodie.bulkinsert.sort.mode": "PARTITION_SORT"} if layout.derived else {}),
        **overrides,
        **_FIXED,
        **index.options(global_index=layout.moves_partitions),
        # A batch has one row per key, so there is nothing to combine. But Hudi keeps the ordering
        # value only with this setting, and a global index compares that value.
        "hoodie.combine.before.upsert": str(layout.moves_partitions).lower(),
        "hoodie.table.name": re.sub(r"\W", "_", f"{table.schema}_{table.name}"),
        "hoodie.datasource.write.operation": operation,
        "hoodie.datasource.write.recordkey.field": ",".join(layout.record_key),
        "hoodie.datasource.write.partitionpath.field": ",".join(layout.partition_columns),
        "hoodie.datasource.write.keygenerator.class": layout.key_generator,
    }


def require_keyed(schema: TableSchema, settings: TableSettings) -> None:
    """Refuse a lake table without a key, unless the settings make it an append table.

    Raises:
        SchemaError: The table has no key, and its settings do not have ``mode: append``.
    """
    if not schema.key and not settings.appends:
        raise SchemaError(
            f"table {schema.table} has no key, and mode: upsert replaces rows by key",
            remedy="Set key_columns to columns that are unique and not null. Or set mode: append"
            " if the table's rows are never updated or deleted.",
            table=schema.table,
        )


def check_overrides(table: TableId, overrides: Mapping[str, object]) -> dict[str, str]:
    """Check the ``hudi`` settings of a lake table, and return these settings as strings.

    Raises:
        ConfigError: A setting would break the lake's guarantees, is not a setting of Hudi, has a
            name like that of a secret, or has an invalid value.
    """
    for key, value in overrides.items():
        if not key.startswith("hoodie."):
            reason, remedy = "it is not a Hudi setting", "Settings of Hudi begin with hoodie."
        elif _SECRET.search(key):
            reason = "Hudi writes its settings to logs and to the table's own files"
            remedy = "Give credentials of the lake through lake.hadoop or the environment."
        elif key in _FIXED or key.startswith(_OWNED):
            reason = "the table's correctness depends on it"
            remedy = (
                "Remove it; key_columns, partition_by, delete_mode, index, buckets and "
                "readers_keep are settings of the table."
            )
        elif key == CLUSTERING_KEY and not str(value).isdecimal():
            reason, remedy = f"{value} is not a number of commits", "Give a whole number."
        elif key == CLUSTERING_KEY and int(str(value)) > MOST_BETWEEN_CLUSTERINGS:
            reason = "that many commits would stay in the timeline, which every commit reads"
            remedy = (
                f"Give {MOST_BETWEEN_CLUSTERINGS:,} at most; to merge no files at all, set"
                " hoodie.clustering.plan.strategy.small.file.limit: 0."
            )
        else:
            continue
        raise ConfigError(
            f"hudi.{key} of table {table} is refused: {reason}",
            remedy=remedy,
            table=table,
            field=f"hudi.{key}",
        )
    return {key: str(value) for key, value in overrides.items()}
