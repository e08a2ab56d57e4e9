"""Keeps the catalog's name of a table on its published generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.lake.catalog import CatalogEntry, forget, show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.config import Config
    from cdc.run.context import RunContext
    from cdc.state import TableRecord


def keep_name(context: RunContext, record: TableRecord) -> None:
    """Let the table's name stand for its attempt, as that is now; nothing without a catalog.

    Raises:
        LakeError: The metastore refuses or cannot be reached, or the name is someone else's.
    """
    entry, catalog = _entry(context.config, record), context.config.catalog
    if entry is not None and catalog is not None:
        show(context.spark, catalog.metastore, entry)


def drop_name(spark: SparkSession, config: Config, record: TableRecord) -> None:
    """Take the table's name out of the catalog; its data stays.

    Raises:
        LakeError: The metastore refuses or cannot be reached, or the name is someone else's.
    """
    entry = _entry(config, record)
    if entry is not None and config.catalog is not None:
        forget(spark, config.catalog.metastore, entry)


def _entry(config: Config, record: TableRecord) -> CatalogEntry | None:
    name = config.catalog_name(record.table)
    if name is None or record.attempt is None:
        return None
    return CatalogEntry(
        *name,
        table_base=record.base_path,
        path=record.attempt.path,
        partition_by=config.table_settings(record.table).partition_by,
    )
