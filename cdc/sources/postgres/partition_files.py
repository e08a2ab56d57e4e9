"""Compares files of partitions to find row changes that no event shows."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cdc.sources.postgres import fingerprint
from cdc.sources.postgres.connection import Connections
from schemas.table import TableId


class PostgresPartitionFiles:
    """The files of PostgreSQL partitions, as a `cdc.sources.partition_files.PartitionFiles`.

    All methods identify a partition by its object id.

    Args:
        connections: Opens sessions.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def empty(self, partitions: Collection[int]) -> frozenset[int]:
        """Return the PostgreSQL partitions that have no row and, by statistics, never had a row."""
        with self._connections.open("admin") as session:
            return fingerprint.empty_files(session, partitions)

    def truncated(self, table: TableId, files: Mapping[int, int], since: str) -> frozenset[int]:
        """Return PostgreSQL partitions that a TRUNCATE could have emptied since an earlier look.

        The earlier look at the catalog found the file numbers in ``files``.
        """
        with self._connections.open("snapshot") as session:
            return fingerprint.truncated(session, table, files, since)

    def written_together(self, partitions: Collection[int]) -> int | None:
        """Return the id of the transaction that last wrote all these partitions' catalog rows.

        The result is None if no single PostgreSQL transaction wrote all of these rows.
        """
        with self._connections.open("admin") as session:
            return fingerprint.written_together(session, partitions)
