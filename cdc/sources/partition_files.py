"""The protocol for the files of partitions, which show changes that the log lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from schemas.table import TableId


class PartitionFiles(Protocol):
    """The files of a source table's partitions, which show changes without an event.

    ATTACH PARTITION can add rows, and TRUNCATE of a partition removes rows, without an event.
    A partition is identified by its number in the fingerprint.
    """

    def empty(self, partitions: Collection[int]) -> frozenset[int]:
        """Return the source's partitions that are empty and, by statistics, never had a row."""

    def truncated(self, table: TableId, files: Mapping[int, int], since: str) -> frozenset[int]:
        """Return the source's partitions that a TRUNCATE could have emptied since a reading.

        Such a partition has a new file since that reading, and no row from before the reading.

        Args:
            table: The table.
            files: Each partition's file at that reading, by partition.
            since: An id below which all transactions had ended at that reading; empty if unknown.
        """

    def written_together(self, partitions: Collection[int]) -> int | None:
        """Return the id of the transaction that last wrote the partitions in the source's catalog.

        The result is None if several transactions wrote the partitions. TRUNCATE of the root writes
        all partitions in one transaction. VACUUM FULL writes each partition in a transaction of its
        own.
        """
