"""Finds the data files of a lake table: by the commits' metadata, or by the files' names."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cdc.runtime.spark import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.lake.timeline import Timeline

_SPECIAL = re.compile(r"[\\\[\]{}*?]")
"""Special characters in patterns of Hadoop's file systems."""

MOST_CACHED_PATHS = 100_000
"""Maximum number of paths in the cache of the files that commits have written."""


class _Cache:
    """A cache of the files that completed commits name. A completed commit never changes."""

    def __init__(self) -> None:
        self._paths: OrderedDict[tuple[str, str], frozenset[str]] = OrderedDict()
        self._lock = threading.Lock()
        self._size = 0

    def paths(self, timeline: Timeline, instant: str) -> frozenset[str]:
        """Return the paths of the files that a completed commit names.

        Args:
            timeline: The table's commits.
            instant: The instant of the commit.
        """
        key = (timeline.path, instant)
        with self._lock:
            found = self._paths.get(key)
        if found is None:
            stats = stats_of(timeline.metadata_of(instant)).values()
            found = frozenset(str(one["path"]) for listed in stats for one in listed)
            with self._lock:
                self._size += len(found) if key not in self._paths else 0
                self._paths[key] = found
                while self._size > MOST_CACHED_PATHS and len(self._paths) > 1:
                    self._size -= len(self._paths.popitem(last=False)[1])
        return found


_cache = _Cache()


def paths_of(timeline: Timeline, instant: str) -> frozenset[str]:
    """Return the paths of files that a completed Hudi commit names, relative to the table's path.

    Args:
        timeline: The table's commits.
        instant: The instant of the commit.

    Raises:
        Py4JJavaError: The commit's metadata cannot be read.
    """
    return _cache.paths(timeline, instant)


def stats_of(metadata: Any) -> Mapping[str, list[Mapping[str, Any]]]:
    """Return, for each partition, Hudi's statistics of the files in a commit.

    The statistics come as JSON, in one call to Java.
    """
    stats: Mapping[str, list[Mapping[str, Any]]] = json.loads(metadata.toJsonString())[
        "partitionToWriteStats"
    ]
    return stats


def file_system(spark: SparkSession, path: str) -> Any:
    """Return Hadoop's file system of a path in the lake."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    return java_class(spark, "org.apache.hadoop.fs.Path")(path).getFileSystem(hadoop)


def files_of(spark: SparkSession, files: Any, folders: str, instants: Iterable[str]) -> list[Any]:
    """Return the paths of a lake table's data files whose names have one of the instants.

    Args:
        spark: The session.
        files: Hadoop's file system.
        folders: A pattern of Hadoop for the folders to list.
        instants: The instants.
    """
    pattern = f"{folders}/*_{{{','.join(instants)}}}.parquet"
    path = java_class(spark, "org.apache.hadoop.fs.Path")(pattern)
    return [one.getPath() for one in files.globStatus(path) or ()]


def all_files(spark: SparkSession, path: str) -> list[str]:
    """Return the paths of all data files of a lake table, relative to the table's path."""
    root = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    listed = file_system(spark, path).listFiles(root, True)
    found = []
    while listed.hasNext():
        relative = root.toUri().relativize(listed.next().getPath().toUri()).getPath()
        if relative.endswith(".parquet") and not relative.startswith(".hoodie/"):
            found.append(str(relative))
    return found


def literal(folder: str) -> str:
    """Return a pattern of Hadoop that matches only ``folder``, a folder of a lake table."""
    return _SPECIAL.sub(r"\\\g<0>", folder)


def instant_of(file: str) -> str:
    """Return the instant in a Hudi file's name, ``<file id>_<write token>_<instant>.parquet``."""
    return file.rpartition("_")[2].partition(".")[0]
