"""Deletes old files of Hudi's archive, in which upkeep puts the commits that no reader needs.

Each archiving makes a further file with whole commits. Hudi neither merges these files nor deletes
them: at a commit every five minutes, a table got about 2 GB of them in a year. Neither Hudi's
readers nor Tributary read them; they are for people who look for the cause of something.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from cdc.lake.data_files import file_system
from cdc.lake.storage_errors import storage_error
from cdc.runtime.spark import java_class, java_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.lake.timeline import Timeline

KEPT_DAYS = 7
"""The number of days for which archived commits are kept."""
_MOST = 200
"""Maximum number of files that are deleted at a time, since the table's lease is held meanwhile."""
_ARCHIVE = re.compile(r"\.commits_\.archive\.(\d+)(_.*)?")
"""The name of a file of the archive, with its version."""


def delete_old_archives(spark: SparkSession, timeline: Timeline) -> None:
    """Delete the files of a lake table's archive that are older than `KEPT_DAYS`.

    The file with the greatest version stays in any case: Hudi numbers the next file after it. If
    there are many old files, a later upkeep deletes the rest.

    Args:
        spark: The session whose file systems are used.
        timeline: The table's commits.

    Raises:
        LakeError: The archive cannot be listed, or a file cannot be deleted.
    """
    before = (time.time() - KEPT_DAYS * 86_400) * 1_000
    try:
        folder = java_class(spark, "org.apache.hadoop.fs.Path")(
            str(timeline.client.getArchivePath().toString())
        )
        files = file_system(spark, timeline.path)
        found = {
            int(match[1]): one
            for one in (files.listStatus(folder) if files.exists(folder) else ())
            if (match := _ARCHIVE.fullmatch(str(one.getPath().getName())))
        }
        old = [one for one in sorted(found)[:-1] if found[one].getModificationTime() < before]
        for version in old[:_MOST]:
            files.delete(found[version].getPath(), False)
    except Py4JJavaError as error:
        what = f"old archived commits of the lake table at {timeline.path} cannot be deleted"
        raise storage_error(what, java_reason(error), path=timeline.path) from error
