"""A write of one shard's rows to the shared table, and the schema and settings for this write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cdc.config.partitions import PartitionField
from cdc.errors import ConfigError, LakeError, lake_table_again, onboard_shards_again
from cdc.lake.commit import CommitRecord, ShardAccount, SharedState
from schemas.errors import SchemaError
from schemas.table import Column, Shard, TableId, TableSchema
from schemas.widening import merged_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc.config import TableSettings
    from cdc.lake.guard import Guard
    from cdc.lake.index import SnapshotSize
    from cdc.lake.restored_files import WholeCommits
    from cdc.lake.timeline import Committed, Timeline


@dataclass
class ShardWrite:
    """One shard's request for a commit in the shared lake table.

    Args:
        shard: The shard, one of several source tables that share the lake table.
        schema: The shard's columns in the lake, without the shard column.
        settings: The settings of the shard's source table.
        rows: The rows to write, with meta and source columns; None for a commit without rows.
        commit: The shard's new commit record; None removes the shard from the shared table.
        guard: Called with the shard's timeline just before the commit completes. It raises an error
            to refuse the commit.
        replaces: Whether the rows replace all rows of the shard.
        size: Planned size of the shard's copy. If this write creates the shared table, the size
            decides Hudi's index. None if the shared table must exist already.
        known: Instant of the shard's newest commit that the state store knows. None if there is no
            such commit, or if the caller has already compared this instant with the lake.
    """

    shard: Shard
    schema: TableSchema
    settings: TableSettings
    rows: DataFrame | None
    commit: CommitRecord | None
    guard: Guard
    replaces: bool = False
    size: SnapshotSize | None = None
    known: str | None = None
    instant: str | None = field(default=None, init=False)
    error: Exception | None = field(default=None, init=False)

    @property
    def done(self) -> bool:
        """Whether the shard's request was committed or has failed."""
        return self.instant is not None or self.error is not None


def carried(latest: Committed | None) -> dict[str, ShardAccount]:
    """Return the accounts of all shards in a shared table's newest commit, by shard name.

    A shard's account consists of the shard's newest commit record and the instant of the commit
    that introduced this record. Each later commit of the shared table repeats the account.
    """
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
    """Return the record for a commit that carries out these shards' requests.

    Args:
        wanted: The requests.
        entries: The accounts (last commit records) of all shards before the commit. The result
            repeats the accounts of the shards without a request.
        types: For each column of the shared table, the Spark type.
    """
    shards = dict(entries)
    for one in wanted:
        shards.pop(one.shard.name, None)
        if one.commit is not None:
            shards[one.shard.name] = ShardAccount(one.commit.to_json(), one.settings.readers_keep_s)
    first = wanted[0]
    return CommitRecord(
        kind="run",
        table=_shared_table_id(first.shard),
        attempt=first.commit.attempt if first.commit is not None else "",
        run_id=first.commit.run_id if first.commit is not None else None,
        shared=SharedState(dict(types), shards),
    )


def types_before(latest: Committed | None) -> dict[str, str]:
    """Return each column's Spark type in the shared table's newest commit.

    The shard column is left out.
    """
    shared = latest.record.shared if latest is not None else None
    return dict(shared.types) if shared is not None else {}


def types_of(before: Mapping[str, str], wanted: Sequence[ShardWrite]) -> dict[str, str]:
    """Return, for each column, the widest of its types in the shared table and in the requests.

    Raises:
        SchemaError: Two types of a column cannot be merged.
    """
    columns = (
        (one.shard.name, [(column.name, column.lake_type) for column in one.schema.columns])
        for one in wanted
    )
    return merged_types([("that came before", before.items()), *columns])


def require_one_layout(wanted: Sequence[ShardWrite]) -> None:
    """Refuse to write shards together if their settings define different row layouts.

    Raises:
        ConfigError: Two of these shards have different settings for the row layout.
    """
    first = wanted[0]
    for one in wanted:
        for name in ("delete_mode", "partition_by", "hudi"):
            if getattr(one.settings, name) != getattr(first.settings, name):
                raise ConfigError(
                    f"{name} of shard {one.shard.name} differs from that of shard"
                    f" {first.shard.name} of {first.shard.of}",
                    remedy=f"Set {name} in the section of {first.shard.of} only.",
                    field=name,
                )


def require_one_key(wanted: Sequence[ShardWrite], entries: Mapping[str, ShardAccount]) -> None:
    """Refuse the requests if the shards of the table do not all have the same key.

    Raises:
        SchemaError: The keys differ. The error names two shards and their keys.
    """
    known, key = wanted[0].shard.name, wanted[0].schema.key
    if entries:
        known, account = next(iter(entries.items()))
        key = account.record.require_handoff().key
    for one in wanted:
        if one.schema.key != key and one.commit is not None:
            raise SchemaError(
                f"the key of shard {one.shard.name} is ({', '.join(one.schema.key)}), and that of"
                f" shard {known} is ({', '.join(key)}); all shards of {one.shard.of} need the same",
                remedy="Set key_columns so that all shards have the same key.",
                table=one.schema.table,
            )


def require_whole(
    whole: WholeCommits,
    spark: SparkSession,
    timeline: Timeline,
    wanted: Sequence[ShardWrite],
    entries: Mapping[str, ShardAccount],
) -> None:
    """Refuse the requests if the shared table's files differ from its commits.

    Args:
        whole: The commits whose files this process has checked.
        spark: The session whose file systems are used.
        timeline: The shared table's commits.
        wanted: The requests.
        entries: The accounts of all shards in the newest commit.

    Raises:
        LakeError: The files and the commits differ, or cannot be read.
    """
    at, shared = {name: one.instant or "" for name, one in entries.items()}, wanted[0].shard.of
    whole.require(
        spark,
        timeline,
        shared,
        otherwise=onboard_shards_again(shared),
        lacks_commits=any((one.known or "") > at.get(one.shard.name, "") for one in wanted),
    )


def settings_of(wanted: Sequence[ShardWrite], entries: Mapping[str, ShardAccount]) -> TableSettings:
    """Return the settings of the shared table.

    The shard column is the table's first partition column. ``readers_keep``, the time for which old
    files are retained for readers, is the longest time of all shards.
    """
    first = wanted[0]
    kept = {name: account.readers_keep_s for name, account in entries.items()}
    kept |= {one.shard.name: one.settings.readers_keep_s for one in wanted}
    by = (PartitionField(column=first.shard.column), *first.settings.partition_by)
    return first.settings.model_copy(
        update={"partition_by": by, "readers_keep": f"{max(kept.values())}s"}
    )


def schema_before(account: ShardAccount, shard: Shard) -> TableSchema:
    """Return a shard's columns as of the shard's last commit to the lake."""
    return account.record.require_handoff().lake_schema(_shared_table_id(shard))


def schema_of(wanted: ShardWrite, types: Mapping[str, str]) -> TableSchema:
    """Return the shared table's columns: the shard column first, then the columns of all shards."""
    shard = wanted.shard
    columns = (Column(name, kind, kind) for name, kind in types.items())
    return TableSchema(
        _shared_table_id(shard),
        (Column(shard.column, "text", "string", nullable=False), *columns),
        (shard.column, *wanted.schema.key),
    )


def _shared_table_id(shard: Shard) -> TableId:
    """Return the table id of a shard's shared lake table, for its commits and its schema."""
    schema, _, name = shard.of.rpartition(".")
    return TableId("lake", schema or "shared", name)


def not_there(wanted: ShardWrite, path: str) -> LakeError:
    """Return the error for a request to write to a shared table whose files are gone."""
    return LakeError(
        f"there is no lake table at {path}, which shard {wanted.shard.name} of"
        f" {wanted.shard.of} was written to",
        remedy=f"Restore it; or {lake_table_again(wanted.shard.of)}.",
        path=path,
    )
