"""The product's source object for a test's own database, and reads through it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import DataFrame, SparkSession

from cdc.config import Config, PostgresSourceConfig, TableSettings
from cdc.debezium import CaptureNames
from cdc.runtime import spark as spark_module
from cdc.runtime.progress import NullProgress
from cdc.sources.base import Source
from cdc.sources.postgres.source import PostgresSource
from cdc.sources.source_facts import KeyRange, SourceTable
from cdc.sources.views import View
from schemas.table import TableId, TableSchema
from tests.integration.rigs.postgres import Database


def source_config(database: Database, **changes: Any) -> PostgresSourceConfig:
    """The stack's source section of the configuration, for this database and with these changes."""
    (section,) = yaml.safe_load(database.stack.config_text())["sources"].values()
    for endpoint in ("primary", "replica"):
        section[endpoint]["database"] = database.name
    return PostgresSourceConfig.model_validate({**section, **changes})


def open_source(database: Database, **changes: Any) -> PostgresSource:
    """Open the source of the database, under the database's name."""
    return PostgresSource(database.name, source_config(database, **changes))


def capture_of(
    source: Source, publication: str = "pub_test", slot: str = "slot_test", *, append: bool = False
) -> Any:
    """The capture of a source, with the given names of publication and slot."""
    settings = TableSettings(mode="append" if append else "upsert")
    return source.capture(
        CaptureNames(
            source=source.name,
            tier=settings.capture_tier,
            publication=publication,
            slot=slot,
            connector=slot,
            topic_prefix=slot,
            kind="postgres",
        )
    )


def table_id(database: Database, name: str, schema: str = "public") -> TableId:
    """A table of the test's database."""
    return TableId(database.name, schema, name)


WHOLE = (KeyRange(),)


@contextmanager
def local_spark(folder: Path) -> Iterator[SparkSession]:
    """A small Spark session that keeps its temporary files in the folder."""
    config = Config.model_validate(
        {
            "sources": {
                "s": {
                    "primary": {"host": "localhost", "database": "s"},
                    "credentials": {"admin": {"user": "admin"}},
                }
            },
            "kafka": {"bootstrap_servers": "x:1", "registry": {"url": "http://localhost:1"}},
            "connect": {"url": "http://localhost:1"},
            "lake": {"url": folder.as_uri()},
            "spark": {
                "master": "local[2]",
                "driver_memory": "1g",
                "conf": {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder)},
            },
        }
    )
    try:
        yield spark_module.session(config, "tributary-tests")
    finally:
        spark_module.stop()


def read(
    spark: SparkSession,
    source: PostgresSource,
    table: SourceTable,
    schema: TableSchema,
    ranges: Sequence[KeyRange] = WHOLE,
    view: View | None = None,
    fetch_size: int = 1000,
) -> DataFrame:
    """The rows of key ranges of a table, read by Spark with the product's queries."""
    query = source.snapshot_query(table, schema, ranges, view=view, fetch_size=fetch_size)
    return spark.read.jdbc(
        query.url, query.table, predicates=list(query.predicates), properties=query.properties
    ).selectExpr(*query.select)


def on_replica(source: PostgresSource) -> None:
    """Wait until the replica shows all that the primary has committed by now."""
    source.wait_for_marker_on_replica(source.write_marker(), timeout_s=60, progress=NullProgress())
