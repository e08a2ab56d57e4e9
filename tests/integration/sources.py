"""The source of a test's own database, as the product opens it."""

from __future__ import annotations

from typing import Any

import yaml

from cdc.config import PostgresSourceConfig
from cdc.sources.postgres.source import PostgresSource
from schemas.table import TableId
from tests.integration.conftest import Database


def source_config(database: Database, **changes: Any) -> PostgresSourceConfig:
    """The stack's own source section, for that database, with keys changed."""
    (section,) = yaml.safe_load(database.stack.config_text())["sources"].values()
    for endpoint in ("primary", "replica"):
        section[endpoint]["database"] = database.name
    return PostgresSourceConfig.model_validate({**section, **changes})


def open_source(database: Database, **changes: Any) -> PostgresSource:
    """The source, named as the database."""
    return PostgresSource(database.name, source_config(database, **changes))


def table_id(database: Database, name: str, schema: str = "public") -> TableId:
    """A table of the test's database."""
    return TableId(database.name, schema, name)
