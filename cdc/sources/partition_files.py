"""The protocol of a partitioned table's files, for sources whose log lacks some of its changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from schemas.table import TableId


class PartitionFiles(Protocol):
    """The files of a table's partitions, which show changes of rows that send no event.

    ATTACH PARTITION can add rows, and TRUNCATE of a partition removes rows, without an event.
    A partition is identified by its number in the fingerprint.
    """

    def empty(self, partitions: Collection[int]) -> frozenset[int]:
        """Return the partitions that are empty and, by the server's statistics, never had a row."""

    def truncated(self, table: TableId, files: Mapping[int, int], since: str) -> frozenset[int]:
        """Return the partitions that a TRUNCATE could have emptied since a read of the catalog.

        Such a partition has a new file since that read, and no row from before the read.

        Args:
            table: The table.
            files: Each partition's file at that read, by partition.
            since: At that read, all transactions below this id had ended; empty if it is unknown.
        """

    def written_together(self, partitions: Collection[int]) -> int | None:
        """Return the one transaction that last wrote these partitions' catalog rows, or None.

        TRUNCATE of the root writes them all in one transaction, VACUUM FULL writes each in its own.
        """
