"""Where readers find a table: one small file that names the published generation's path."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from cdc.errors import LakeError
from cdc.spark import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTER = "_current.json"
"""Name of the pointer file in a table's folder."""


@dataclass(frozen=True)
class Pointer:
    """The published generation of a table.

    Args:
        path: Base path of its Hudi table.
        generation: Its number, from 1.
        attempt: UUID of the bootstrap attempt that wrote it.
        published_at: When it was published, aware UTC.
    """

    path: str
    generation: int
    attempt: str
    published_at: datetime


def write_pointer(
    spark: SparkSession, table_base: str, *, path: str, generation: int, attempt: str
) -> Pointer:
    """Show a generation to readers, in one step where the file system renames atomically.

    Args:
        spark: The session whose file systems are used.
        table_base: Folder of the table, which holds all its generations.
        path: Base path of the generation's Hudi table.
        generation: Its number.
        attempt: UUID of its bootstrap attempt.

    Raises:
        LakeError: The file cannot be written.
    """
    pointer = Pointer(path, generation, attempt, datetime.now(timezone.utc))
    document = json.dumps(
        {
            "path": pointer.path,
            "generation": pointer.generation,
            "attempt": pointer.attempt,
            "published_at": pointer.published_at.isoformat(),
        },
        indent=2,
    )
    with _files(spark, table_base) as (files, folder):
        target = _child(spark, folder, POINTER)
        staged = _child(spark, folder, f".{POINTER}.{uuid.uuid4().hex}")
        _write(files, staged, document)
        # Rename.OVERWRITE is atomic on HDFS and local disks; an object store's write already is.
        context = java_class(spark, "org.apache.hadoop.fs.FileContext").getFileContext(
            folder.toUri(), spark.sparkContext._jsc.hadoopConfiguration()
        )
        options = java_class(spark, "org.apache.hadoop.fs.Options$Rename")
        gateway: Any = spark.sparkContext._gateway
        overwrite = gateway.new_array(options, 1)
        overwrite[0] = options.OVERWRITE
        context.rename(staged, target, overwrite)
    return pointer


def read_pointer(spark: SparkSession, table_base: str) -> Pointer | None:
    """The published generation, or None when the table has none.

    Raises:
        LakeError: The file cannot be read.
    """
    with _files(spark, table_base) as (files, folder):
        target = _child(spark, folder, POINTER)
        if not files.exists(target):
            return None
        stream = files.open(target)
        try:
            text = bytes(stream.readAllBytes()).decode("utf-8")
        finally:
            stream.close()
    try:
        values = json.loads(text)
        published_at = datetime.fromisoformat(values["published_at"])
        return Pointer(values["path"], values["generation"], values["attempt"], published_at)
    except (ValueError, KeyError, TypeError) as error:
        raise LakeError(
            f"{table_base}/{POINTER} is not a pointer to a table: {error}",
            remedy="Something else wrote it; restore it, or bootstrap the table again.",
            path=table_base,
        ) from error


def current_path(spark: SparkSession, table_base: str) -> str | None:
    """Base path of the published Hudi table, or None when none is published."""
    pointer = read_pointer(spark, table_base)
    return pointer.path if pointer else None


def remove_pointer(spark: SparkSession, table_base: str) -> None:
    """Hide the table from readers; its data stays."""
    with _files(spark, table_base) as (files, folder):
        files.delete(_child(spark, folder, POINTER), False)


def delete_path(spark: SparkSession, path: str) -> bool:
    """Delete a folder and all that is in it.

    Returns:
        Whether there was anything.

    Raises:
        LakeError: It cannot be deleted, or it is the root of a file system.
    """
    with _files(spark, path) as (files, folder):
        if folder.isRoot() or folder.getParent() is None:
            raise LakeError(
                f"{path} is the root of a file system, and is not deleted",
                remedy="Name the folder of a table.",
                path=path,
            )
        return bool(files.delete(folder, True))


def probe(spark: SparkSession, url: str) -> None:
    """Write and remove a file under ``url``.

    Raises:
        LakeError: The place is not writable.
    """
    with _files(spark, url) as (files, folder):
        file = _child(spark, folder, f".tributary-check-{uuid.uuid4().hex}")
        _write(files, file, "")
        files.delete(file, False)


@contextmanager
def _files(spark: SparkSession, path: str) -> Iterator[tuple[Any, Any]]:
    """The Hadoop file system of ``path`` and the path; Java errors become LakeError."""
    try:
        folder = java_class(spark, "org.apache.hadoop.fs.Path")(path)
        yield folder.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), folder
    except Py4JJavaError as error:
        raise LakeError(
            f"{path} cannot be accessed: {error.java_exception}",
            remedy="Check the lake's URL, its credentials (lake.hadoop) and its permissions.",
            path=path,
        ) from error


def _child(spark: SparkSession, folder: Any, name: str) -> Any:
    return java_class(spark, "org.apache.hadoop.fs.Path")(folder, name)


def _write(files: Any, target: Any, text: str) -> None:
    stream = files.create(target, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()
