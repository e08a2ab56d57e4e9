"""The position of a reader of changes, which the reader passes as an opaque string."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cdc.store.documents import Codec, Part
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
        shape: The ``shape`` of the commit's handoff facts (`tributary_reader.commit_record`). A
            reader can continue in the next generation only if that generation has the same shape.
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
