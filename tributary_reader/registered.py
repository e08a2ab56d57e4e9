"""Registered readers of a table: what each has read, and whether it can go on from there."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc.lake.instants import time_of
from cdc.lake.pointer import Pointer, Published
from cdc.store.reader_state import ReadersLook, ReaderState
from tributary_reader.errors import ReadError
from tributary_reader.position import Position
from tributary_reader.reader_files import (
    MOST_READERS,
    ReaderFile,
    names_in,
    read_file,
    write_file,
)
from tributary_reader.snapshot import Snapshot, read_pointer, table_folder
from tributary_reader.storage import Storage, storage_of
from tributary_reader.timeline import Timeline

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_UNPUBLISHED = "the table has no published generation"


def record_reader(
    url: str, name: str, read: str | Snapshot, *, filesystem: FileSystem | None = None
) -> None:
    """Record what a reader has read, for `tributary readers` and for the metrics of readers.

    Call this only after the rows are stored or applied, since from this call on they count as read.

    Args:
        url: The table's folder, which has the pointer ``_current.json``; or the path of one of its
            generations.
        name: The reader's name: letters, digits, dots, underscores and hyphens.
        read: The position of the last applied changes, or the snapshot that was read whole.
        filesystem: A file system of pyarrow that has the folder; None for the local disk.

    Raises:
        ReadError: The name or the position is not valid; the pointer cannot be read; or the file
            cannot be written through ``filesystem``.
        LakeError: The file cannot be written on the local disk.
    """
    storage, folder = storage_of(filesystem), table_folder(url)
    attempt: str | None
    if isinstance(read, Snapshot):
        pointer = read_pointer(storage, folder)
        published = () if pointer is None else (pointer.current, *pointer.former)
        attempts = {storage.resolve(one.path): one.attempt for one in published}
        instant, attempt = read.instant, attempts.get(read.path)
    else:
        position = Position.from_text(read)
        instant, attempt = position.instant, position.attempt
    said = ReaderFile(instant=instant, attempt=attempt, recorded_at=datetime.now(timezone.utc))
    write_file(storage, storage.resolve(folder), name, said)


def record_instant(storage: Storage, url: str, name: str, instant: str) -> ReaderFile:
    """Record that another program has read a table up to a commit; return the reader's file.

    Args:
        storage: The file access.
        url: The table's folder.
        name: The reader's name.
        instant: The instant of a commit that the published generation or a former one has.

    Raises:
        ReadError: The name is not valid, no generation has such a commit, or the file cannot be
            written through Arrow.
        LakeError: The file cannot be written on the local disk.
    """
    pointer = read_pointer(storage, url)
    generations = () if pointer is None else (pointer.current, *pointer.former)
    for one in generations:
        timeline = _timeline(storage, one)
        if timeline is not None and instant in timeline.instants:
            at = datetime.now(timezone.utc)
            said = ReaderFile(instant=instant, attempt=one.attempt, recorded_at=at)
            write_file(storage, storage.resolve(url), name, said)
            return said
    raise ReadError(
        f"{url} has no commit {instant!r} that is still known",
        remedy="Give the instant of a commit, as readers see it in _hoodie_commit_time;"
        " `tributary status TABLE --output json` prints the newest one.",
        path=url,
    )


def look(
    storage: Storage, url: str, *, expected: Collection[str] = (), at: datetime | None = None
) -> ReadersLook:
    """Return what is known about the registered readers of a table.

    Args:
        storage: The file access.
        url: The table's folder.
        expected: Names of readers that the result has even if they have recorded nothing.
        at: Time of the look, aware UTC; None for now.

    Raises:
        ReadError: The table's folder, or a commit of its published generation, cannot be read.
    """
    at = at or datetime.now(timezone.utc)
    folder = storage.resolve(url)
    names = sorted({*names_in(storage, folder), *expected})
    if not names:
        return ReadersLook(url, at, ())
    pointer = read_pointer(storage, url)
    judge = None if pointer is None else _Judge(storage, pointer)
    states = []
    for name in names[:MOST_READERS]:
        try:
            said = read_file(storage, folder, name)
        except ReadError as error:
            states.append(ReaderState(name, problem=error.message))
            continue
        if judge is None:
            states.append(ReaderState(name, problem=_UNPUBLISHED))
        else:
            states.append(judge.silent(name) if said is None else judge.state(name, said))
    return ReadersLook(url, at, tuple(states))


class _Judge:
    """Judges the readers of one table by the commits of its generations.

    Args:
        storage: The file access.
        pointer: The table's pointer.
    """

    def __init__(self, storage: Storage, pointer: Pointer) -> None:
        self._storage = storage
        self._pointer = pointer
        self._timelines: dict[str, Timeline | None] = {}

    def silent(self, name: str) -> ReaderState:
        """Return the state of a reader that the settings name and that has recorded nothing."""
        since = self._pointer.published_at
        return ReaderState(name, read_at=since, unread_at=since)

    def state(self, name: str, said: ReaderFile) -> ReaderState:
        """Return the state of a reader from what its file says."""
        published = (self._pointer.current, *self._pointer.former)
        read_at = time_of(said.instant)
        attempt = said.attempt or self._read_by(said.instant)
        if attempt is None:
            return _state(name, said, read_at, unread_at=self._pointer.published_at, lost=True)
        place = next((n for n, one in enumerate(published) if one.attempt == attempt), None)
        timeline = None if place is None else self._timeline(published[place])
        if place is None or timeline is None:
            return _state(name, said, read_at, unread_at=read_at, lost=True)
        later = [one for one in timeline.instants if one > said.instant]
        unread_at = time_of(later[0]) if later else None
        lost = not timeline.keeps(said.instant)
        # An instant between two commits is fine for a reader by time, which names no generation.
        if said.attempt is not None and said.instant >= timeline.instants[0]:
            lost = lost or said.instant not in timeline.instants
        if place:
            lost = lost or not self._pointer.continues_from(attempt)
            unread_at = unread_at or published[place - 1].published_at
        return _state(name, said, read_at, unread_at=unread_at, lost=lost)

    def _read_by(self, instant: str) -> str | None:
        """Return the attempt that a reader has read, for a reader whose file names no attempt.

        If an attempt has a commit with this instant, the result is that attempt. If none has, the
        result is the published attempt, since a reader may give a time between two commits. But
        the result is None if the published attempt is a later copy of the table and was published
        after the instant: the reader can have read a generation that has been removed.
        """
        for one in (self._pointer.current, *self._pointer.former):
            timeline = self._timeline(one)
            if timeline is not None and instant in timeline.instants:
                return one.attempt
        copied_again = self._pointer.generation > 1
        if copied_again and time_of(instant) < self._pointer.published_at:
            return None
        return self._pointer.attempt

    def _timeline(self, generation: Published) -> Timeline | None:
        if generation.attempt not in self._timelines:
            self._timelines[generation.attempt] = _timeline(self._storage, generation)
        return self._timelines[generation.attempt]


def _timeline(storage: Storage, generation: Published) -> Timeline | None:
    """Return the commits of a generation; None if the generation was removed."""
    path = storage.resolve(generation.path)
    timeline = Timeline(storage, path) if storage.names(f"{path}/.hoodie") else None
    return timeline if timeline is not None and timeline.instants else None


def _state(
    name: str, said: ReaderFile, read_at: datetime, *, unread_at: datetime | None, lost: bool
) -> ReaderState:
    return ReaderState(
        *(name, said.instant, said.attempt, said.recorded_at, read_at, unread_at), lost=lost
    )
