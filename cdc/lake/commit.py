"""What a lake commit says about itself, as one JSON document in its metadata."""

from __future__ import annotations

import base64
import getpass
import json
import socket
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from importlib import metadata
from typing import Any

from cdc.errors import LakeError
from schemas.table import TableId

COMMIT_PREFIX = "tributary."
"""Prefix of every key that this product puts into a commit's extra metadata."""

COMMIT_KEY = COMMIT_PREFIX + "commit"
"""Key of the JSON document."""

INDEX_KEY = COMMIT_PREFIX + "index"
"""Key of the index that the table is written with."""

_FORMAT = 1


def _tool_version() -> str:
    try:
        return metadata.version("tributary-cdc")
    except metadata.PackageNotFoundError:
        return "unknown"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under an id without a name
        return "unknown"


@dataclass(frozen=True)
class CommitRecord:
    """One commit's account of what it holds; stored in the commit, so it is as durable as the data.

    Args:
        kind: ``chunk`` (snapshot rows), ``handoff`` (the end of a snapshot) or ``run`` (changes).
        table: The source table.
        attempt: UUID of the bootstrap attempt that this lake table belongs to.
        generation: Generation of the table, from 1.
        start_offsets: First offset per partition that this commit applies; empty for chunks.
        offsets: Next offset to read per partition after this commit; empty for chunks.
        epochs: Epoch of each partition's leader when the log was seen to reach ``offsets``.
        topic: Data topic.
        topic_id: UUID of the topic, so that a recreated topic is noticed.
        position: Source position (LSN) up to which this commit's events reach.
        watermark: Event time up to which the table is complete, aware UTC.
        counts: Events by operation.
        schema_ids: Registry ids of the writer schemas of the events.
        last_event: Of a log from a binlog, how far that has been read.
        chunk_ids: Snapshot chunks that this commit holds.
        handoff: Facts of the handoff (O, R, H, x0, marker, fingerprint, ...) as plain JSON values.
        shards: Of a table that several source tables feed, for each by its shard's name: its own
            last record as plain JSON values, and the instant of its commit, None for this one.
        run_id: The run that wrote it.
        tool_version: Version of this product.
        host: Machine that wrote it.
        user: Operating system user that wrote it.
    """

    kind: str
    table: TableId
    attempt: str
    generation: int = 1
    start_offsets: Mapping[int, int] = field(default_factory=dict)
    offsets: Mapping[int, int] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)
    topic: str | None = None
    topic_id: str | None = None
    position: str | None = None
    watermark: datetime | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    schema_ids: tuple[int, ...] = ()
    last_event: str | None = None
    chunk_ids: tuple[int, ...] = ()
    handoff: Mapping[str, Any] | None = None
    shards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    run_id: str | None = None
    tool_version: str = field(default_factory=_tool_version)
    host: str = field(default_factory=socket.gethostname)
    user: str = field(default_factory=_user)

    def __post_init__(self) -> None:
        if self.kind not in ("chunk", "handoff", "run"):
            raise ValueError(f"unknown kind of commit: {self.kind!r}")
        if self.watermark is not None and self.watermark.tzinfo is None:
            raise ValueError("the watermark of a commit must be an aware datetime")

    def to_plain(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return dict(json.loads(self.to_json()))

    def to_json(self) -> str:
        """The record as one line of JSON."""
        values = asdict(self)
        # Each commit carries all of them, and they are much alike.
        values["shards"] = _packed(self.shards) if self.shards else None
        values["table"] = [self.table.source, self.table.schema, self.table.name]
        values["watermark"] = self.watermark.isoformat() if self.watermark else None
        return json.dumps({"format": _FORMAT, **values}, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> CommitRecord:
        """Read what :meth:`to_json` wrote; unknown keys of later versions are ignored.

        Raises:
            LakeError: The text is not a commit record, or of a format this version cannot read.
        """
        try:
            return cls.from_plain(json.loads(text))
        except ValueError as error:
            raise _unreadable(str(error)) from error

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> CommitRecord:
        """Read what :meth:`to_plain` gave.

        Raises:
            LakeError: As :meth:`from_json`.
        """
        try:
            values = dict(values)
            if values.pop("format") != _FORMAT:
                raise _unreadable("it has a format that this version does not know")
            known = {item.name for item in fields(cls)}
            values = {key: value for key, value in values.items() if key in known}
            values["table"] = TableId(*values["table"])
            if values.get("watermark"):
                values["watermark"] = datetime.fromisoformat(values["watermark"])
            for name in ("start_offsets", "offsets", "epochs"):
                values[name] = {int(key): int(at) for key, at in values.get(name, {}).items()}
            values["shards"] = _unpacked(values["shards"]) if values.get("shards") else {}
            for name in ("schema_ids", "chunk_ids"):
                values[name] = tuple(values.get(name, ()))
            return cls(**values)
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            raise _unreadable(str(error)) from error


def _packed(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, separators=(",", ":"), sort_keys=True)
    return base64.b64encode(zlib.compress(text.encode())).decode()


def _unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text)))


def _unreadable(reason: str) -> LakeError:
    return LakeError(
        f"a lake commit's {COMMIT_KEY} record cannot be read: {reason}",
        remedy="Use the version of this tool that wrote the table, or a later one.",
        field=COMMIT_KEY,
    )
