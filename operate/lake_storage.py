"""How commands reach the lake's files: local files without Spark, all others through Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cdc.config.lake import HADOOP_PREFIX
from cdc.lake.pointer import local_folder
from tributary_reader.storage import Entry, LocalStorage, Storage, no_file_system

if TYPE_CHECKING:
    from pathlib import Path

    from pyarrow.fs import FileSystem
    from pyspark.sql import SparkSession

    from cdc.config import Config
    from operate.context import Services

_DEFAULT = frozenset({"fs.defaultFS", "fs.default.name"})
"""Hadoop settings that define the meaning of a path without a scheme."""


class SparkStorage:
    """A `Storage` that uses any file system of Hadoop through a Spark session.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def resolve(self, url: str) -> str:
        """Return the URL unchanged, since Hadoop accepts every URL of the lake."""
        return url

    def text(self, path: str) -> bytes | None:
        """Return the content of a file; None if there is no such file."""
        from cdc.lake.publish import read_file

        folder, _, name = path.rpartition("/")
        return read_file(self._spark, folder, name)

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; empty if there is no such folder."""
        from cdc.lake.publish import list_files

        return [name for name, _ in list_files(self._spark, folder, recursive=False)]

    def below(self, folder: str) -> Iterator[Entry]:
        """Yield all files below a folder; yield nothing if there is no such folder."""
        from cdc.lake.publish import list_files

        for name, size in list_files(self._spark, folder, recursive=True):
            yield Entry(name, size)

    def write(self, folder: str, name: str, text: str) -> None:
        """Write a small file in a folder; replace an earlier file of this name."""
        from cdc.lake.publish import write_file

        write_file(self._spark, folder, name, text)

    def remove(self, path: str) -> bool:
        """Remove a file; return whether there was one."""
        from cdc.lake.publish import delete_path

        return delete_path(self._spark, path)

    def arrow(self) -> FileSystem:
        """Raise an error, since Arrow needs Hadoop's native library for Hadoop's file systems.

        Raises:
            ReadError: Always.
        """
        raise no_file_system("the lake")


def lake_storage(services: Services, url: str) -> Storage:
    """Return a command's access to a lake URL's files; start Spark if the files are not local."""
    here = folder_here(services.config, url) is not None
    return LocalStorage() if here else SparkStorage(services.spark)


def folder_here(config: Config, url: str) -> Path | None:
    """Return a lake URL's folder for commands without Spark; None if the folder is not local.

    If the configuration sets Hadoop's default file system (``fs.defaultFS``), the result is None
    for every URL.
    """
    given = {*config.lake.hadoop, *(key.removeprefix(HADOOP_PREFIX) for key in config.spark.conf)}
    return None if _DEFAULT & given else local_folder(url)
