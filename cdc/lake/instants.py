"""Instants of a table whose newest commit lies in the future of this machine's clock.

Hudi takes a commit's instant from the clock, and each commit needs a greater instant than the one
before. After a commit from a machine whose clock was ahead, no commit could follow until this clock
catches up. Hudi remembers its last instant per process, so raising it there would make every other
table wait. Instead, such a table gets its own write client, which Spark's Java compiler compiles
from the lines below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from cdc.runtime.spark import java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc.lake.timeline import Timeline

_CLASS = "tributary.OrderedClient"
_JAVA = """
package tributary;

import org.apache.hudi.common.engine.HoodieEngineContext;
import org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator;
import org.apache.hudi.config.HoodieWriteConfig;

public class OrderedClient extends org.apache.hudi.client.SparkRDDWriteClient {
  private String newest;

  public OrderedClient(HoodieEngineContext context, HoodieWriteConfig config, String newest) {
    super(context, config);
    this.newest = newest;
  }

  public String createNewInstantTime(boolean lock) {
    String now = super.createNewInstantTime(lock);
    String next = HoodieInstantTimeGenerator.instantTimePlusMillis(newest, 1L);
    newest = now.compareTo(next) > 0 ? now : next;
    return newest;
  }
}
"""


def time_of(instant: str) -> datetime:
    """The time in an instant, ``yyyyMMddHHmmssSSS`` in UTC."""
    return datetime.strptime(f"{instant[:17]}000", "%Y%m%d%H%M%S%f").replace(tzinfo=timezone.utc)


def lead(newest: str | None) -> timedelta:
    """How far the newest instant is ahead of this machine's clock; zero when it is not."""
    if newest is None:
        return timedelta()
    seconds = (time_of(newest) - datetime.now(timezone.utc)).total_seconds()
    return timedelta(seconds=max(0, math.ceil(seconds)))


def ordered_client(
    spark: SparkSession, timeline: Timeline, options: Mapping[str, str], rows: DataFrame
) -> Any:
    """Hudi's write client for one commit, whose instant follows all instants of the timeline.

    Args:
        spark: The session.
        timeline: The table's commits.
        options: Hudi's settings of the write.
        rows: What is written, with all columns of the table.
    """
    name = options["hoodie.table.name"]
    option = java_class(spark, "org.apache.hudi.common.util.Option")
    resolver = java_class(spark, "org.apache.hudi.common.table.TableSchemaResolver")
    conversion = _module(spark, "org.apache.hudi.HoodieSchemaConversionUtils$")
    properties = java_class(spark, "org.apache.hudi.common.config.TypedProperties")()
    for key, value in options.items():
        properties.setProperty(key, value)
    # Hudi's writer uses the same schema when it creates the client itself.
    schema = _module(spark, "org.apache.hudi.HoodieSchemaUtils$").deduceWriterSchema(
        conversion.convertStructTypeToHoodieSchema(
            rows._jdf.schema(), f"{name}_record", f"hoodie.{name}"
        ),
        resolver(timeline.client).getTableSchemaIfPresent(False),
        option.empty(),
        properties,
    )
    config = java_class(spark, "org.apache.hudi.DataSourceUtils").createHoodieConfig(
        schema.toString(), timeline.path, name, dict(options)
    )
    context = java_class(spark, "org.apache.hudi.client.common.HoodieSparkEngineContext")
    (constructor,) = _compiled(spark).getConstructors()
    gateway: Any = spark.sparkContext._gateway
    arguments = gateway.new_array(java_class(spark, "java.lang.Object"), 3)
    arguments[0] = context(spark.sparkContext._jsc)
    arguments[1] = config
    arguments[2] = timeline.last_instant()
    return constructor.newInstance(arguments)


def _compiled(spark: SparkSession) -> Any:
    compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
    loaders = java_class(spark, "org.apache.spark.util.Utils")
    compiler.setParentClassLoader(loaders.getContextOrSparkClassLoader())
    compiler.cook(_JAVA)
    return compiler.getClassLoader().loadClass(_CLASS)


def _module(spark: SparkSession, name: str) -> Any:
    return getattr(java_class(spark, name), "MODULE$")
