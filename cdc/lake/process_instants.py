"""Lets commits go on after this machine's clock was set back while a process runs.

Hudi keeps the last instant of the process in a variable of the JVM. For a new instant, Hudi reads
the clock again and again until the time is greater than the variable. So after the clock was set
back by an hour, each commit of each table would wait for an hour, in a loop that cannot be stopped.
The variable's only purpose is that two commits of one table get different instants. The client in
`cdc.lake.client` ensures this without the variable, by the instants of the table's commits. So this
module sets the variable to the present time if the variable is more than two seconds ahead.

A writer that is in this loop while the clock is set back stays in it until the clock has caught up.
This is rare: a writer is in the loop once for each commit, for less than a millisecond.
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
"""How far Hudi's last instant may be ahead of the clock. Up to this limit, Hudi waits for the
clock."""


def follow_clock(spark: SparkSession) -> None:
    """Set Hudi's last instant to the present time if the instant is over 2 s ahead of the clock."""
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
