"""What a log that has the changes of all tables leaves to nobody: no publication, and no slot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from schemas.table import TableId


class WholeLog:
    """The methods of `cdc.sources.base.Source` that mean nothing to a binlog.

    The server keeps it for as long as it is told to, whoever reads it, and the connector's own list
    says which tables are captured.
    """

    def capture_obstacle(self) -> tuple[str, str] | None:
        """None: `checks` has the settings without which nothing can be captured."""
        return None

    def empty_partitions(self, oids: Collection[int]) -> frozenset[int]:
        """None: partitions come and go by statements that the log tells."""
        return frozenset()

    def truncated_partitions(
        self, table: TableId, files: Mapping[int, int], since: str
    ) -> frozenset[int]:
        """None, likewise."""
        return frozenset()

    def add_to_publication(self, publication: str, tables: Sequence[TableId]) -> list[TableId]:
        """None: the binlog has all tables, and the connector's list names those that travel."""
        return []

    remove_from_publication = add_to_publication

    def published_tables(self, publication: str) -> list[TableId]:
        """None, likewise."""
        return []

    def drop_publication(self, publication: str) -> None:
        """There is none."""

    def ensure_slot(self, slot: str) -> bool:
        """Nothing to create: the binlog is kept for as long as the server is told to."""
        return False

    def has_slot(self, slot: str) -> bool:
        """There is the log, which no capture made."""
        return True

    def drop_slot(self, slot: str, *, timeout_s: float = 30.0) -> bool:
        """There is none."""
        return False
