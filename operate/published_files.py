"""Lists the Parquet files of a published generation, for readers of plain Parquet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from operate.lake_storage import lake_storage
from tributary_reader.snapshot import published_files as files_of

if TYPE_CHECKING:
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
    found = files_of(path, lake_storage(services, path))
    return [PublishedFile(one.path, one.partition, one.size, one.rows) for one in found]
