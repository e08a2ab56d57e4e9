"""Publishes generations to readers and manages a table's folders, on any Hadoop file system."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from cdc.errors import LakeError
from cdc.lake.pointer import (
    POINTER,
    Pointer,
    Published,
    local_folder,
    moved,
    read_local,
    replace_local,
)
from cdc.lake.storage_errors import storage_error
from cdc.runtime.failpoints import crash
from cdc.runtime.spark import java_class, java_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.lake.ownership import Ownership

_RENAMES = frozenset({"hdfs", "viewfs"})
"""Schemes of file systems that replace an existing file by a rename in one step."""

ATTEMPT = "attempt="
"""Prefix of the name of an attempt's folder; the attempt's UUID follows."""


def attempt_path(table_base: str, attempt: uuid.UUID | str) -> str:
    """Return the base path of an attempt's own Hudi table."""
    return f"{table_base}/{ATTEMPT}{attempt}"


def write_pointer(
    spark: SparkSession,
    table_base: str,
    shown: Published,
    *,
    check: Callable[[], None] | None = None,
    replaces: Callable[[Pointer | None], None] = lambda _: None,
) -> Pointer:
    """Publish a generation in the lake in one step, and return the new pointer.

    Before this step, readers see the former pointer; after it, they see the new one.

    Args:
        spark: The session whose file systems are used.
        table_base: Folder of the table, which holds all its generations.
        shown: The generation to publish.
        check: Called just before and just after the pointer is written. It raises FencedError if
            this process no longer holds the table's lease, the right to write to the table.
        replaces: Called with the present pointer, or None. It raises an error if this process
            must not replace this pointer (`cdc.lake.ownership.Ownership.require`).

    Raises:
        OtherInstallationError: Another installation has published the present generation.
        FencedError: This process no longer holds the table's lease. The pointer may name ``shown``
            already. If so, the table's next run stops, since the state store's record names another
            generation.
        ReplacedGenerationError: Another generation has replaced ``shown``.
        LakeError: The pointer cannot be read or written.
    """
    check = check or (lambda: None)
    former = read_pointer(spark, table_base)
    replaces(former)
    pointer = moved(former, shown)
    with _lake_folder(spark, table_base) as (files, folder):
        # The pointer drops former generations whose folders were removed.
        there = [one for one in pointer.former if files.exists(_hadoop_path(spark, one.path))]
        pointer = replace(pointer, former=tuple(there))
        check()
        _replace_lake_file(spark, files, folder, POINTER, pointer.to_json())
        check()
    return pointer


def read_pointer(spark: SparkSession, table_base: str) -> Pointer | None:
    """Return the pointer of a lake table; None if the table has no published generation.

    Raises:
        LakeError: The file cannot be read.
    """
    text = read_file(spark, table_base, POINTER)
    return None if text is None else Pointer.from_json(text, folder=table_base)


def read_file(spark: SparkSession, folder_path: str, name: str) -> bytes | None:
    """Return the content of a file in a lake folder; None if there is no such file.

    Raises:
        LakeError: The file cannot be read.
    """
    with _lake_folder(spark, folder_path) as (files, folder):
        target = _hadoop_child_path(spark, folder, name)
        try:
            stream = files.open(target)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()
        except Py4JJavaError as error:
            # On a local disk, Hadoop reports a file without read permission as not found, too.
            absent = error.java_exception.getClass().getName() == "java.io.FileNotFoundException"
            if absent and not files.exists(target):
                return None
            raise


def write_file(spark: SparkSession, folder_path: str, name: str, text: str) -> None:
    """Write a small file in a lake folder, in one step, in place of an earlier file of that name.

    Raises:
        LakeError: The file cannot be written.
    """
    with _lake_folder(spark, folder_path) as (files, folder):
        _replace_lake_file(spark, files, folder, name, text)


def folder_exists(spark: SparkSession, path: str) -> bool:
    """Whether a folder exists in the lake.

    In an object store, a folder exists if there is an object below its path.

    Raises:
        LakeError: The path cannot be accessed.
    """
    with _lake_folder(spark, path) as (files, folder):
        return bool(files.exists(folder))


def list_files(spark: SparkSession, path: str, *, recursive: bool) -> Iterator[tuple[str, int]]:
    """Yield the relative path and the size in bytes of each file in a lake folder.

    Yield nothing if the folder does not exist.

    Args:
        spark: The session whose file systems are used.
        path: The folder.
        recursive: Whether the files in all of its subfolders are listed, too.

    Raises:
        LakeError: The folder cannot be read.
    """
    with _lake_folder(spark, path) as (files, folder):
        if not files.exists(folder):
            return
        base = str(files.makeQualified(folder).toString())
        listed = files.listFiles(folder, recursive)
        while listed.hasNext():
            status = listed.next()
            file = str(status.getPath().toString())
            yield file[len(base) :].lstrip("/"), int(status.getLen())


def current_path(table_base: str, spark: SparkSession | None = None) -> str | None:
    """Return the base path of the Hudi table for readers to open.

    The result is None if no generation of the table is published.

    Args:
        table_base: Folder of the table under the lake's URL.
        spark: A session whose file systems reach the folder; not needed for a local folder.

    Raises:
        LakeError: The pointer cannot be read. Or the folder is not local and no session is given.
    """
    if spark is not None:
        pointer = read_pointer(spark, table_base)
    elif (folder := local_folder(table_base)) is not None:
        pointer = read_local(folder)
    else:
        raise LakeError(
            f"{table_base} is not on this machine",
            remedy="Give a Spark session that can read it as well.",
            path=table_base,
        )
    return pointer.path if pointer else None


def attempt_folders(spark: SparkSession, table_base: str) -> dict[str, int]:
    """Return the sizes of attempts' lake folders, as a mapping from UUIDs to sizes in bytes.

    Raises:
        LakeError: The table's folder cannot be read.
    """
    found = {}
    with _lake_folder(spark, table_base) as (files, _):
        for attempt in attempt_names(spark, table_base):
            summary = files.getContentSummary(
                _hadoop_path(spark, attempt_path(table_base, attempt))
            )
            found[attempt] = int(summary.getLength())
    return found


def attempt_names(spark: SparkSession, table_base: str) -> list[str]:
    """Return the UUIDs of all attempts that have a folder in the lake.

    Raises:
        LakeError: The table's folder cannot be read.
    """
    folders = (name for name, is_file in _folder_entries(spark, table_base) if not is_file)
    return [name.removeprefix(ATTEMPT) for name in folders if name.startswith(ATTEMPT)]


def _folder_entries(spark: SparkSession, path: str) -> list[tuple[str, bool]]:
    """Return the name of each entry of a lake folder, and whether the entry is a file.

    The result is empty if there is no such folder.
    """
    with _lake_folder(spark, path) as (files, folder):
        if not files.exists(folder):
            return []
        return [
            (str(status.getPath().getName()), bool(status.isFile()))
            for status in files.listStatus(folder)
        ]


def attempts_there(spark: SparkSession, table_base: str, attempts: Iterable[str]) -> list[str]:
    """Return the attempts whose folder exists in the lake.

    Only the folders of ``attempts`` are looked up; the table's folder is not listed.

    Raises:
        LakeError: The lake cannot be accessed.
    """
    with _lake_folder(spark, table_base) as (files, _):
        return [
            one
            for one in attempts
            if files.exists(_hadoop_path(spark, attempt_path(table_base, one)))
        ]


def delete_attempts(spark: SparkSession, table_base: str, attempts: Iterable[str]) -> None:
    """Delete the lake folders of attempts; skip folders that are gone.

    The caller holds the table's lease.

    Raises:
        LakeError: A folder cannot be deleted.
    """
    for attempt in attempts:
        crash("generations.before_delete")
        delete_path(spark, attempt_path(table_base, attempt))
        crash("generations.after_delete")


def delete_path(spark: SparkSession, path: str) -> bool:
    """Delete a folder of the lake with its content.

    Returns:
        Whether the folder existed.

    Raises:
        LakeError: The folder cannot be deleted, or is the root of a file system.
    """
    with _lake_folder(spark, path) as (files, folder):
        if folder.isRoot() or folder.getParent() is None:
            raise LakeError(
                f"{path} is the root of a file system, and is not deleted",
                remedy="Name the folder of a table.",
                path=path,
            )
        return bool(files.delete(folder, True))


def delete_table(
    spark: SparkSession, table_base: str, owner: Ownership, *, besides: Collection[str] = ()
) -> list[str]:
    """Delete the pointer and the attempts' folders that an installation owns of a lake table.

    If nothing else is left in the table's folder, it is deleted, too. The caller holds the table's
    lease.

    Args:
        spark: The session whose file systems are used.
        table_base: Folder of the table.
        owner: What the installation owns of the table.
        besides: Names of entries that are deleted with the folder if nothing else is left in it.

    Returns:
        The names of the other entries, because of which the folder stays; empty if the folder was
        deleted.

    Raises:
        LakeError: The pointer cannot be read, or something cannot be deleted.
    """
    pointer = read_pointer(spark, table_base)
    # Remove the pointer first: a pointer to a removed table would look like a lost table.
    if pointer is not None and not owner.is_other(pointer.attempt):
        delete_path(spark, f"{table_base}/{POINTER}")
    attempts = attempt_names(spark, table_base)
    delete_attempts(spark, table_base, [one for one in attempts if not owner.is_other(one)])
    # A hidden file is a pointer that a killed process has not put in its place.
    entries = [
        one for one in _folder_entries(spark, table_base) if not (one[1] and one[0][0] == ".")
    ]
    left = [name for name, _ in entries if name not in besides]
    if not left:
        delete_path(spark, table_base)
    return left


def has_commit(spark: SparkSession, path: str, instant: str) -> bool:
    """Whether a Hudi table has a completed commit with this instant.

    A commit that is older than the active timeline counts as complete: Hudi has archived it.
    The newest commit of an idle shard can be that old, since other shards commit to the same table.

    Raises:
        LakeError: The table's folder cannot be read.
    """
    with _lake_folder(spark, path) as (files, folder):
        actions = (".commit", ".replacecommit")
        if any(
            files.exists(_hadoop_child_path(spark, folder, f".hoodie/{instant}{end}"))
            for end in actions
        ):
            return True
        timeline = _hadoop_child_path(spark, folder, ".hoodie")
        if not files.exists(timeline):
            return False
        names = (str(entry.getPath().getName()) for entry in files.listStatus(timeline))
        active = (name.partition(".")[0] for name in names if name.endswith(actions))
        return instant < min(active, default="")


def probe(spark: SparkSession, url: str) -> None:
    """Write and remove a file under ``url``, to check that the lake allows both.

    Raises:
        LakeError: The file cannot be written or removed.
    """
    with _lake_folder(spark, url) as (files, folder):
        file = _hadoop_child_path(spark, folder, f".tributary-check-{uuid.uuid4().hex}")
        _write_lake_file(files, file, "")
        files.delete(file, False)


@contextmanager
def _lake_folder(spark: SparkSession, path: str) -> Iterator[tuple[Any, Any]]:
    """Yield Hadoop's FileSystem and Path objects for a path of the lake.

    An error of Java in the ``with`` block is raised as a LakeError.
    """
    try:
        folder = _hadoop_path(spark, path)
        yield folder.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), folder
    except (Py4JError, PySparkException) as error:
        reason = java_reason(error)
        raise storage_error(f"{path} cannot be accessed", reason, path=path) from error


def _hadoop_path(spark: SparkSession, path: str) -> Any:
    """Return Hadoop's Path object for a path of the lake."""
    return java_class(spark, "org.apache.hadoop.fs.Path")(path)


def _hadoop_child_path(spark: SparkSession, folder: Any, name: str) -> Any:
    """Return Hadoop's Path object for an entry of a lake folder."""
    return java_class(spark, "org.apache.hadoop.fs.Path")(folder, name)


def _replace_lake_file(spark: SparkSession, files: Any, folder: Any, name: str, text: str) -> None:
    """Replace the pointer or another small lake file in one step, so that no reader misses it.

    - On a local disk, the operating system renames a new file over the old one.
    - On HDFS, Hadoop renames a new file over the old one in one step.
    - In an object store, Hadoop's rename over a file is a delete and then a rename. But a file is
      visible only after its last byte is written, so the file is written in place. Azure's store
      (abfs) is an exception: readers can find an empty file for a moment.
    """
    scheme = str(files.getUri().getScheme())
    if scheme == "file":
        replace_local(Path(str(folder.toUri().getPath())), text, name=name)
        return
    target = _hadoop_child_path(spark, folder, name)
    if scheme not in _RENAMES:
        _write_lake_file(files, target, text)
        return
    staged = _hadoop_child_path(spark, folder, f".{name}.{uuid.uuid4().hex}")
    _write_lake_file(files, staged, text)
    context = java_class(spark, "org.apache.hadoop.fs.FileContext").getFileContext(
        folder.toUri(), spark.sparkContext._jsc.hadoopConfiguration()
    )
    options = java_class(spark, "org.apache.hadoop.fs.Options$Rename")
    gateway: Any = spark.sparkContext._gateway
    overwrite = gateway.new_array(options, 1)
    overwrite[0] = options.OVERWRITE
    context.rename(staged, target, overwrite)


def _write_lake_file(files: Any, target: Any, text: str) -> None:
    """Write a text into a lake file through Hadoop, in place of the file's former content."""
    stream = files.create(target, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()
