"""What is known about a table's readers: which commits each reader has read, and which not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cdc.store.documents import Part


@dataclass(frozen=True)
class ReaderState(Part):
    """One registered reader of a table, as of a look at the reader's file and the table's commits.

    Args:
        name: The reader's name.
        instant: Hudi's instant of the newest commit that the reader has read; None if the reader
            has recorded no instant.
        attempt: UUID of the attempt whose generation the reader has read; None if the reader's file
            does not name it.
        recorded_at: When the reader recorded the instant; None if the file does not say.
        read_at: The time that ``instant`` names. If the reader has read nothing yet, the time at
            which the table was published. None if the time is not known.
        unread_at: Time of the oldest commit that the reader has not read; None if the reader has
            read all commits, or if the time is not known.
        lost: Whether the reader may have missed changes that follow the commit in ``instant``, so
            that the reader must read the whole table once.
        problem: Why nothing is known about the reader; None if something is known.
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
    """All registered readers of a table, as a process found them at one time.

    Args:
        folder: The lake table's folder, in which the pointer is.
        at: When the process found them, aware UTC.
        readers: The readers by name.
        format: Version of this document.
    """

    folder: str
    at: datetime
    readers: tuple[ReaderState, ...]
    format: Literal[1] = 1
