"""The record of a lake commit, which is stored as JSON in the commit's metadata."""

from __future__ import annotations

import base64
import getpass
import socket
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from importlib import metadata
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, PlainValidator, TypeAdapter

from cdc.errors import LakeError
from cdc.lake.handoff import Handoff
from cdc.store.documents import Codec, Part
from cdc.store.table_state import LastRecord
from schemas.table import TableId

COMMIT_PREFIX = "tributary."
"""Prefix of every key that this product puts into a commit's extra metadata."""

COMMIT_KEY = COMMIT_PREFIX + "commit"
"""Key of the commit's record, a JSON document."""

INDEX_KEY = COMMIT_PREFIX + "index"
"""Key of the index with which the commit was written, a JSON document."""


def _tool_version() -> str:
    """Return the version of Tributary, which each commit to the lake records."""
    try:
        return metadata.version("tributary-cdc")
    except metadata.PackageNotFoundError:
        return "unknown"


def _committing_user() -> str:
    """Return the name of the user who commits to the lake, which each commit records."""
    try:
        # A name from the environment can have bytes that are not UTF-8. A JSON document cannot.
        return getpass.getuser().encode("utf-8", "backslashreplace").decode()
    except (KeyError, OSError):  # a container can run under an id without a name
        return "unknown"


@dataclass(frozen=True)
class ShardAccount(Part):
    """One shard's newest commit record, in the metadata of a commit of the shared table.

    A shard is one of several source tables that share a lake table. A commit of one shard
    copies the accounts of the other shards from the previous commit.

    Args:
        text: The shard's newest :class:`CommitRecord`, as JSON. The JSON is parsed only when
            ``record`` is accessed.
        readers_keep_s: How long the shard's readers may keep files open, in seconds.
        instant: Instant of the shard's commit that created the record; None in the metadata of that
            commit itself.
    """

    text: str
    readers_keep_s: int
    instant: str | None = None

    @cached_property
    def record(self) -> CommitRecord:
        """The shard's newest commit record.

        Raises:
            LakeError: The JSON is malformed or of another version.
        """
        return CommitRecord.from_json(self.text, "the account of a shard in a lake commit")


_ACCOUNTS = TypeAdapter(dict[str, ShardAccount])


def _packed_accounts(accounts: Mapping[str, ShardAccount]) -> str:
    """Return the accounts of shards for a lake commit as JSON, compressed and encoded in base64."""
    return base64.b64encode(zlib.compress(_ACCOUNTS.dump_json(dict(accounts)))).decode()


def _unpacked_accounts(text: Any) -> dict[str, ShardAccount]:
    """Return the accounts of shards in a lake commit from the output of `_packed_accounts`."""
    try:
        return _ACCOUNTS.validate_json(zlib.decompress(base64.b64decode(text)))
    except (ValueError, TypeError, zlib.error) as error:
        raise ValueError(f"no packed accounts of shards: {type(error).__name__}") from error


@dataclass(frozen=True)
class SharedState(Part):
    """The state of all shards of a shared table at one commit.

    Args:
        types: Spark SQL types of the table's columns by name, without the shard column.
        accounts: For each shard's name, the newest `ShardAccount`. The commit's metadata have them
            in compressed form, since each commit repeats the accounts of all shards.
    """

    types: Mapping[str, str]
    accounts: Annotated[
        Mapping[str, ShardAccount],
        PlainSerializer(_packed_accounts),
        PlainValidator(_unpacked_accounts),
    ]


@dataclass(frozen=True)
class CommitRecord(Part):
    """The record of one lake commit, which is stored as JSON in the commit's own metadata.

    Args:
        kind: ``chunk`` (copied rows), ``handoff`` (the end of the copy) or ``run`` (changes).
        table: The source table.
        attempt: UUID of the attempt (try at a copy) to which the commit belongs.
        generation: Number of the table's generation (complete image in the lake), from 1.
        start_offsets: The first offset that this commit applies, by partition; for chunks and for
            the handoff, the first offset that any run applies after the copy (O).
        offsets: The next offset to read after this commit, by partition; empty for chunks.
        epochs: The epoch of each partition's leader, read after the partition had reached the
            offset in ``offsets``. If the partition has another epoch later, it has a new leader,
            which can lack records.
        last_records: The last record below ``offsets`` that a run has read, by partition. If the
            topic later has another record at this offset, the topic's log was replaced.
        topic: Name of the table's topic.
        topic_id: UUID of the table's topic. A recreated topic has another UUID.
        position: The position in the source's log up to which the lake has all transactions of the
            table. It is a string that the source can parse.
        watermark: The time in UTC up to which the table is complete. It is derived from the times
            at which the source committed the changes.
        event_time: The newest value, in the rows that runs have written, of the column that the
            setting ``event_time`` names; None if the setting names no usable column, or if no row
            has a time in it yet.
        late: Number of the commit's late rows in each time slot of `cdc.store.completeness.SLOT_S`
            seconds. A row is late if its period, an hour or a day, can already be announced as
            complete. The key is the start of the slot, in seconds since 1970.
        counts: Number of records by operation, including tombstones. ``quarantined`` counts the
            records that were left out. A replay's commit has only ``replayed``, the number of
            quarantined records that the replay applied.
        lacks: Number of records below ``offsets`` that were left out and are still not applied.
        schema_ids: Registry ids of the events' writer schemas.
        last_event: The place in the binlog that the batches of an append table have reached, as a
            string (`cdc.rows.log_rows.ReachedPlace`); None for other tables and for PostgreSQL.
        truncated: Offset of the newest TRUNCATE that the table has applied; None if there is none.
            A replay applies no change from before this offset. If the replay applies a newer
            TRUNCATE from the quarantine, it applies no change from before the newer TRUNCATE.
        chunk_ids: Ids of the chunks in this commit; empty for a handoff and for a run.
        handoff: The handoff document, with the schema that the lake follows; None before the end
            of the copy.
        shared: State of all shards of a shared table; None for any other table.
        run_id: The run that made the commit.
        tool_version: Version of Tributary.
        host: Machine that made the commit.
        user: Operating system user that made the commit.
        format: Version of the JSON's format.
    """

    kind: Literal["chunk", "handoff", "run"]
    table: TableId
    attempt: str
    generation: int = 1
    start_offsets: Mapping[int, int] = field(default_factory=dict)
    offsets: Mapping[int, int] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)
    last_records: Mapping[int, LastRecord] = field(default_factory=dict)
    topic: str | None = None
    topic_id: str | None = None
    position: str | None = None
    watermark: datetime | None = None
    event_time: datetime | None = None
    late: Mapping[int, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    lacks: int = 0
    schema_ids: tuple[int, ...] = ()
    last_event: str | None = None
    truncated: int | None = None
    chunk_ids: tuple[int, ...] = ()
    handoff: Handoff | None = None
    shared: SharedState | None = None
    run_id: str | None = None
    tool_version: str = field(default_factory=_tool_version)
    host: str = field(default_factory=socket.gethostname)
    user: str = field(default_factory=_committing_user)
    format: Literal[1] = 1

    def __post_init__(self) -> None:
        if self.kind not in ("chunk", "handoff", "run"):
            raise ValueError(f"unknown kind of commit: {self.kind!r}")
        if self.watermark is not None and self.watermark.tzinfo is None:
            raise ValueError("the watermark of a commit must be an aware datetime")

    @property
    def shards(self) -> Mapping[str, ShardAccount]:
        """The accounts of a shared table's shards, by name; empty for any other table."""
        return {} if self.shared is None else self.shared.accounts

    def require_handoff(self) -> Handoff:
        """Return the handoff document in this commit.

        Raises:
            LakeError: This commit has no handoff document, although each commit from the end of the
                copy on must have one.
        """
        if self.handoff is None:
            raise LakeError(
                f"a commit of table {self.table} carries no handoff",
                remedy=f"Copy the table again: `tributary bootstrap {self.table}`.",
                table=self.table,
            )
        return self.handoff

    def to_json(self) -> str:
        """Return the record as JSON in one line."""
        return _CODEC.write(self)

    @classmethod
    def from_json(cls, text: str, name: str = "a lake commit's record") -> CommitRecord:
        """Read a record from the JSON of :meth:`to_json`.

        Args:
            text: The JSON.
            name: The name of the JSON in errors.

        Raises:
            LakeError: The JSON is malformed, or of another version.
        """
        return _CODEC.read(text, name, field=COMMIT_KEY)


_CODEC = Codec(
    CommitRecord,
    error=LakeError,
    remedy="Use the version of this tool that wrote the table, or copy the table again.",
)
