"""One try at one generation of a table, as the state store keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from cdc.documents import Part


@dataclass(frozen=True)
class CopyView(Part):
    """The image of the source that a copy reads; its first one where a resume opens more.

    Args:
        snapshot: By which its sessions shared it; empty where each has a view of its own.
        upper_bound: Position of the log that was replayed when it was opened, as text.
        opened_at: When, aware UTC.
        on_replica: Whether a replica was read.
        system_identifier: The cluster; None where the server does not say.
        timeline: That cluster's timeline; None where the server does not say.
        split: S, the position at which the view ends exactly, as text; None where it is not known.
    """

    snapshot: str
    upper_bound: str
    opened_at: datetime
    on_replica: bool
    system_identifier: str | None
    timeline: int | None
    split: str | None = None


@dataclass(frozen=True)
class Attempt:
    """One try at one generation of a table, with what it has recorded so far.

    Args:
        id: Identity of the attempt; part of its path.
        started_at: When it began.
        path: Base path of the Hudi table that this attempt writes, and no other ever.
        topic_id: UUID of the topic when O was recorded.
        start_offsets: O, the first offset per partition that the stream will apply.
        start_epochs: Epoch of each partition's leader then.
        marker_id: Identity of the marker row written after O.
        x0: What showed that no transaction is captured in part: a transaction id, or a marker's.
        chunks: The planned chunks as plain values.
        view: The image of the source that it copies.
        fingerprint_digest: Digest of the table's catalog facts under the view.
        fingerprint: The facts themselves, to name what differs.
        settings_digest: Digest of the settings that its rows are made by.
        reads_upto: R, an upper bound of the position that the view can contain, as text.
        handoff_offsets: H, the offsets at which everything up to R has been captured.
        transaction_offsets: Of a log, where its transactions' ends begin, recorded before O.
        transaction_topic_id: UUID of the topic that holds them.
        told_upto: Where the topic of statements ended before O, of connectors that tell them.
        shard: Of a shard, its name, once its rows are in the table that several shards share:
            ``path`` is that table's then.
    """

    id: UUID
    started_at: datetime
    path: str
    topic_id: str | None = None
    start_offsets: Mapping[int, int] | None = None
    start_epochs: Mapping[int, int] | None = None
    marker_id: UUID | None = None
    x0: str | None = None
    chunks: tuple[Mapping[str, Any], ...] = ()
    view: CopyView | None = None
    fingerprint_digest: str | None = None
    fingerprint: Mapping[str, Any] | None = None
    settings_digest: str | None = None
    reads_upto: str | None = None
    handoff_offsets: Mapping[int, int] | None = None
    transaction_offsets: Mapping[int, int] | None = None
    transaction_topic_id: str | None = None
    told_upto: int | None = None
    shard: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The attempt as plain values."""
        return {
            "id": str(self.id),
            "started_at": self.started_at.isoformat(),
            "path": self.path,
            "topic_id": self.topic_id,
            "start_offsets": offsets_to_json(self.start_offsets),
            "start_epochs": offsets_to_json(self.start_epochs),
            "marker_id": None if self.marker_id is None else str(self.marker_id),
            "x0": self.x0,
            "chunks": [dict(chunk) for chunk in self.chunks],
            "view": None
            if self.view is None
            else {**vars(self.view), "opened_at": self.view.opened_at.isoformat()},
            "fingerprint_digest": self.fingerprint_digest,
            "fingerprint": None if self.fingerprint is None else dict(self.fingerprint),
            "settings_digest": self.settings_digest,
            "reads_upto": self.reads_upto,
            "handoff_offsets": offsets_to_json(self.handoff_offsets),
            "transaction_offsets": offsets_to_json(self.transaction_offsets),
            "transaction_topic_id": self.transaction_topic_id,
            "told_upto": self.told_upto,
            "shard": self.shard,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Attempt:
        """Read what ``to_json`` wrote."""
        return cls(
            id=UUID(value["id"]),
            started_at=datetime.fromisoformat(value["started_at"]),
            path=value["path"],
            topic_id=value["topic_id"],
            start_offsets=offsets_from_json(value["start_offsets"]),
            start_epochs=offsets_from_json(value.get("start_epochs")),
            marker_id=None if value["marker_id"] is None else UUID(value["marker_id"]),
            x0=value["x0"],
            chunks=tuple(value["chunks"]),
            view=None
            if (view := value["view"]) is None
            else CopyView(**{**view, "opened_at": datetime.fromisoformat(view["opened_at"])}),
            fingerprint_digest=value["fingerprint_digest"],
            fingerprint=value["fingerprint"],
            settings_digest=value.get("settings_digest"),
            reads_upto=value["reads_upto"],
            handoff_offsets=offsets_from_json(value["handoff_offsets"]),
            transaction_offsets=offsets_from_json(value.get("transaction_offsets")),
            transaction_topic_id=value.get("transaction_topic_id"),
            told_upto=value.get("told_upto"),
            shard=value.get("shard"),
        )


def offsets_to_json(offsets: Mapping[int, int] | None) -> dict[str, int] | None:
    """Offsets per partition, as JSON has them: its keys are text."""
    if offsets is None:
        return None
    return {str(partition): offset for partition, offset in offsets.items()}


def offsets_from_json(value: Mapping[str, int] | None) -> dict[int, int] | None:
    """Read what ``offsets_to_json`` wrote."""
    if value is None:
        return None
    return {int(partition): offset for partition, offset in value.items()}
