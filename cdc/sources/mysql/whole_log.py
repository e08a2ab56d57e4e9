"""The methods for publications and slots, which a log with the changes of all tables lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from schemas.table import TableId


class WholeLog:
    """The methods of `cdc.sources.base.Source` that do nothing for a binlog.

    The server keeps the binlog for a configured time, whether or not it is read. The connector's
    own list determines which tables are captured.
    """

    def empty_partitions(self, oids: Collection[int]) -> frozenset[int]:
        """None of them: partitions come and go by statements that the log contains."""
        return frozenset()

    def truncated_partitions(
        self, table: TableId, files: Mapping[int, int], since: str
    ) -> frozenset[int]:
        """None of them, for the same reason."""
        return frozenset()

    def written_together(self, oids: Collection[int]) -> bool:
        """False, for the same reason."""
        return False

    def add_to_publication(self, publication: str, tables: Sequence[TableId]) -> list[TableId]:
        """No tables: the binlog contains all, and the connector's list selects captured ones."""
        return []

    remove_from_publication = add_to_publication

    def published_tables(self, publication: str) -> list[TableId]:
        """No tables, for the same reason."""
        return []

    def drop_publication(self, publication: str) -> None:
        """Do nothing, since there is no publication."""

    def ensure_slot(self, slot: str) -> bool:
        """False: there is nothing to create, since the server keeps the binlog by its settings."""
        return False

    def has_slot(self, slot: str) -> bool:
        """True: the log is there without a slot."""
        return True

    def drop_slot(self, slot: str, *, timeout_s: float = 30.0) -> bool:
        """False: there is no slot."""
        return False
