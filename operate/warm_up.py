"""`warm-up`: makes the archive of Java classes from which later commands start Spark faster.

A child process runs this module. Its Spark session writes, changes and reads a small lake table, so
that the JVM loads the classes that a run needs. The JVM writes these classes into the archive.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc.config import Config, TableSettings
from cdc.lake.commit import CommitRecord
from cdc.lake.index import SnapshotSize
from cdc.lake.timeline import Timeline
from cdc.lake.write import LakeTable
from cdc.runtime import spark
from cdc.runtime.class_archive import (
    archive_prefix,
    find_archive,
    record,
    recording_options,
)
from cdc.runtime.jars import spark_jars
from cdc.runtime.java import find_java
from cdc.runtime.local_frame import local_frame
from cdc.runtime.progress import Progress
from schemas.table import Column, TableId, TableSchema

_MODULE = "operate.warm_up"
_LIMIT_S = 600.0
_END_S = 300.0
"""Longest time that a JVM may take to write the archive, in seconds."""
_TABLE = TableId("warmup", "public", "table")
_COLUMNS = {"id": "bigint", "name": "string", "price": "decimal(10,2)", "at": "timestamp"}


@dataclass(frozen=True)
class WarmUp:
    """The result of ``warm-up``.

    Args:
        archive: The archive of classes.
        made: Whether this command made the archive; False if the archive existed before.
        bytes: Size of the archive.
    """

    archive: Path
    made: bool
    bytes: int


def warm_up(progress: Progress) -> WarmUp:
    """Make, for ``warm-up``, the archive of classes for Java and Spark's jars, unless it exists.

    Raises:
        ArtifactError: The jars cannot be fetched.
        ClassArchiveError: The cache cannot be written, or no archive was made.
        JavaError: There is no Java 17.
    """
    prefix = archive_prefix(find_java(), spark_jars())
    found = find_archive(prefix)
    archive = found or record(prefix, _MODULE, progress, timeout_s=_LIMIT_S)
    return WarmUp(archive, found is None, archive.stat().st_size)


def training_config(archive: Path, folder: Path) -> Config:
    """Return the configuration of the Spark session in which ``warm-up`` records loaded classes.

    The servers that the configuration names do not exist.

    Args:
        archive: The archive that the session's JVM writes when it ends.
        folder: Holds the lake and scratch files.
    """
    nowhere = {"host": "localhost", "database": "nowhere"}
    admin = {"admin": {"user": "nobody"}}
    return Config.model_validate(
        {
            "sources": {
                _TABLE.source: {"kind": "postgres", "primary": nowhere, "credentials": admin}
            },
            "kafka": {
                "bootstrap_servers": "localhost:9092",
                "registry": {"url": "http://localhost:8081"},
            },
            "connect": {"url": "http://localhost:8083"},
            "lake": {"url": (folder / "lake").as_uri()},
            "spark": {
                "master": "local[2]",
                "conf": {
                    "spark.driver.extraJavaOptions": recording_options(archive),
                    "spark.local.dir": str(folder / "scratch"),
                    "spark.sql.warehouse.dir": str(folder / "warehouse"),
                },
            },
        }
    )


def train(archive: Path, folder: Path) -> None:
    """Write, change and read a small lake table, while ``warm-up`` records the loaded classes.

    Args:
        archive: The archive that the session's JVM writes when it ends.
        folder: Holds the table.
    """
    session = spark.session(training_config(archive, folder), "tributary-warm-up")
    schema = TableSchema(
        _TABLE, tuple(Column(name, kind, kind) for name, kind in _COLUMNS.items()), ("id",)
    )
    table = LakeTable(session, (folder / "lake" / "table").as_uri(), schema, TableSettings())
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in table.layout.input_columns)
    for turn in range(3):
        operation = "u" if turn else "r"
        # Values of the meta columns, in the order of `input_columns`, then the table's own.
        rows = [
            (operation, None, f"{turn:016x}", turn, 1, None, key, f"row {key}", None, None)
            for key in range(100)
        ]
        frame = local_frame(session, rows, ddl)
        if turn == 0:
            chunk = CommitRecord(kind="chunk", table=_TABLE, attempt="warm-up", chunk_ids=(0,))
            table.bulk_insert(frame, chunk, _accept_commit, SnapshotSize(100, 10_000, 1))
        else:
            run = CommitRecord(kind="run", table=_TABLE, attempt="warm-up", offsets={0: turn})
            table.upsert(frame, run, _accept_commit)
    table.read().collect()


def _accept_commit(_timeline: Timeline) -> None:
    """Accept every commit to the table of ``warm-up``, since no other process writes to it."""


def main(arguments: Sequence[str]) -> int:
    """Run the child's part of ``warm-up``, and return the exit code of its JVM."""
    archive, folder = map(Path, arguments)
    train(archive, folder)
    return spark.end_jvm(_END_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
