"""The protocol that cuts a source table into ranges of its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cdc.sources.source_facts import Boundaries, SourceTable, TableSize


class KeyRanges(Protocol):
    """Cuts a source table into ranges of its key that are about equal in size."""

    def size(self, table: SourceTable) -> TableSize:
        """Return an estimate of the source table's current number of rows and bytes."""

    def key_order(self, table: SourceTable, key: Sequence[str]) -> str | None:
        """Return the versions of the libraries by which the source sorts a key's text.

        If the versions change between the reads of two ranges, the ranges together can lack rows,
        or contain rows twice. The result is empty if no library sorts the key. The result is None
        if an index can sort the key differently from the server: ranges can then lack or repeat
        rows even if no version changes.
        """

    def sample_boundaries(
        self,
        table: SourceTable,
        key: Sequence[str],
        chunks: int,
        *,
        size: TableSize | None = None,
    ) -> Boundaries:
        """Return keys that cut the source table into about ``chunks`` ranges of about equal size.

        Whatever the keys are, the ranges are disjoint and cover the table. So the keys need not be
        read under the copy's view. The keys are read from the replica if the source has one.
        """
