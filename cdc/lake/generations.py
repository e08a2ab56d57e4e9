"""Classifies the folders of a table: which one serves, which one is built, which may be removed.

Three facts decide this, so that no folder stays forever: the existing folders, the pointer for
readers, and the attempts that the state store continues.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from itertools import pairwise

from cdc.lake.pointer import Pointer
from cdc.store.table_state import State, TableRecord

_GIVEN_UP = frozenset({State.NEEDS_BOOTSTRAP, State.RETIRED})


class Kind(str, Enum):
    """What a folder of a table is."""

    SERVING = "serving"
    """Readers are sent to it."""
    BUILDING = "building"
    """An attempt that is not published yet writes it."""
    FORMER = "former"
    """Readers were sent to it, and may have it open."""
    ABANDONED = "abandoned"
    """The pointer does not name it, and no record continues its attempt."""


@dataclass(frozen=True)
class Generation:
    """One folder of a table.

    Args:
        attempt: UUID of the attempt that wrote it; a part of the folder's name.
        kind: What it is.
        size_bytes: Bytes that it holds.
        number: Its generation; None when neither the pointer nor a record has it.
        published_at: When it was published, aware UTC; None when the pointer does not name it.
        beside: Whether it is built beside the table's own record.
    """

    attempt: str
    kind: Kind
    size_bytes: int
    number: int | None = None
    published_at: datetime | None = None
    beside: bool = False

    @property
    def removable(self) -> bool:
        """Whether it may be removed: it neither serves readers nor is built."""
        return self.kind in (Kind.FORMER, Kind.ABANDONED)


def generations(
    folders: Mapping[str, int], pointer: Pointer | None, records: Iterable[TableRecord]
) -> list[Generation]:
    """The folders of a table: published ones by time, newest first, then the others.

    Args:
        folders: Bytes by attempt. Read them before the other two arguments: an attempt is recorded
            before it has a folder, so a folder without a record is abandoned.
        pointer: The pointer for readers; None when nothing is published.
        records: The table's records: its own, and that of a generation beside it.
    """
    published = (pointer.current, *pointer.former) if pointer is not None else ()
    building = {
        str(record.attempt.id): record
        for record in records
        if record.attempt is not None
        and record.attempt.shard is None  # a shard's rows are in the shared table
        and record.state not in _GIVEN_UP
    }
    found = []
    for place, one in enumerate(published):
        if one.attempt in folders:
            kind = Kind.FORMER if place else Kind.SERVING
            size = folders[one.attempt]
            found.append(Generation(one.attempt, kind, size, one.generation, one.published_at))
    known = {one.attempt for one in found}
    for attempt in sorted(set(folders) - known):
        size, record = folders[attempt], building.get(attempt)
        if record is None:
            found.append(Generation(attempt, Kind.ABANDONED, size))
        else:
            found.append(
                Generation(attempt, Kind.BUILDING, size, record.generation, beside=record.beside)
            )
    return found


def superfluous(
    found: Sequence[Generation], retain: int, *, keep: timedelta, now: datetime
) -> list[Generation]:
    """The superfluous folders: former generations except the newest ones, and abandoned attempts.

    Args:
        found: The folders, as :func:`generations` orders them.
        retain: How many former generations stay.
        keep: How long a generation stays, at least, after another one replaced it.
        now: The time, aware UTC.
    """
    published = [one for one in found if one.kind in (Kind.SERVING, Kind.FORMER)]
    needless = [
        one
        for newer, one in list(pairwise(published))[retain:]
        if newer.published_at is None or now - newer.published_at > keep
    ]
    return [*needless, *(one for one in found if one.kind is Kind.ABANDONED)]


def named(found: Iterable[Generation], names: Collection[str]) -> dict[str, list[Generation]]:
    """The generations by name: a generation's number, or the beginning of an attempt's UUID."""
    listed = list(found)
    return {
        name: [one for one in listed if name == str(one.number)]
        or [one for one in listed if len(name) >= _SHORTEST and one.attempt.startswith(name)]
        for name in names
    }


_SHORTEST = 4
"""The fewest characters of a UUID that name an attempt."""
