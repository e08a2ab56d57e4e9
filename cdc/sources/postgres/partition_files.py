"""Compares files of partitions to find changes of rows that have no event."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cdc.sources.postgres import fingerprint
from cdc.sources.postgres.connection import Connections
from schemas.table import TableId


class PostgresPartitionFiles:
    """The files of PostgreSQL partitions, by object id (see `cdc.sources.partition_files`).

    Args:
        connections: Opens sessions.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def empty(self, partitions: Collection[int]) -> frozenset[int]:
        """Return the PostgreSQL partitions that have no row and, by statistics, never had one."""
        with self._connections.open("admin") as session:
            return fingerprint.empty_files(session, partitions)

    def truncated(self, table: TableId, files: Mapping[int, int], since: str) -> frozenset[int]:
        """Return PostgreSQL partitions that a TRUNCATE could have emptied since an earlier look."""
        with self._connections.open("snapshot") as session:
            return fingerprint.truncated(session, table, files, since)

    def written_together(self, partitions: Collection[int]) -> int | None:
        """Return the id of the transaction that last wrote all these partitions' catalog rows.

        The result is None if no single PostgreSQL transaction wrote all of these rows.
        """
        with self._connections.open("admin") as session:
            return fingerprint.written_together(session, partitions)
