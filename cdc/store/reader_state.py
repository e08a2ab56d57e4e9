"""What is known about the readers of a table: what each has read, and what it has not read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cdc.store.documents import Part


@dataclass(frozen=True)
class ReaderState(Part):
    """One registered reader of a table, as of a look at its file and at the table's commits.

    Args:
        name: The reader's name.
        instant: Hudi's instant of the commit that it has read; None if it has recorded none.
        attempt: UUID of the attempt that wrote the generation that it has read; None if its file
            does not say.
        recorded_at: When it recorded that; None if its file does not say.
        read_at: Time of the commit that it has read, or of the publication that it has not read
            yet; None if that is not known.
        unread_at: Time of the oldest commit that it has not read; None if it has read all, or if
            that is not known.
        lost: Whether changes since its commit can be unknown to it, so that it must read the whole
            table once.
        problem: Why nothing is known about it; None if something is.
    """

    name: str
    instant: str | None = None
    attempt: str | None = None
    recorded_at: datetime | None = None
    read_at: datetime | None = None
    unread_at: datetime | None = None
    lost: bool = False
    problem: str | None = None


@dataclass(frozen=True)
class ReadersLook(Part):
    """All registered readers of a table, as of a look.

    Args:
        folder: Folder of the lake table, which has the pointer.
        at: Time of the look, aware UTC.
        readers: The readers by name.
        format: Version of this document.
    """

    folder: str
    at: datetime
    readers: tuple[ReaderState, ...]
    format: Literal[1] = 1
