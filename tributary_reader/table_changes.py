"""The rows that have changed in a table since a position, over all its generations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc.lake.pointer import Pointer, Published
from cdc.rows.columns import DELETED, OFFSET
from tributary_reader.commit_record import CommitFacts
from tributary_reader.errors import CleanedError, ReadError, WholeTableError
from tributary_reader.files import DataFile
from tributary_reader.position import Position
from tributary_reader.snapshot import (
    Snapshot,
    files_as_of,
    read_pointer,
    require_there,
    snapshot,
    table_folder,
)
from tributary_reader.storage import Storage, pyarrow_module, storage_of
from tributary_reader.timeline import Commit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

_TIME, _KEY = "_hoodie_commit_time", "_hoodie_record_key"
_TRIES = 3


@dataclass(frozen=True)
class Changes:
    """The net changes of a table between two positions of a reader.

    Args:
        rows: The rows that are new or were written again, as of the new position. A row that was
            written again can have the same values as before.
        deleted: The rows that hard deletes or TRUNCATE removed, as they were at the reader's
            position. A row that is only marked as deleted is in ``rows`` instead.
        position: The new position.
        whole: Whether ``rows`` are the whole table. If True, a reader must drop all rows that it
            had before.
        more: Whether there are more changes, in the table's next generation. If True, the reader
            should read again at once.
    """

    rows: pa.Table
    deleted: pa.Table
    position: str
    whole: bool = False
    more: bool = False


def changes(
    url: str,
    position: str | None = None,
    *,
    deletes: bool = True,
    meta: bool = False,
    over_resync: bool = False,
    filesystem: FileSystem | None = None,
) -> Changes:
    """Return the changes of a published table since a reader's position.

    Args:
        url: The table's folder, which has the pointer ``_current.json``; or the path of one of its
            generations.
        position: The position of the changes that were read last. None reads the whole table.
        deletes: Whether to find the rows that were removed. This needs the table's files as of the
            position. If False, a position stays valid after a cleaning has deleted these files.
        meta: Whether the rows have Hudi's own columns, ``_hoodie_*``.
        over_resync: Whether to continue after every new copy of the table. If False, the reader
            continues only if runs followed the table during the copy and no change was lost;
            otherwise, the call raises a WholeTableError. If True, the result can lack changes that
            never reached the topic. With either value, the result lacks the corrections that a copy
            made to wrong rows of the lake.
        filesystem: A file system of pyarrow that has the folder; None for the local disk.

    Raises:
        WholeTableError: The changes since the position cannot be known. Read the whole table once,
            without a position.
        ReadError: There is no such table, its files cannot be read, or the string is no position.
    """
    storage = storage_of(filesystem)
    since = None if position is None else Position.from_text(position)
    for left in reversed(range(_TRIES)):
        try:
            reader = _Reader(storage, table_folder(url), deletes=deletes, meta=meta)
            return reader.changes(since, over_resync=over_resync)
        except WholeTableError:
            raise
        except (ReadError, FileNotFoundError):
            # A commit may have been archived, or a file cleaned, meanwhile.
            if not left:
                raise
    raise AssertionError("not reached")


class _Reader:
    def __init__(self, storage: Storage, folder: str, *, deletes: bool, meta: bool) -> None:
        pointer = read_pointer(storage, folder)
        if pointer is None:
            raise ReadError(
                f"{folder} has no pointer, so it is no published table",
                remedy="Give the folder with _current.json; `tributary path TABLE` prints a path"
                " in it.",
                path=folder,
            )
        self._pointer: Pointer = pointer
        self._storage = storage
        self._folder = folder
        self._deletes = deletes
        self._meta = meta

    def changes(self, since: Position | None, *, over_resync: bool) -> Changes:
        if since is None:
            return self._whole_table()
        if since.attempt == self._pointer.attempt:
            return self._of_generation(self._opened(self._pointer.current), since)
        if not over_resync and not self._pointer.continues_from(since.attempt):
            raise WholeTableError(
                f"{self._folder} was copied again, and the copy may have changes that no event"
                f" showed: generation {self._pointer.generation} does not continue the one that was"
                " read",
                remedy="Read the whole table once: call it without a position, and replace what you"
                " have. Or call it with over_resync=True, if no change was lost before the copy.",
                path=self._folder,
            )
        former = self._former(since)
        if former is not None and (former.instant != since.instant):
            return self._of_generation(former, since, more=True)
        return self._of_next_generation(former, since)

    def _opened(self, published: Published) -> Snapshot:
        return snapshot(self._storage, self._storage.resolve(published.path))

    def _former(self, since: Position) -> Snapshot | None:
        """Return the former generation of a position, as of that generation's newest commit.

        The result is None if the generation has been removed.
        """
        for one in self._pointer.former:
            if one.attempt == since.attempt:
                path = self._storage.resolve(one.path)
                return snapshot(self._storage, path) if self._storage.names(path) else None
        return None

    def _whole_table(self) -> Changes:
        now = self._opened(self._pointer.current)
        rows = now.read(meta=self._meta)
        position = self._position(now, self._pointer.attempt)
        return Changes(rows, rows.slice(0, 0), position.to_text(), whole=True)

    def _position(self, at: Snapshot, attempt: str) -> Position:
        found = at.timeline.record(at.instant)
        if found is None or found.handoff is None:  # a table that several source tables feed
            return Position(attempt, at.instant, {}, None, 0, "")
        facts = (found.offsets, found.topic_id, found.lacks, found.handoff.shape)
        return Position(attempt, at.instant, *facts)

    def _of_generation(self, now: Snapshot, since: Position, *, more: bool = False) -> Changes:
        """Return the changes from a position to the newest commit of the position's generation."""
        timeline = now.timeline
        first, known = timeline.instants[0], set(timeline.instants)
        if since.instant > now.instant or (since.instant > first and since.instant not in known):
            raise _whole_table(
                self._folder,
                f"commit {since.instant} is not in the table: the lake was restored from a backup",
            )
        columns = pyarrow_module("compute")
        written = [one for one in now.files if one.instant > since.instant]
        rows = self._rows(now, written, columns.field(_TIME) > since.instant)
        gone = rows.slice(0, 0)
        commits = [timeline.commit(one) for one in timeline.instants if one > since.instant]
        # Commits that are archived are not known.
        if self._deletes and (since.instant < first or any(one.removes_rows for one in commits)):
            gone = self._deleted(now, since, commits)
        return Changes(rows, gone, self._position(now, since.attempt).to_text(), more=more)

    def _deleted(self, now: Snapshot, since: Position, later: Sequence[Commit]) -> pa.Table:
        """Return the rows that the table had at a reader's position and no longer has.

        The rows have the values that they had at the position.
        """
        try:
            require_there(now.timeline, since.instant)
            before = {*files_as_of(self._storage, now.timeline, since.instant, later)}
        except CleanedError as cleaned:
            raise _whole_table(
                self._folder,
                f"the files of commit {since.instant} may be cleaned, so deleted rows are not known"
                f" (the oldest state that is there is {cleaned.context['oldest']})",
            ) from cleaned
        after = {*now.files}
        return self._missing(
            now,
            [one for one in before if one not in after],
            self._keys(now, [one for one in after if one not in before]),
        )

    def _of_next_generation(self, former: Snapshot | None, since: Position) -> Changes:
        """Return the changes from a reader's position in a former generation to the newest commit.

        ``rows`` are the rows of the current generation whose offset is at or after the position's
        offset. ``deleted`` are the former generation's rows that the current generation lacks.

        Raises:
            WholeTableError: A change since the position may have no event at or after the
                position's offset, or the deleted rows are not known.
        """
        now = self._opened(self._pointer.current)
        next_ = now.timeline.record(now.instant)
        if reason := _difference(since, next_):
            raise _whole_table(self._folder, reason)
        ((_, offset),) = since.offsets.items()
        rows = self._rows(now, now.files, pyarrow_module("compute").field(OFFSET) >= offset)
        gone = rows.slice(0, 0)
        if self._deletes:
            if next_ is not None and next_.handoff is not None and next_.handoff.is_log:
                why = "an append table was copied again: no keys show what TRUNCATE removed"
                raise _whole_table(self._folder, why)
            if former is None:
                why = "the generation that was read is removed, so deleted rows are not known"
                raise _whole_table(self._folder, why)
            gone = self._missing(now, former.files, self._keys(now, now.files))
        return Changes(rows, gone, self._position(now, self._pointer.attempt).to_text())

    def _rows(self, at: Snapshot, files: Sequence[DataFile], where: Any) -> pa.Table:
        found = at.dataset_of(files, meta=True).to_table(filter=where)
        return found.select(at.schema(meta=self._meta).names)

    def _keys(self, at: Snapshot, files: Sequence[DataFile]) -> pa.Array:
        """Return Hudi's record keys of all rows in the given files."""
        return at.dataset_of(files, meta=True).to_table([_KEY])[_KEY]

    def _missing(self, now: Snapshot, files: Sequence[DataFile], keys: pa.Array) -> pa.Table:
        """Return the rows of the given files whose Hudi record key is not among the given keys.

        The rows have the newest columns. Rows that are marked as deleted are left out.
        """
        compute = pyarrow_module("compute")
        old = now.dataset_of(files, meta=True).to_table()
        kept = old.filter(compute.invert(compute.is_in(old[_KEY], value_set=keys)))
        if DELETED in kept.column_names:
            # The reader had these rows as deleted ones.
            kept = kept.filter(compute.invert(compute.fill_null(kept[DELETED], False)))
        return kept.select(now.schema(meta=self._meta).names)


def _difference(since: Position, next_: CommitFacts | None) -> str | None:
    """Return why a reader cannot continue in the next generation; None if the reader can."""
    handoff = None if next_ is None else next_.handoff
    known = next_ is not None and since.offsets.keys() == next_.offsets.keys()
    if next_ is None or handoff is None or len(since.offsets) != 1 or not known:
        return "the table was copied again, and its rows have no offsets of one topic partition"
    if since.topic_id != next_.topic_id:
        return "the table was copied again from a new topic"
    if since.lacks:
        return (
            f"the table was copied again, and {since.lacks} records that the former generation"
            " lacked are in the copy"
        )
    if next_.lacks and not handoff.is_log:
        return (
            f"the table was copied again, and the new generation has left out {next_.lacks}"
            " records, whose rows are perhaps in the copy"
        )
    if since.shape != handoff.shape:
        return (
            "the table was copied again after a change of its columns, its key or its files on the"
            " source"
        )
    (offset,) = since.offsets.values()
    (first,) = (handoff.handoff_offsets if handoff.is_log else handoff.start_offsets).values()
    if offset < first:
        return (
            f"the table was copied again, and the changes from offset {offset} to {first} are only"
            " in the copy"
        )
    return None


def _whole_table(folder: str, reason: str) -> WholeTableError:
    return WholeTableError(
        f"the changes of {folder} since the position cannot be known: {reason}",
        remedy="Read the whole table once: call it without a position, and replace what you have.",
        path=folder,
    )
