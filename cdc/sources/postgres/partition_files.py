"""What files show of partitions that come, or lose their rows, without an event."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cdc.sources.postgres import fingerprint
from cdc.sources.postgres.connection import Connections
from schemas.table import TableId


class PartitionFiles:
    """The files of partitions, which are named by their object ids; see `cdc.sources.base`.

    Args:
        connections: Opens sessions.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def empty(self, partitions: Collection[int]) -> frozenset[int]:
        """The partitions whose file is empty now."""
        with self._connections.open("admin") as session:
            return fingerprint.empty_files(session, partitions)

    def truncated(self, table: TableId, files: Mapping[int, int], since: str) -> frozenset[int]:
        """The partitions with a new file since a reading of the catalog and no row from before."""
        with self._connections.open("snapshot") as session:
            return fingerprint.truncated(session, table, files, since)

    def written_together(self, partitions: Collection[int]) -> int | None:
        """The one transaction that wrote the catalog rows of these partitions last, or None."""
        with self._connections.open("admin") as session:
            return fingerprint.written_together(session, partitions)
