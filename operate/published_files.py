"""Lists the Parquet files of a published generation, for readers of plain Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from operate.lifecycle import folder_here
from tributary_reader.snapshot import published_files as files_of
from tributary_reader.storage import Entry, LocalStorage, Storage, no_file_system

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import SparkSession

    from operate.context import Services


@dataclass(frozen=True)
class PublishedFile:
    """One Parquet file of the newest commit, as ``path --files`` prints it.

    Args:
        url: The file's absolute path on the local disk, or its URL.
        partition: The file's folder below the table; empty for a table without partitions.
        size: The file's size in bytes.
        rows: The file's number of rows; None if it is not known without opening the file.
    """

    url: str
    partition: str
    size: int
    rows: int | None

    def to_json(self) -> dict[str, object]:
        """The Parquet file as plain values."""
        return {
            "path": self.url,
            "partition": self.partition,
            "size": self.size,
            "rows": self.rows,
        }


class SparkStorage:
    """A `Storage` that reads any file system of Hadoop through a Spark session.

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

    def arrow(self) -> FileSystem:
        """Raise an error, since Arrow needs Hadoop's native library for such a file system.

        Raises:
            ReadError: Always.
        """
        raise no_file_system("the lake")


def published_files(services: Services, path: str) -> list[PublishedFile]:
    """Return the Parquet files that contain the rows of a generation's newest commit.

    If the generation is on the local disk, Spark is not started.

    Args:
        services: The open services.
        path: Base path of the generation's Hudi table.

    Raises:
        ReadError: The table's files cannot be read.
        LakeError: The lake cannot be reached.
    """
    here = folder_here(services.config, path) is not None
    storage: Storage = LocalStorage() if here else SparkStorage(services.spark)
    found = files_of(path, storage)
    return [PublishedFile(one.path, one.partition, one.size, one.rows) for one in found]
