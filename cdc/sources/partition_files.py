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

        Such a partition has a new file since that read, and no row from before the read.

        Args:
            table: The table.
            files: Each partition's file at that read, by partition.
            since: An id below which all transactions had ended at that read; empty if unknown.
        """

    def written_together(self, partitions: Collection[int]) -> int | None:
        """Return the one transaction that last wrote these partitions in the source's catalog.

        None if several transactions wrote them. TRUNCATE of the root writes all of them in one
        transaction. VACUUM FULL writes each in a transaction of its own.
        """
