"""Hudi's write client with two additions: a guard of each commit, and instants that always grow.

Hudi does not offer two features that a commit needs here:

- A guard of a bulk insert. Hudi's bulk insert takes no pre-commit function, but it calls a method
  of its client before each commit.
- An instant that does not depend on the clock. Hudi uses the local time as the instant, and each
  instant must be greater than the one before. If the newest commit is from a machine whose clock is
  ahead, Hudi's own client could not commit until the local clock has reached the instant of this
  commit. Hudi also has a variable with the last instant of the process. Setting this variable ahead
  is no solution: all tables share it, so the commits of all tables would wait for the clock.

So this module subclasses Hudi's client. Spark's Java compiler compiles the class from the Java code
below.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cdc.runtime.spark import java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc.lake.guard import CommitGuard
    from cdc.lake.timeline import Timeline

_CLASS = "tributary.GuardedClient"
_JAVA = """
package tributary;

import java.util.function.BiConsumer;
import org.apache.hudi.common.engine.HoodieEngineContext;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.config.HoodieWriteConfig;

public class GuardedClient extends org.apache.hudi.client.SparkRDDWriteClient {
  private String newest;
  private final BiConsumer guard;

  public GuardedClient(
      HoodieEngineContext context, HoodieWriteConfig config, String newest, Option guard) {
    super(context, config);
    this.newest = newest;
    this.guard = (BiConsumer) guard.get();
  }

  public String createNewInstantTime(boolean lock) {
    String now = super.createNewInstantTime(lock);
    if (newest != null) {
      String next = HoodieInstantTimeGenerator.instantTimePlusMillis(newest, 1L);
      now = now.compareTo(next) > 0 ? now : next;
    }
    newest = now;
    return now;
  }

  protected void preCommit(HoodieCommitMetadata metadata) {
    super.preCommit(metadata);
    guard.accept(null, metadata);
  }
}
"""


def guarded_client(
    spark: SparkSession,
    timeline: Timeline,
    options: Mapping[str, str],
    rows: DataFrame,
    guard: CommitGuard,
) -> Any:
    """Return Hudi's write client for one commit that the guard can refuse.

    The commit gets an instant that is greater than all instants of the timeline.

    Args:
        spark: The session.
        timeline: The table's commits; empty if the table does not exist.
        options: Hudi's settings of the write.
        rows: The rows to write, with all columns of the table.
        guard: Called right before the commit completes.
    """
    name = options["hoodie.table.name"]
    option = java_class(spark, "org.apache.hudi.common.util.Option")
    resolver = java_class(spark, "org.apache.hudi.common.table.TableSchemaResolver")
    conversion = _hudi_object(spark, "org.apache.hudi.HoodieSchemaConversionUtils$")
    properties = java_class(spark, "org.apache.hudi.common.config.TypedProperties")()
    for key, value in options.items():
        properties.setProperty(key, value)
    # Hudi's writer uses the same schema when it creates the client itself.
    schema = _hudi_object(spark, "org.apache.hudi.HoodieSchemaUtils$").deduceWriterSchema(
        conversion.convertStructTypeToHoodieSchema(
            rows._jdf.schema(), f"{name}_record", f"hoodie.{name}"
        ),
        resolver(timeline.client).getTableSchemaIfPresent(False)
        if timeline.exists
        else option.empty(),
        option.empty(),
        properties,
    )
    config = java_class(spark, "org.apache.hudi.DataSourceUtils").createHoodieConfig(
        schema.toString(), timeline.path, name, dict(options)
    )
    context = java_class(spark, "org.apache.hudi.client.common.HoodieSparkEngineContext")
    gateway: Any = spark.sparkContext._gateway
    (constructor,) = _compiled_hudi_client(gateway).getConstructors()
    arguments = gateway.new_array(java_class(spark, "java.lang.Object"), 4)
    arguments[0] = context(spark.sparkContext._jsc)
    arguments[1] = config
    arguments[2] = timeline.last_instant()
    # A Python object cannot be in an array.
    arguments[3] = option.of(guard)
    return constructor.newInstance(arguments)


@lru_cache(maxsize=1)
def _compiled_hudi_client(gateway: Any) -> Any:
    """Compile Hudi's guarded client, once per JVM, and return its Java class."""
    jvm = gateway.jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    loaders = jvm.org.apache.spark.util.Utils
    compiler.setParentClassLoader(loaders.getContextOrSparkClassLoader())
    compiler.cook(_JAVA)
    return compiler.getClassLoader().loadClass(_CLASS)


def _hudi_object(spark: SparkSession, name: str) -> Any:
    """Return a singleton object of Hudi's Scala code by the name of its class."""
    return getattr(java_class(spark, name), "MODULE$")
