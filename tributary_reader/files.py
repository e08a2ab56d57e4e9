"""Finds the data files that have a table's rows as of a commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tributary_reader.errors import ReadError
from tributary_reader.storage import Entry, Storage
from tributary_reader.timeline import Commit, Timeline


@dataclass(frozen=True)
class DataFile:
    """One Parquet file that a reader of a table opens.

    Args:
        path: Absolute path on the storage.
        partition: The file's folder below the table, for example ``region=eu``; empty for a table
            without partitions.
        size: Size in bytes.
        group: Hudi's id of the file group. Later versions of the file have the same id.
        instant: The instant of the commit that wrote the file.
        rows: Number of rows; None if the number is not known without opening the file.
    """

    path: str
    partition: str
    size: int
    group: str
    instant: str
    rows: int | None = None

    @classmethod
    def of(cls, base: str, entry: Entry) -> DataFile | None:
        """Return an entry of a listing as a data file; None if the entry is no data file."""
        partition, _, name = entry.path.rpartition("/")
        stem, dot, suffix = name.rpartition(".")
        parts = stem.rsplit("_", 2)
        if not dot or suffix != "parquet" or len(parts) != 3 or name.startswith("."):
            return None
        if entry.path.startswith(".hoodie/"):
            return None
        group, _, instant = parts
        return cls(f"{base}/{entry.path}", partition, entry.size, group, instant)


def data_files(storage: Storage, path: str) -> list[DataFile]:
    """Return all Parquet files below a table's folder, also files of incomplete commits.

    The caller must read the timeline before this call, so that the result has all files of the
    timeline's commits.
    """
    found = (DataFile.of(path, entry) for entry in storage.below(path))
    return [one for one in found if one is not None]


def as_of(files: Iterable[DataFile], timeline: Timeline, instant: str) -> list[DataFile]:
    """Return the files that a reader opens for an instant, sorted by path.

    Args:
        files: The result of :func:`data_files`.
        timeline: The table's commits, which were read before the files.
        instant: The instant. It must not be before :attr:`Timeline.complete_from`, since files of
            an earlier state may have been deleted.
    """
    replaced = timeline.replaced_upto(instant)
    newest: dict[tuple[str, str], DataFile] = {}
    for one in files:
        group = (one.partition, one.group)
        if one.instant > instant or group in replaced or not timeline.is_committed(one.instant):
            continue
        if group not in newest or newest[group].instant < one.instant:
            newest[group] = one
    return sorted(newest.values(), key=lambda one: one.path)


def require_written(
    files: Iterable[DataFile], timeline: Timeline, instant: str, commits: Iterable[Commit]
) -> None:
    """Check that no data file of the given commits is missing among the files as of an instant.

    Args:
        files: The result of :func:`as_of`.
        timeline: The table's commits.
        instant: The instant of the files.
        commits: The commits to check. If a commit is not after the instant, ``files`` must have
            each file version that the commit wrote, or a newer version of the file. If a commit is
            after the instant, ``files`` must have each file version that the commit replaced, or a
            newer version; a replaced version that is itself after the instant is not required.

    Raises:
        ReadError: A file is missing.
    """
    replaced = timeline.replaced_upto(instant)
    there = {(one.partition, one.group): one.instant for one in files}
    for commit in commits:
        for stat in commit.stats:
            wrote = DataFile.of(timeline.path, Entry(str(stat.get("path") or ""), 0))
            if wrote is None or (group := (wrote.partition, wrote.group)) in replaced:
                continue
            # Hudi writes "null" for a file without a former version.
            former = str(stat.get("prevCommit") or "null")
            version = commit.instant if commit.instant <= instant else former
            if there.get(group, "") < version <= instant:
                raise ReadError(
                    f"the version {version} of file {'/'.join(filter(None, group))} is missing in"
                    f" the Hudi table at {timeline.path}: commit {commit.instant} names it",
                    remedy="Read again. If the file stays away, run `tributary resync`, which"
                    " copies the table again.",
                    path=timeline.path,
                )


def counted(files: Iterable[DataFile], timeline: Timeline) -> list[DataFile]:
    """Return the files with their numbers of rows; None for a file whose commit is archived."""
    known = set(timeline.instants)
    rows: dict[tuple[str, str], int] = {}
    listed = list(files)
    for instant in {one.instant for one in listed} & known:
        for stat in timeline.commit(instant).stats:
            rows[instant, str(stat["path"]).rpartition("/")[2]] = int(stat["numWrites"])
    return [
        replace(one, rows=rows.get((one.instant, one.path.rpartition("/")[2]))) for one in listed
    ]
