"""The job that a data engineer would write by hand: foreachBatch into Hudi with default settings.

It is meant to be fair: the same columns and types as the product writes, the same deletes, the
same fold to the last image per key, all topics at the same time on the same Spark session. Only
the table settings are Hudi's defaults.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

META = (
    "_cdc_op",
    "_cdc_source_ts",
    "_cdc_position",
    "_cdc_offset",
    "_cdc_schema_id",
    "_cdc_ingested_at",
)


@dataclass(frozen=True)
class PeerTable:
    """One topic and the Hudi table that it feeds.

    Args:
        topic: Data topic with one partition.
        start: The offset at which the job begins.
        avro_schema: The only writer schema of the topic's values, as JSON.
        columns: By lake column, a Spark SQL expression over ``row`` (the before or after image).
        key: The column of the record key.
        path: Path of the Hudi table.
    """

    topic: str
    start: int
    avro_schema: str
    columns: Mapping[str, str]
    key: str
    path: str


def hudi_options(table: PeerTable) -> dict[str, str]:
    """The options that the quick start of Hudi's documentation sets, and no others."""
    return {
        "hoodie.table.name": table.topic.replace(".", "_"),
        "hoodie.datasource.write.recordkey.field": table.key,
        "hoodie.datasource.write.precombine.field": "_cdc_offset",
        "hoodie.datasource.write.operation": "upsert",
    }


def create(table: PeerTable, snapshot: DataFrame) -> None:
    """Write the first rows of the table."""
    rows = snapshot.withColumn("_hoodie_is_deleted", F.lit(False))
    options = hudi_options(table) | {"hoodie.datasource.write.operation": "bulk_insert"}
    rows.write.format("hudi").options(**options).mode("overwrite").save(table.path)


def upsert(batch: DataFrame, table: PeerTable) -> None:
    """Decode one micro-batch, keep the last image per key, upsert and delete."""
    body = F.expr("substring(value, 6)")
    schema_id = F.expr("cast(conv(hex(substring(value, 2, 4)), 16, 10) as int)")
    events = batch.where("value is not null").select(
        from_avro(body, table.avro_schema).alias("e"), schema_id.alias("schema_id"), "offset"
    )
    sequence = F.expr("from_json(e.source.sequence, 'array<string>')")
    images = events.select(
        F.col("e.op").alias("_cdc_op"),
        F.timestamp_millis(F.col("e.source.ts_ms")).alias("_cdc_source_ts"),
        F.concat_ws(":", *(_hex(sequence[i]) for i in (0, 1))).alias("_cdc_position"),
        F.col("offset").alias("_cdc_offset"),
        F.col("schema_id").alias("_cdc_schema_id"),
        F.current_timestamp().alias("_cdc_ingested_at"),
        F.when(F.col("e.op") == "d", F.col("e.before")).otherwise(F.col("e.after")).alias("row"),
    )
    rows = images.select(
        *META,
        *(F.expr(text).alias(name) for name, text in table.columns.items()),
        (F.col("_cdc_op") == "d").alias("_hoodie_is_deleted"),
    )
    newest_first = Window.partitionBy(table.key).orderBy(F.col("_cdc_offset").desc())
    last = rows.withColumn("_n", F.row_number().over(newest_first)).where("_n = 1").drop("_n")
    last.write.format("hudi").options(**hudi_options(table)).mode("append").save(table.path)


def _hex(number: Column) -> Column:
    return F.lpad(F.hex(F.coalesce(number, F.lit("0")).cast("long")), 16, "0")


def consume(
    spark: SparkSession, tables: list[PeerTable], kafka_servers: str, checkpoints: str
) -> None:
    """Apply all records that the topics have now, to all tables at the same time."""
    queries = []
    for table in tables:
        stream = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", kafka_servers)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", table.topic)
            .option("startingOffsets", json.dumps({table.topic: {"0": table.start}}))
            .load()
        )

        def write(batch: DataFrame, _: int, table: PeerTable = table) -> None:
            upsert(batch, table)

        queries.append(
            stream.writeStream.foreachBatch(write)
            .option("checkpointLocation", f"{checkpoints}/{table.topic}")
            .trigger(availableNow=True)
            .start()
        )
    for query in queries:
        query.awaitTermination()


def consume_together(
    spark: SparkSession, tables: list[PeerTable], kafka_servers: str, checkpoints: str
) -> float:
    """Apply all records that the topics have now, with one stream over all topics.

    Only the tables with records in the micro-batch are written, four at a time.

    Returns:
        The seconds of the written batches, without the start of the stream.
    """
    by_topic, taken = {table.topic: table for table in tables}, [0.0]

    def write(batch: DataFrame, _: int) -> None:
        start = time.perf_counter()
        held = batch.select("topic", "value", "offset").persist()
        try:
            found = [row.topic for row in held.select("topic").distinct().collect()]
            with ThreadPoolExecutor(max_workers=4) as pool:
                jobs = [
                    pool.submit(upsert, held.where(F.col("topic") == topic), by_topic[topic])
                    for topic in found
                ]
                for job in jobs:
                    job.result()
        finally:
            held.unpersist()
            taken[0] += time.perf_counter() - start

    starts = {table.topic: {"0": table.start} for table in tables}
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(sorted(by_topic)))
        .option("startingOffsets", json.dumps(starts))
        .load()
    )
    query = (
        stream.writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{checkpoints}/all")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return taken[0]
