"""Reads the files and rows of a published table, as of now or an instant, without Spark."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cdc.lake.pointer import POINTER, Pointer, Published
from tributary_reader.arrow_schema import arrow_schema
from tributary_reader.errors import CleanedError, ReadError
from tributary_reader.files import DataFile, as_of, counted, data_files, require_written
from tributary_reader.storage import Storage, pyarrow_module, storage_of
from tributary_reader.timeline import Commit, Timeline

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as pd
    from pyarrow.fs import FileSystem

_ATTEMPT = "attempt="
_SCHEMA = "schema"
_LATER = "Read a later state. readers_keep says how far back readers can ask."
_TRIES = 3
"""Maximum number of tries to open a table; a try can fail if a commit is archived during it."""


@dataclass(frozen=True)
class Snapshot:
    """A table as of one commit, for a reader.

    After later commits, the files can still be read for the time that the table's setting
    ``readers_keep`` sets.

    Args:
        path: Base path of the generation's Hudi table.
        instant: Hudi's instant of the commit, ``yyyyMMddHHmmssSSS`` in UTC.
        files: The files that hold the rows.
        timeline: The generation's commits at the time when the snapshot was opened.
        storage: The file access.
    """

    path: str
    instant: str
    files: tuple[DataFile, ...]
    timeline: Timeline
    storage: Storage

    def schema(self, *, meta: bool = False) -> pa.Schema:
        """Return the Arrow schema of the columns as of the commit.

        Args:
            meta: Whether Hudi's own columns, ``_hoodie_*``, come first.

        Raises:
            ReadError: No commit has a schema, or pyarrow is not installed.
        """
        avro = self.timeline.note(_SCHEMA, self.instant)
        if avro is None:
            raise ReadError(
                f"no commit of the Hudi table at {self.path} up to {self.instant} has a schema",
                remedy="Another program wrote it. Read it with Spark.",
                path=self.path,
            )
        return arrow_schema(avro, meta=meta)

    def dataset(self, *, meta: bool = False) -> pd.Dataset:
        """Return the rows as a dataset, which reads only the columns and rows that a query needs.

        A column is NULL in the rows of files that are older than the column.

        Args:
            meta: Whether Hudi's own columns, ``_hoodie_*``, come first.
        """
        return self.dataset_of(self.files, meta=meta)

    def dataset_of(self, files: Sequence[DataFile], *, meta: bool) -> pd.Dataset:
        """Return the rows of some files as a dataset, with the columns as of this commit."""
        datasets, schema = pyarrow_module("dataset"), self.schema(meta=meta)
        if not files:
            return datasets.dataset(schema.empty_table())
        return datasets.dataset(
            [one.path for one in files],
            schema=schema,
            format="parquet",
            filesystem=self.storage.arrow(),
        )

    def read(
        self, columns: Sequence[str] | None = None, *, where: Any = None, meta: bool = False
    ) -> pa.Table:
        """Return the rows as an Arrow table in memory.

        Args:
            columns: The columns; None for all.
            where: A filter of ``pyarrow.dataset``, for example ``field("id") > 5``; None for all
                rows.
            meta: Whether Hudi's own columns, ``_hoodie_*``, come first.
        """
        chosen = list(columns) if columns is not None else None
        return self.dataset(meta=meta).to_table(columns=chosen, filter=where)


def open_table(
    url: str, *, as_of: datetime | str | None = None, filesystem: FileSystem | None = None
) -> Snapshot:
    """Return a published table as of its newest commit, or as of an earlier one.

    Args:
        url: The table's folder, which has the pointer ``_current.json``; or the path of one
            generation, which ``tributary path`` prints.
        as_of: The time or the instant as of which the table is read; None for now. If ``url`` is
            the table's folder, the generation that was published at that time is read.
        filesystem: A pyarrow file system that has the folder; None for the local disk.

    Raises:
        ReadError: There is no such table, or the table's state as of that time no longer exists.
    """
    return _opened(storage_of(filesystem), url, _instant(as_of))


def _opened(storage: Storage, url: str, instant: str | None) -> Snapshot:
    for left in reversed(range(_TRIES)):
        try:
            path = _generation(storage, read_pointer(storage, url), instant, url)
            return snapshot(storage, path, instant)
        except ReadError:
            if not left:
                raise
    raise AssertionError("not reached")


def read_pointer(storage: Storage, url: str) -> Pointer | None:
    """Return the pointer of a table's folder for a reader; None if the folder has none.

    Raises:
        ReadError: The pointer cannot be read.
    """
    folder = storage.resolve(url)
    text = storage.text(posixpath.join(folder, POINTER))
    return None if text is None else Pointer.from_json(text, folder=folder)


def table_folder(url: str) -> str:
    """Return a table's folder; ``url`` is this folder, or the path of one of its generations."""
    parent, _, name = url.rstrip("/").rpartition("/")
    return parent if name.startswith(_ATTEMPT) else url


def _generation(storage: Storage, pointer: Pointer | None, instant: str | None, url: str) -> str:
    """Return the path of the generation that readers saw at an instant.

    Args:
        storage: The file access.
        pointer: The pointer at ``url``; None if ``url`` is a generation's own path.
        instant: The instant; None for the current generation.
        url: The path or URL that the reader was given.

    Raises:
        ReadError: The generation has been removed.
    """
    if pointer is None:
        return storage.resolve(url)
    published: tuple[Published, ...] = (pointer.current, *pointer.former)
    for one in published:
        if instant is None or f"{one.published_at:%Y%m%d%H%M%S%f}"[:17] <= instant:
            return storage.resolve(one.path)
    raise ReadError(
        f"{_gone_text(url, str(instant))}: the generation that readers saw then is removed",
        remedy=_LATER,
        path=url,
    )


def snapshot(storage: Storage, path: str, instant: str | None = None) -> Snapshot:
    """Return a reader's snapshot of a generation at an instant, or at its newest commit.

    Raises:
        ReadError: There is no such table; another process has rolled back a completed commit; the
            files of the instant may be deleted; or the copy was not complete at the instant.
    """
    timeline = Timeline(storage, path)
    wanted = min(timeline.newest, instant or timeline.newest)
    require_there(timeline, wanted)
    commit = max(one for one in timeline.instants if one <= wanted)
    _require_whole(timeline, commit)
    files = files_as_of(storage, timeline, commit, [timeline.commit(commit)])
    return Snapshot(path, commit, tuple(files), timeline, storage)


def files_as_of(
    storage: Storage, timeline: Timeline, instant: str, commits: Sequence[Commit]
) -> list[DataFile]:
    """Return the files that a reader opens for an instant of a generation, sorted by path.

    Args:
        storage: The file access.
        timeline: The generation's commits, which were read before this call.
        instant: The instant of a commit.
        commits: The commits to check with :func:`tributary_reader.files.require_written`.

    Raises:
        CleanedError: A cleaning may have deleted files that the table had at the instant.
        ReadError: Another process has rolled back a completed commit, or a file is missing.
    """
    listed = data_files(storage, timeline.path)
    require_there(timeline.again(), instant)
    files = as_of(listed, timeline, instant)
    require_written(files, timeline, instant, commits)
    return files


def require_there(timeline: Timeline, instant: str) -> None:
    """Check that neither a cleaning nor a rollback can have removed a file of an instant.

    Raises:
        CleanedError: A cleaning may have deleted files that the table had at the instant.
        ReadError: Another process has rolled back a completed commit.
    """
    if undone := timeline.undone:
        raise ReadError(
            f"commit {min(undone)} of the Hudi table at {timeline.path} was rolled back while it"
            " completed; files of it are missing",
            remedy="Run `tributary run` for the table, which marks it, then `tributary bootstrap`.",
            path=timeline.path,
        )
    if instant < (oldest := timeline.complete_from):
        raise CleanedError(
            f"{_gone_text(timeline.path, instant)}: the oldest state that is there is {oldest}",
            remedy=_LATER,
            path=timeline.path,
            oldest=oldest,
        )


def _require_whole(timeline: Timeline, instant: str) -> None:
    """Check that a generation, as of a commit, has the whole copy and all events before H.

    Raises:
        ReadError: The copy was not complete, or some events before H were not applied yet.
    """
    record = timeline.record(instant)
    if record is None:
        return
    upto = {} if record.handoff is None else record.handoff.handoff_offsets
    if record.kind == "chunk" or any(record.offsets.get(p, 0) < end for p, end in upto.items()):
        raise ReadError(
            f"the Hudi table at {timeline.path} is a part of a table as of {instant}: its copy was"
            " not complete yet",
            remedy="Read a later state; or give the table's own folder, where a time means the"
            " generation that readers saw then.",
            path=timeline.path,
        )


def published_files(path: str, storage: Storage | None = None) -> list[DataFile]:
    """Return the files that readers open in a generation now, with their numbers of rows.

    Neither Spark nor pyarrow is needed. But without pyarrow, the number of rows is None for a file
    whose commit is archived.

    Args:
        path: Base path of the generation's Hudi table.
        storage: The file access; None for the local disk.

    Raises:
        ReadError: There is no such table, or the table cannot be read.
    """
    opened = _opened(storage or storage_of(None), path, None)
    files = counted(opened.files, opened.timeline)
    if all(one.rows is not None for one in files):
        return files
    try:
        parquet, filesystem = pyarrow_module("parquet"), opened.storage.arrow()
    except ReadError:
        return files
    return [
        one
        if one.rows is not None
        else replace(one, rows=parquet.read_metadata(one.path, filesystem=filesystem).num_rows)
        for one in files
    ]


def _instant(as_of: datetime | str | None) -> str | None:
    """Convert a time to Hudi's instant; return an instant or None unchanged.

    Raises:
        ReadError: The time has no time zone, or the string is not an instant.
    """
    if isinstance(as_of, datetime) and as_of.tzinfo is not None:
        return f"{as_of.astimezone(timezone.utc):%Y%m%d%H%M%S%f}"[:17]
    if as_of is None or (isinstance(as_of, str) and len(as_of) == 17 and as_of.isdecimal()):
        return as_of
    raise ReadError(
        f"{as_of!r} is no instant",
        remedy="Give a datetime with a time zone, or an instant of 17 digits in UTC.",
    )


def _gone_text(path: str, instant: str) -> str:
    return f"the state of {path} as of {instant} is no longer there"
