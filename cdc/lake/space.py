"""Measures a table in the lake: the files of its newest image, and all other files."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from cdc.lake.publish import attempt_folders, attempt_path
from cdc.lake.storage_errors import storage_error
from cdc.lake.timeline import Timeline
from cdc.runtime.spark import java_class, java_reason
from cdc.store.table_state import LakeSize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def measure(spark: SparkSession, table_base: str, attempt: str) -> LakeSize:
    """Return the sizes of a lake table's newest image and of the table's other files.

    The other files of the current attempt and the other attempts' folders have a size each.

    Args:
        spark: The session whose file systems are used.
        table_base: Folder of the table, which holds all its generations.
        attempt: UUID of the table's current attempt.

    Raises:
        LakeError: The lake cannot be read.
    """
    image = _newest_image_bytes(spark, attempt_path(table_base, attempt))
    folders = attempt_folders(spark, table_base)
    own = folders.pop(attempt, 0)
    return LakeSize(image, max(0, own - image), sum(folders.values()), datetime.now(timezone.utc))


def _newest_image_bytes(spark: SparkSession, path: str) -> int:
    """Return the size of the files of a Hudi table's newest image, in bytes."""
    timeline = Timeline(spark, path)
    if not timeline.exists:
        return 0
    common = "org.apache.hudi.common."
    try:
        context = java_class(spark, "org.apache.hudi.client.common.HoodieSparkEngineContext")
        config = java_class(spark, common + "config.HoodieMetadataConfig").newBuilder()
        views = java_class(spark, common + "table.view.FileSystemViewManager")
        view = views.createInMemoryFileSystemView(
            context(spark.sparkContext._jsc), timeline.client, config.enable(False).build()
        )
        try:
            view.loadAllPartitions()
            files = view.getLatestBaseFiles().iterator()
            total = 0
            while files.hasNext():
                total += int(files.next().getFileSize())
            return total
        finally:
            view.close()
    except Py4JError as error:
        raise storage_error(
            f"the files of the lake table at {path} cannot be listed",
            java_reason(error),
            path=path,
        ) from error
