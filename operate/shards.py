"""The status of lake tables with shards, and rules for shards.

Shards are source tables that feed one lake table together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cdc.errors import ConfigError
from cdc.store.table_state import State

if TYPE_CHECKING:
    from cdc.store.table_state import TableRecord
    from operate.status import TableStatus
    from schemas.table import Column, Shard, TableId


@dataclass(frozen=True)
class SharedStatus:
    """The status of a lake table that several source tables feed, for ``status``.

    Args:
        name: The lake table's name.
        base_path: The lake table's folder.
        shards: Number of published shards.
        joining: Names of the shards whose first copy is not published yet.
        held_back: Names of the published shards that runs do not keep up to date, each with the
            shard's state.
        watermark: Event time up to which all published shards are complete; None if a published
            shard has no watermark.
        freshness_s: The greatest ``freshness_s`` of the published shards; None if that of one of
            them is not known.
        late: Whether a published shard's ``freshness_s`` is above the smallest freshness target of
            the shards.
    """

    name: str
    base_path: str
    shards: int
    joining: tuple[str, ...]
    held_back: dict[str, str]
    watermark: datetime | None
    freshness_s: float | None
    late: bool

    def to_json(self) -> dict[str, Any]:
        """The shared table's status as plain values."""
        return {
            "name": self.name,
            "base_path": self.base_path,
            "shards": self.shards,
            "joining": list(self.joining),
            "held_back": self.held_back,
            "watermark": self.watermark,
            "freshness_s": self.freshness_s,
            "late": self.late,
        }


def shared_tables(tables: Iterable[TableStatus]) -> tuple[SharedStatus, ...]:
    """Return the status of each shared lake table that has shards among the given tables."""
    found: dict[str, list[tuple[Shard, TableStatus]]] = {}
    for table in tables:
        shard = table.record.shard
        if shard is not None and table.record.state is not State.RETIRED:
            found.setdefault(shard.of, []).append((shard, table))
    return tuple(_shared_status(parts) for _, parts in sorted(found.items()))


def _shared_status(parts: list[tuple[Shard, TableStatus]]) -> SharedStatus:
    """Return a shared lake table's status from its shards' status."""
    first = parts[0][0]
    joining = [shard.name for shard, table in parts if table.record.never_published]
    there = [(shard, table) for shard, table in parts if shard.name not in joining]
    marks = [table.watermark for _, table in there]
    known = [mark for mark in marks if mark is not None]
    whole = bool(known) and len(known) == len(marks)
    ages = [table.freshness_s for _, table in there if table.freshness_s is not None]
    # Without Kafka transactions, a shard without changes has no watermark, but an age.
    freshness = max(ages, default=None) if len(ages) == len(there) else None
    target = min(table.target_s for _, table in parts)
    return SharedStatus(
        name=first.of,
        base_path=first.base_path,
        shards=len(there),
        joining=tuple(joining),
        held_back={
            shard.name: table.record.state.value
            for shard, table in there
            if table.record.state is not State.INCREMENTAL
        },
        watermark=min(known) if whole else None,
        freshness_s=freshness,
        late=any(age > target for age in ages),
    )


def is_beside(record: TableRecord, shard: Shard) -> bool:
    """Whether a record's table feeds the same lake table as a shard whose data is to be removed."""
    known = record.shard
    return known is not None and (known.of, known.base_path) == (shard.of, shard.base_path)


def refuse_shard_column(table: TableId, columns: Iterable[Column], shard: Shard | None) -> None:
    """Refuse to onboard a table with a column that has the name of the shard column.

    Raises:
        ConfigError: The table has such a column.
    """
    if shard is None:
        return
    for column in columns:
        if column.name.lower() == shard.column.lower():
            raise ConfigError(
                f"table {table} has a column {column.name!r}, the name of the shard column of"
                f" {shard.of}",
                remedy=f"Set shard_column of {shard.of} to another name.",
                table=table,
                field="shard_column",
            )
