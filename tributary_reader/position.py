"""The position of a reader of changes, which the reader passes as an opaque string."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cdc.store.documents import Codec, Part
from schemas.fingerprint import Fingerprint
from tributary_reader.errors import ReadError


@dataclass(frozen=True)
class Position(Part):
    """What a reader has read: one generation of a table up to one commit.

    Args:
        attempt: UUID of the generation's bootstrap attempt.
        instant: The instant of the commit.
        offsets: Next offset to read after the commit, by partition of the topic; empty for a table
            that several source tables feed.
        topic_id: UUID of the topic; None if it is not known.
        lacks: Number of quarantined records before ``offsets``.
        shape: The ``shape`` of :class:`Progress`. A reader can continue in the next generation only
            if that generation has the same shape.
        format: Version of the position's format.
    """

    attempt: str
    instant: str
    offsets: Mapping[int, int]
    topic_id: str | None
    lacks: int
    shape: str
    format: Literal[1] = 1

    def to_text(self) -> str:
        """Return the position as the opaque string that readers store."""
        return base64.urlsafe_b64encode(_CODEC.write(self).encode()).decode()

    @classmethod
    def from_text(cls, text: str) -> Position:
        """Return the position in a string of :meth:`to_text`.

        Raises:
            ReadError: The string is no position, or the version of its format is not supported.
        """
        try:
            document = base64.urlsafe_b64decode(text.encode())
        except ValueError:
            document = b""
        return _CODEC.read(document, "the position")


_CODEC = Codec(
    Position,
    error=ReadError,
    remedy="Give the text that the reader returned; without one, read the whole table.",
)


@dataclass(frozen=True)
class Progress:
    """The progress of a table's stream as of a commit, from the commit's metadata.

    Args:
        offsets: Next offset to read, by partition of the topic.
        topic_id: UUID of the topic; None if it is not known.
        lacks: Number of quarantined records before ``offsets``.
        start_offsets: O of the handoff.
        handoff_offsets: H of the handoff.
        is_log: Whether the table is an append table.
        shape: Digest of the lake's columns, key and partition columns, and of the fingerprint of
            the source's catalog.
    """

    offsets: Mapping[int, int]
    topic_id: str | None
    lacks: int
    start_offsets: Mapping[int, int]
    handoff_offsets: Mapping[int, int]
    is_log: bool
    shape: str

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Progress | None:
        """Return the progress in a commit's metadata; None if the metadata has no handoff document.

        Args:
            record: The parsed JSON that Tributary writes into a commit's extra metadata.
        """
        handoff = record.get("handoff")
        if not handoff:
            return None
        columns = [
            [one[name] for name in ("name", "source", "lake", "hide", "read_by_key")]
            for one in handoff["columns"]
        ]
        facts = [
            sorted(columns),
            handoff["key"],
            handoff["key_text"],
            handoff["partition_by"],
            handoff["hash_key"],
            Fingerprint(handoff["fingerprint"]["facts"]).to_json(),
        ]
        return cls(
            offsets=_offsets(record["offsets"]),
            topic_id=record["topic_id"],
            lacks=record["lacks"],
            start_offsets=_offsets(handoff["start_offsets"]),
            handoff_offsets=_offsets(handoff["handoff_offsets"]),
            is_log=not handoff["key"],
            shape=hashlib.sha256(json.dumps(facts).encode()).hexdigest(),
        )


def _offsets(document: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in document.items()}
