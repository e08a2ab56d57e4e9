"""Keeps a table's name in the catalog pointed at its published generation."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING

from cdc.errors import LeaseHeldError
from cdc.lake.catalog import CatalogEntry, forget, show
from cdc.store.table_state import State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.config import Config
    from cdc.run.context import RunContext
    from cdc.store.table_state import TableRecord

_log = logging.getLogger(__name__)


def keep_name(context: RunContext, record: TableRecord) -> None:
    """Point the table's name in the catalog at its published attempt; do nothing without a catalog.

    Raises:
        LakeError: The metastore refuses or cannot be reached, or the name belongs to another table.
    """
    entry, catalog = _entry(context.config, record), context.config.catalog
    if entry is not None and catalog is not None:
        with nullcontext() if record.shard is None else context.shared(entry.path).hold_lease():
            show(context.spark, catalog.metastore, entry)


def follow_name(context: RunContext, record: TableRecord) -> None:
    """Update the table's name in the catalog after a run, unless another process holds the table.

    This function takes the table's lease. Without the lease, it could overwrite the name of a
    generation that another process publishes meanwhile.

    Raises:
        LakeError: As for :func:`keep_name`.
        StateError: The state store cannot be reached.
    """
    if context.config.catalog is None:
        return
    try:
        with context.leases.hold(record.resource):
            now = context.store.newest(record)
            if now.state is State.INCREMENTAL:
                keep_name(context, now)
    except LeaseHeldError as held:
        _log.info("the name of table %s was not checked: %s", record.table, held)


def drop_name(spark: SparkSession, config: Config, record: TableRecord) -> None:
    """Remove the table's name from the catalog; its data stays.

    Raises:
        LakeError: The metastore refuses or cannot be reached, or the name belongs to another table.
    """
    entry = _entry(config, record)
    if entry is not None and config.catalog is not None:
        forget(spark, config.catalog.metastore, entry)


def _entry(config: Config, record: TableRecord) -> CatalogEntry | None:
    shard = record.shard
    name = config.catalog_name(record.table, shard)
    if name is None or record.attempt is None:
        return None
    partition_by = config.table_settings(record.table).partition_by
    return CatalogEntry(
        *name,
        table_base=record.base_path if shard is None else shard.base_path,
        path=record.attempt.path,
        partition_by=partition_by if shard is None else (shard.column, *partition_by),
    )
