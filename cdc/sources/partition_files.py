"""The protocol for the files of partitions, which show changes that the log lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from schemas.table import TableId


class PartitionFiles(Protocol):
    """Reads the files of a source table's partitions, which show changes that have no event.

    Such changes are ATTACH PARTITION, which can add rows, and TRUNCATE of a partition.
    A partition is identified by its number in the fingerprint.
    """

    def empty(self, partitions: Collection[int]) -> frozenset[int]:
        """Return the source's partitions that are empty and, by statistics, never had a row."""

    def truncated(self, table: TableId, files: Mapping[int, int], since: str) -> frozenset[int]:
        """Return the source's partitions that a TRUNCATE could have emptied since an earlier look.

        Such a partition has a new file since that look at the catalog, and no row from before it.

        Args:
            table: The table.
            files: Each partition's file at that look, by partition.
            since: A transaction id. All transactions below it had ended at that look. Empty if it
                is not known.
        """

    def written_together(self, partitions: Collection[int]) -> int | None:
        """Return the id of the transaction that last wrote the partitions in the source's catalog.

        The result is None if several transactions wrote the partitions. TRUNCATE of the root writes
        all partitions in one transaction. VACUUM FULL writes each partition in a transaction of its
        own.
        """
