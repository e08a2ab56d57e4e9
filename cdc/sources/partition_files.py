"""The protocol by which the files of partitions reveal changes that have no event."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from schemas.table import TableId


class PartitionFiles(Protocol):
    """Compares the files of a source table's partitions to find changes that have no event.

    Such changes are ATTACH PARTITION, which can add rows, and TRUNCATE of a partition.
    A partition is identified by its number in the fingerprint.
    """

    def empty(self, partitions: Collection[int]) -> frozenset[int]:
        """Return the partitions that have no row and, by the source's statistics, never had one."""

    def truncated(self, table: TableId, files: Mapping[int, int], since: str) -> frozenset[int]:
        """Return the source's partitions that a TRUNCATE could have emptied since an earlier look.

        Since that look at the catalog, such a partition has got a new file. It has no row that was
        written before the look.

        Args:
            table: The table.
            files: Each partition's file at that look, by partition.
            since: A transaction id: when that look was taken, every transaction with a lower id had
                ended. Empty if no such id is known.
        """

    def written_together(self, partitions: Collection[int]) -> int | None:
        """Return the id of the transaction that last wrote the partitions in the source's catalog.

        The result is None if several transactions wrote the partitions. TRUNCATE of the root writes
        all partitions in one transaction. VACUUM FULL writes each partition in a transaction of its
        own.
        """
