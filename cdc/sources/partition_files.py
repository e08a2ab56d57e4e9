"""The protocol by which files of partitions are compared to find changes that have no event."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from schemas.table import TableId


class PartitionFiles(Protocol):
    """Compares the files of a source table's partitions to find changes that have no event.

    Such changes are ATTACH PARTITION, which can add rows, and TRUNCATE of a partition.
    A partition is identified by its number in the table's fingerprint (facts of the catalog).
    """

    def empty(self, partitions: Collection[int]) -> frozenset[int]:
        """Return the partitions that have no row and, by the source's statistics, never had one."""

    def truncated(self, table: TableId, files: Mapping[int, int], since: str) -> frozenset[int]:
        """Return the source's partitions that a TRUNCATE could have emptied since an earlier look.

        A look is one reading of the catalog. A returned partition has had a new file since the
        earlier look, and has no row from before that look.

        Args:
            table: The table.
            files: The file number of each partition at the earlier look, by the partition's number.
            since: A transaction id. When the earlier look took place, every transaction with a
                lower id had ended. Empty if no such id is known.
        """

    def written_together(self, partitions: Collection[int]) -> int | None:
        """Return the id of the transaction that last wrote the catalog rows of all the partitions.

        The result is None if no single transaction wrote all of these rows. TRUNCATE of the root
        writes the catalog rows of all partitions in one transaction. VACUUM FULL uses a transaction
        for each partition.
        """
