"""What the folders of a table are: which one serves, which one is built, and which may go.

Decided from three facts alone, so that nothing stays for ever: the folders that are there, the
pointer of readers, and the attempts that the state store goes on with.
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
    """An attempt that has yet to be published writes it."""
    FORMER = "former"
    """Readers were sent to it, and may have it open."""
    ABANDONED = "abandoned"
    """It was never shown to readers, and nothing goes on with it."""


@dataclass(frozen=True)
class Generation:
    """One folder of a table.

    Args:
        attempt: UUID of the attempt that wrote it; its folder is named by it.
        kind: What it is.
        size_bytes: What it holds.
        number: Its generation, None when nothing that is left tells.
        published_at: When it was shown to readers.
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
        """Whether it may be removed as it is."""
        return self.kind in (Kind.FORMER, Kind.ABANDONED)


def generations(
    folders: Mapping[str, int], pointer: Pointer | None, records: Iterable[TableRecord]
) -> list[Generation]:
    """The folders of a table: published ones by time, newest first, then the others.

    Args:
        folders: Bytes by attempt. Looked at before the other two: an attempt is on record before
            it has a folder, so one that is not on record then is nobody's.
        pointer: What readers are sent to.
        records: The table's records: its own, and that of a generation beside it.
    """
    published = (pointer.current, *pointer.former) if pointer is not None else ()
    building = {
        str(record.attempt.id): record
        for record in records
        if record.attempt is not None
        and record.attempt.shard is None  # else its rows are in the table that shards share
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
    """What nobody needs: former generations but the newest ones, and abandoned attempts.

    Args:
        found: What there is, as :func:`generations` orders it.
        retain: How many former generations stay.
        keep: How long one stays, at least, after another was shown in its place.
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
    """The generations that each name means: a number, or the beginning of an attempt's UUID."""
    listed = list(found)
    return {
        name: [one for one in listed if name == str(one.number)]
        or [one for one in listed if len(name) >= _SHORTEST and one.attempt.startswith(name)]
        for name in names
    }


_SHORTEST = 4
"""Characters of a UUID that name it, at least."""
