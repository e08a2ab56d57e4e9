"""Reads the files of partitions, which show rows that changed without an event."""

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
        """Return the PostgreSQL partitions that are empty and never had a row."""
        with self._connections.open("admin") as session:
            return fingerprint.empty_files(session, partitions)

    def truncated(self, table: TableId, files: Mapping[int, int], since: str) -> frozenset[int]:
        """Return the PostgreSQL partitions that a TRUNCATE could have emptied.

        The TRUNCATE is later than the read of the catalog that has found ``files``.
        """
        with self._connections.open("snapshot") as session:
            return fingerprint.truncated(session, table, files, since)

    def written_together(self, partitions: Collection[int]) -> int | None:
        """Return the id of the transaction that last wrote the PostgreSQL partitions.

        The result is None if several transactions did.
        """
        with self._connections.open("admin") as session:
            return fingerprint.written_together(session, partitions)
