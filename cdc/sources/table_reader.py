"""The protocol by which tables are read from a source's catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from cdc.sources.named_types import TypeReader
from cdc.sources.partition_files import PartitionFiles
from cdc.sources.source_facts import Planned, SourceTable, TableStats
from schemas.fingerprint import Fingerprint
from schemas.table import Column, TableId, TableSchema

if TYPE_CHECKING:
    from cdc.config import TableSettings


class TableReader(TypeReader, Protocol):
    """Reads tables from a source's catalog, and derives their columns in the lake."""

    @property
    def name(self) -> str:
        """Key of the source in ``tributary.yaml``."""

    def tables(self) -> list[TableStats]:
        """Return all user tables of the source except Tributary's own tables, sorted by name.

        The server opens or measures each of these tables. If the names suffice, `table_names` is
        much cheaper.
        """

    def table_names(
        self, of_schema: Callable[[str], bool] | None = None, *, partitions: bool = True
    ) -> list[TableId]:
        """Return the names of the tables that `tables` returns. The server opens none of them.

        Args:
            of_schema: Whether tables of the schema with the given name are wanted (on MySQL and
                MariaDB, of the database); None for all schemas.
            partitions: Whether to return partitions that are tables themselves, as on PostgreSQL.
        """

    def total_bytes(self, tables: Collection[TableId]) -> dict[TableId, int]:
        """Return the bytes on disk of each of the given tables that exists, as in `tables`.

        The server opens or measures no other table.
        """

    def table(self, table: TableId) -> SourceTable:
        """Return the table in the catalog of the source's primary.

        Raises:
            SourceError: There is no such table.
        """

    def reused_sessions(self) -> AbstractContextManager[None]:
        """Return a block in which looks at many tables use each other's sessions.

        Such looks are `table`, `largest_row` and `key_obstacle`, the checks of an exact view, of a
        table's rights and of its capture. Without the block, each of them can log in by itself.
        """

    def columns(self, table: SourceTable, settings: TableSettings) -> tuple[Column, ...]:
        """Return a source table's columns in the lake, even if the table has no usable key.

        Raises:
            UnsupportedTypeError: A replicated column has an unsupported type.
            SchemaError: The lake does not allow a column's name.
        """

    def schema(self, table: SourceTable, settings: TableSettings) -> TableSchema:
        """Return the source table's lake schema: the replicated columns and the record key.

        Raises:
            UnsupportedTypeError: A replicated column has an unsupported type.
            SchemaError: There is no usable key in ``mode: upsert``, or the lake does not allow a
                column's name.
        """

    def planned(self, table: SourceTable, fingerprint: Fingerprint, ddl: str) -> Planned:
        """Return the source table as it would be after the SQL in ``ddl``, which is not executed.

        Raises:
            DdlError: A statement cannot be parsed, or does not fit the table.
        """

    def largest_row(self, table: SourceTable) -> int | None:
        """Return the size in bytes of the largest sampled row; None if the sample is empty.

        Raises:
            SourceError: The sample takes too long, or the table cannot be read.
        """

    def key_obstacle(self, table: SourceTable, key: Sequence[str]) -> tuple[str, str] | None:
        """Return why the lake cannot represent some values of a key, and the remedy.

        The result is None if the lake can represent every value of the key.

        Raises:
            SourceError: The check takes too long, or the table cannot be read.
        """

    @property
    def partition_files(self) -> PartitionFiles | None:
        """Detects DDL on partitions by the partitions' files; None if the source's log has DDL."""
