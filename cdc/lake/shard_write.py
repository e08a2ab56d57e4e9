"""What shards want to commit to the table that they share, and how that table looks then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cdc.errors import ConfigError
from cdc.lake.commit import CommitRecord, ShardAccount, SharedState
from schemas.errors import SchemaError
from schemas.table import Column, Shard, TableId, TableSchema
from schemas.widening import merged_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc.config import TableSettings
    from cdc.lake.guard import Guard
    from cdc.lake.index import SnapshotSize
    from cdc.lake.timeline import Committed


@dataclass
class ShardWrite:
    """What one shard wants to commit.

    Args:
        shard: The shard.
        schema: Its columns as the lake has them, without the shard column.
        settings: The table's settings.
        rows: Meta and source columns; None commits its record alone.
        commit: What the commit says about the shard; None takes the shard out of the table.
        guard: Called under the commit, with the shard's own commits; raises to refuse it.
        replaces: Whether the rows take the place of all that the shard has.
        size: What it brings, which decides the index of a table that is not there yet.
    """

    shard: Shard
    schema: TableSchema
    settings: TableSettings
    rows: DataFrame | None
    commit: CommitRecord | None
    guard: Guard
    replaces: bool = False
    size: SnapshotSize | None = None
    instant: str | None = field(default=None, init=False)
    error: Exception | None = field(default=None, init=False)

    @property
    def done(self) -> bool:
        """Whether it was committed or refused."""
        return self.instant is not None or self.error is not None


def carried(latest: Committed | None) -> dict[str, ShardAccount]:
    """The shards' own accounts as the next commit carries them along."""
    if latest is None:
        return {}
    return {
        name: replace(one, instant=one.instant or latest.instant)
        for name, one in latest.record.shards.items()
    }


def record_of(
    wanted: Sequence[ShardWrite],
    entries: Mapping[str, ShardAccount],
    types: Mapping[str, str],
) -> CommitRecord:
    """The commit of what some shards want, which carries the others' accounts along."""
    shards = dict(entries)
    for one in wanted:
        shards.pop(one.shard.name, None)
        if one.commit is not None:
            shards[one.shard.name] = ShardAccount(one.commit.to_json(), one.settings.readers_keep_s)
    first = wanted[0]
    return CommitRecord(
        kind="run",
        table=_table(first.shard),
        attempt=first.commit.attempt if first.commit is not None else "",
        run_id=first.commit.run_id if first.commit is not None else None,
        shared=SharedState(dict(types), shards),
    )


def types_before(latest: Committed | None) -> dict[str, str]:
    """The shared table's columns as its newest commit has them, without that of the shard."""
    shared = latest.record.shared if latest is not None else None
    return dict(shared.types) if shared is not None else {}


def types_of(before: Mapping[str, str], wanted: Sequence[ShardWrite]) -> dict[str, str]:
    """The shared table's columns: those that it has, and those of the shards, as wide as any.

    Raises:
        SchemaError: A column of a shard does not go with the table's.
    """
    columns = (
        (one.shard.name, [(column.name, column.lake_type) for column in one.schema.columns])
        for one in wanted
    )
    return merged_types([("that came before", before.items()), *columns])


def require_one_layout(wanted: Sequence[ShardWrite]) -> None:
    """Refuse to write shards together whose settings lay rows out in different ways.

    Raises:
        ConfigError: They do; one that is not as the table is refused by itself.
    """
    first = wanted[0]
    for one in wanted:
        for name in ("delete_mode", "partition_by", "hudi"):
            if getattr(one.settings, name) != getattr(first.settings, name):
                raise ConfigError(
                    f"{name} of shard {one.shard.name} is another than that of shard"
                    f" {first.shard.name} of {first.shard.of}",
                    remedy=f"Set {name} in the section of {first.shard.of} only.",
                    field=name,
                )


def require_one_key(wanted: Sequence[ShardWrite], entries: Mapping[str, ShardAccount]) -> None:
    """Refuse a shard whose rows are found by another key than those of the others.

    Raises:
        SchemaError: Names the two.
    """
    known, key = wanted[0].shard.name, wanted[0].schema.key
    if entries:
        known, account = next(iter(entries.items()))
        key = account.record.require_handoff().key
    for one in wanted:
        if one.schema.key != key and one.commit is not None:
            raise SchemaError(
                f"the key of shard {one.shard.name} is ({', '.join(one.schema.key)}), and that of"
                f" shard {known} is ({', '.join(key)}); all rows of {one.shard.of} have one key",
                remedy="Set key_columns so that all shards have the same.",
                table=one.schema.table,
            )


def settings_of(wanted: Sequence[ShardWrite], entries: Mapping[str, ShardAccount]) -> TableSettings:
    """The settings of the shared table: the shards lie in partitions of their own.

    What readers have open stays for as long as any shard asks for, whoever commits.
    """
    first = wanted[0]
    kept = {name: account.readers_keep_s for name, account in entries.items()}
    kept |= {one.shard.name: one.settings.readers_keep_s for one in wanted}
    by = (first.shard.column, *first.settings.partition_by)
    return first.settings.model_copy(
        update={"partition_by": by, "readers_keep": f"{max(kept.values())}s"}
    )


def schema_before(account: ShardAccount, shard: Shard) -> TableSchema:
    """A shard's columns as its last commit left them."""
    return account.record.require_handoff().lake_schema(_table(shard))


def schema_of(wanted: ShardWrite, types: Mapping[str, str]) -> TableSchema:
    """The shared table's columns: the shard's name first, then those of all shards."""
    shard = wanted.shard
    columns = (Column(name, kind, kind) for name, kind in types.items())
    return TableSchema(
        _table(shard),
        (Column(shard.column, "text", "string", nullable=False), *columns),
        (shard.column, *wanted.schema.key),
    )


def _table(shard: Shard) -> TableId:
    """How errors and Hudi's own properties name a shared table."""
    schema, _, name = shard.of.rpartition(".")
    return TableId("lake", schema or "shared", name)
