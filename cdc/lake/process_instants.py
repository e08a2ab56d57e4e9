"""Lets commits go on after this machine's clock was set back below a running process.

Hudi keeps the last instant of the process in a variable of the JVM. It takes the time again and
again until the time is greater than that. So after the clock was set back by an hour, each commit
of each table would wait for an hour, in a loop that nothing ends. The variable only has to keep two
commits of one table apart, and the write does that by the table's own commits (`cdc.lake.client`).
So it is set to the present time if it lies ahead.

A writer that is inside that loop while the clock is set back stays there until the clock has caught
up. It takes the time in less than a millisecond, once for each commit.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from cdc.lake.instants import ahead_of_clock
from cdc.runtime.spark import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_GENERATOR = "org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator"
_WAITED = timedelta(seconds=2)
"""How far the last instant may lie ahead: Hudi waits that long."""


def follow_clock(spark: SparkSession) -> None:
    """Let Hudi take instants by the present clock, if its last instant lies ahead of it."""
    last = str(java_class(spark, _GENERATOR).getLastInstantTime())
    if not last.isdigit():  # there is none yet
        return
    ahead = ahead_of_clock(last)
    if ahead <= _WAITED:
        return
    loaders = java_class(spark, "org.apache.spark.util.Utils")
    generator = loaders.getContextOrSparkClassLoader().loadClass(_GENERATOR)
    variable = generator.getDeclaredField("LAST_INSTANT_TIME")
    variable.setAccessible(True)
    variable.get(None).set(f"{datetime.now(timezone.utc):%Y%m%d%H%M%S%f}"[:17])
    _log.warning(
        "this machine's clock was set back by %s while this process ran: commits go on", ahead
    )
