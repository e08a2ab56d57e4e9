"""A database of MySQL or MariaDB and the product's connections to it, for tests of its reads."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from cdc.config import MysqlSourceConfig, TableSettings, parse
from cdc.sources.mysql import boundaries, catalog
from cdc.sources.mysql.connection import Connections
from cdc.sources.selection import lake_schema
from cdc.sources.source_facts import KeyRange, SourceTable, TableSize
from schemas.table import TableId, TableSchema
from tests.integration.rigs.mysql import MysqlDatabase


@dataclass(frozen=True)
class Lab:
    """One database, the product's connections to it, and a folder for the test."""

    database: MysqlDatabase
    connections: Connections
    folder: Path

    @property
    def kind(self) -> str:
        return self.database.kind

    def table(self, name: str) -> SourceTable:
        with self.connections.open("admin") as session:
            return catalog.read_table(session, TableId("shop", self.database.name, name))

    def make(self, name: str, *statements: str) -> SourceTable:
        with self.database.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        self.database.catch_up()
        return self.table(name)

    def shows(self, marker: UUID) -> bool:
        """Whether a new statement on the replica sees the marker."""
        with self.connections.open("snapshot", on_replica=True) as session:
            query = "SELECT 1 FROM tributary.marker WHERE id = %s"
            return bool(session.rows(query, (str(marker),)))

    def ranges(self, table: SourceTable, chunks: int, *, rows: int) -> list[KeyRange]:
        with self.connections.open("snapshot", on_replica=True) as session:
            found = boundaries.sample_boundaries(
                session, table, table.primary_key, chunks, TableSize(rows, rows * 100)
            )
        points = [None, *found.points, None]
        return [KeyRange(*ends) for ends in itertools.pairwise(points)]


@pytest.fixture
def lab(database: MysqlDatabase, tmp_path: Path) -> Lab:
    text = database.stack.config_text(
        database=database.name, kinds=[database.kind], folder=tmp_path
    )
    ((name, config),) = parse(text).sources.items()
    assert isinstance(config, MysqlSourceConfig)
    return Lab(database, Connections(name, config), tmp_path)


def as_schema(table: SourceTable) -> TableSchema:
    return lake_schema(table, TableSettings())
