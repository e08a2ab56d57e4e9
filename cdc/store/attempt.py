"""The attempt: one try to build one generation (a complete image) of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from cdc.store.documents import Part
from schemas.fingerprint import Fingerprint


@dataclass(frozen=True)
class Chunk(Part):
    """A chunk of a table, as the state store records it.

    The chunk is a range of keys or, in a table without a key, a range of pages.

    Args:
        id: The chunk's number in the copy, from 0. Commits name their chunks by this number.
        lower: The chunk's first key, as the source prints it. For a range of pages, the ``ctid`` at
            which the pages begin. None in the first chunk.
        upper: ``lower`` of the next chunk; None in the last chunk.
        rows_estimate: Estimated number of rows.
        bytes_estimate: Estimated size in the source, in bytes.
    """

    id: int
    lower: tuple[str, ...] | None
    upper: tuple[str, ...] | None
    rows_estimate: int
    bytes_estimate: int


@dataclass(frozen=True)
class CopyView(Part):
    """The first view of an attempt's copy, as the state store records it.

    Args:
        snapshot: Name by which sessions share the view; empty if each session has its own view.
        upper_bound: A log position as text. If sessions share a view on PostgreSQL, the view
            contains no commit after this position. In all other cases, the value is the marker's
            position, and the view can contain commits after this position.
        opened_at: When the view opened, aware UTC.
        on_replica: Whether the copy reads a replica.
        system_identifier: Identity of the cluster; None if the server does not report it.
        timeline: The cluster's timeline; None if the server does not report it.
        split: S as text, the position that the view contains exactly; None if it is not known.
    """

    snapshot: str
    upper_bound: str
    opened_at: datetime
    on_replica: bool
    system_identifier: str | None
    timeline: int | None
    split: str | None = None


@dataclass(frozen=True)
class CopiedServer(Part):
    """The identity of an attempt's primary, as the state store records it.

    Args:
        system_identifier: Identity of the cluster; None if the server does not report it.
        timeline: The cluster's timeline; None if the server does not report it.
    """

    system_identifier: str | None
    timeline: int | None


@dataclass(frozen=True)
class Attempt(Part):
    """One try, recorded in the state store, to build a generation (complete image) of a table.

    Args:
        id: Identity of the attempt; part of its path.
        started_at: When the attempt began, aware UTC.
        path: Base path of the Hudi table of this attempt. No other attempt uses this path.
        topic_id: UUID of the topic when O (``start_offsets``) was recorded.
        start_offsets: O, the first offset per partition that the stream will apply.
        start_epochs: Epoch of each partition's leader when O was recorded.
        server: Identity that the primary had when the connector was proven to capture the table's
            changes. This proof comes just before O is recorded. None until O is recorded.
        marker_id: Identity of the marker row that was written after O was recorded.
        x0: x0 as text, the transaction id before which every transaction has ended. For MySQL and
            MariaDB, the id of a marker: only transactions before this marker can be captured in
            part.
        chunks: The planned chunks; empty before they are planned.
        key_order: The versions of the libraries that sorted the key's text at the source when
            ``chunks`` were planned. Empty if no chunks are planned yet, if there is only one chunk,
            or if no library sorts the key.
        view: The first view of the copy; None before it opens.
        fingerprint: During the copy, the table's fingerprint at the last check that found the copy
            valid. After the handoff, the newest fingerprint that a run has found and followed.
        settings_digest: Digest of the settings that determine the table's rows.
        policies_digest: Digest of the settings by which runs handle later events and old files, for
            example ``on_truncate`` and ``readers_keep``.
        reads_upto: R as text, an upper bound of the position that the view can contain.
        handoff_offsets: H, the offset per partition at which everything up to R is captured.
        transaction_offsets: Offsets of the topic of transactions, recorded before O; None unless
            the table is an append table of PostgreSQL.
        transaction_topic_id: UUID of the topic of transactions; None if ``transaction_offsets`` is
            None.
        statements_upto: End offset of the topic of DDL statements, read before O; None if the
            connector does not have such a topic.
        statements_topic_id: UUID of the topic of DDL statements; None if there is no such topic.
        nulls_are_kept: Whether, when O was recorded, the connector sent NULL as NULL. If false, it
            sent a column's default instead of NULL. Runs then ask the primary whether a value that
            equals its column's default is NULL there.
        losses: Number of losses that were counted, for the capture and for the table, before O was
            recorded.
        shard: The shard's name, once the shard's rows are in the shared table. ``path`` is then the
            shared table's path. None before that, and for a table that is not a shard.
        continues: Id of the former generation's attempt, if a reader of that generation can
            continue with this attempt (`cdc.lake.pointer.Published`); else None.
    """

    id: UUID
    started_at: datetime
    path: str
    topic_id: str | None = None
    start_offsets: Mapping[int, int] | None = None
    start_epochs: Mapping[int, int] | None = None
    server: CopiedServer | None = None
    marker_id: UUID | None = None
    x0: str | None = None
    chunks: tuple[Chunk, ...] = ()
    key_order: str = ""
    view: CopyView | None = None
    fingerprint: Fingerprint | None = None
    settings_digest: str | None = None
    policies_digest: str | None = None
    reads_upto: str | None = None
    handoff_offsets: Mapping[int, int] | None = None
    transaction_offsets: Mapping[int, int] | None = None
    transaction_topic_id: str | None = None
    statements_upto: int | None = None
    statements_topic_id: str | None = None
    nulls_are_kept: bool = False
    losses: int = 0
    shard: str | None = None
    continues: UUID | None = None

    def retired(self) -> Attempt:
        """Return the attempt without its chunks, which nothing needs once its table is RETIRED.

        The record of a large table has thousands of chunks, and each round of runs reads all
        records. The fingerprint stays: by it a repeated `offboard` finds a renamed table whose
        source did not answer before, and lineage describes the source of the last runs.
        """
        return replace(self, chunks=())

    @property
    def servers(self) -> tuple[CopiedServer | CopyView, ...]:
        """The servers that the attempt has recorded so far: the primary, and the view's server."""
        return tuple(one for one in (self.server, self.view) if one is not None)
