"""Classifies a table's folders: serving, building, former, abandoned, another installation's.

The pointer (which names the folder to read) and the table's records in the state store decide the
kind of a folder. A record's state shows whether the record's attempt at a copy is in progress.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from itertools import pairwise

from cdc.lake.pointer import Pointer
from cdc.store.table_state import State, TableRecord

_GIVEN_UP = frozenset({State.NEEDS_BOOTSTRAP, State.RETIRED})


class FolderKind(str, Enum):
    """The kind of a folder of a lake table."""

    SERVING = "serving"
    """The pointer names this folder as the one to read."""
    BUILDING = "building"
    """An attempt at a copy, which is not published yet, writes into this folder."""
    FORMER = "former"
    """The pointer named this folder before. Readers can still have it open."""
    ABANDONED = "abandoned"
    """The pointer does not name this folder, and no record continues the attempt that wrote it."""
    OTHER = "other"
    """Another installation wrote this folder, and the pointer does not name it as the one to read.
    Whether that installation still needs the folder is not known here."""


@dataclass(frozen=True)
class Generation:
    """One folder of a lake table.

    Args:
        attempt: UUID of the attempt that wrote the folder. The folder's name contains it.
        kind: The folder's kind.
        size_bytes: Size of the folder in bytes.
        number: The number of the generation; None if neither the pointer nor a record names the
            folder.
        published_at: Time of publication, in UTC; None if the pointer does not name the folder.
        beside: Whether `resync` builds the folder while readers see another generation.
    """

    attempt: str
    kind: FolderKind
    size_bytes: int
    number: int | None = None
    published_at: datetime | None = None
    beside: bool = False

    @property
    def removable(self) -> bool:
        """Whether the folder may be removed; this is so if it is former or abandoned."""
        return self.kind in (FolderKind.FORMER, FolderKind.ABANDONED)


def generations(
    folders: Mapping[str, int],
    pointer: Pointer | None,
    records: Iterable[TableRecord],
    is_other: Callable[[str], bool] = lambda _: False,
) -> list[Generation]:
    """Return a lake table's folders as generations: published ones, newest first, then the rest.

    Args:
        folders: Size of each attempt's folder in bytes, by the attempt's UUID. The caller must list
            the folders before it reads the pointer and the records. An attempt is recorded before
            it has a folder. So a listed folder that neither a record nor the pointer names is
            abandoned, unless another installation wrote it.
        pointer: The pointer for readers; None if nothing is published.
        records: The table's own record, and the record of its next generation if there is one.
        is_other: Takes an attempt's UUID; returns whether another installation made the attempt
            (`Ownership.is_other`).
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
            kind = FolderKind.OTHER if is_other(one.attempt) else FolderKind.FORMER
            kind = kind if place else FolderKind.SERVING
            size = folders[one.attempt]
            found.append(Generation(one.attempt, kind, size, one.generation, one.published_at))
    known = {one.attempt for one in found}
    for attempt in sorted(set(folders) - known):
        size, record = folders[attempt], building.get(attempt)
        if record is None:
            kind = FolderKind.OTHER if is_other(attempt) else FolderKind.ABANDONED
            found.append(Generation(attempt, kind, size))
        else:
            found.append(
                Generation(
                    attempt, FolderKind.BUILDING, size, record.generation, beside=record.beside
                )
            )
    return found


def superfluous(
    found: Sequence[Generation], retain: int, *, keep: timedelta, now: datetime
) -> list[Generation]:
    """Return the folders of a lake table to delete: old former generations and abandoned attempts.

    Args:
        found: The table's folders in the order of :func:`generations`.
        retain: Number of former generations that are retained even if they are old.
        keep: For how long a generation is retained after the next generation has replaced it.
        now: The current time, in UTC.
    """
    published = [one for one in found if one.published_at is not None]
    needless = [
        one
        for newer, one in list(pairwise(published))[retain:]
        if one.kind is FolderKind.FORMER
        and (newer.published_at is None or now - newer.published_at > keep)
    ]
    return [*needless, *(one for one in found if one.kind is FolderKind.ABANDONED)]


def named(found: Iterable[Generation], names: Collection[str]) -> dict[str, list[Generation]]:
    """Return, for each name, the folders of a lake table that the name can mean.

    Args:
        found: The generations.
        names: Numbers of generations, or beginnings of attempts' UUIDs.
    """
    listed = list(found)
    return {
        name: [one for one in listed if name == str(one.number)]
        or [one for one in listed if len(name) >= _SHORTEST and one.attempt.startswith(name)]
        for name in names
    }


_SHORTEST = 4
"""Minimum length of the beginning of a UUID that names an attempt."""
