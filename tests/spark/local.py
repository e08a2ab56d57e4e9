"""A configuration for a local Spark session; its databases and servers do not exist."""

from __future__ import annotations

from pathlib import Path

from cdc.config import Config

SECRETS = {
    "fs.s3a.bucket.elsewhere.secret.key": "canary-of-lake-hadoop",
    "fs.s3a.bucket.elsewhere.session.token": "canary-of-spark-conf",
    "fs.elsewhere.custom": "canary-of-a-plain-name",
}
"""Settings of Hadoop with secret values, which no other program may see."""


def local_config(folder: Path) -> Config:
    """A configuration for a Spark session with two threads and temporary files in ``folder``."""
    return Config.model_validate(
        {
            "sources": {
                "shop": {
                    "kind": "postgres",
                    "primary": {"host": "localhost", "database": "shop"},
                    "credentials": {"admin": {"user": "admin"}},
                }
            },
            "kafka": {
                "bootstrap_servers": "localhost:9092",
                "registry": {"url": "http://localhost:8081"},
            },
            "connect": {"url": "http://localhost:8083"},
            "lake": {
                "url": (folder / "lake").as_uri(),
                "hadoop": {
                    "fs.s3a.bucket.elsewhere.secret.key": "canary-of-lake-hadoop",
                    "fs.elsewhere.custom": "canary-of-a-plain-name",
                },
            },
            "spark": {
                "master": "local[2]",
                "driver_memory": "2g",
                "conf": {
                    "spark.sql.shuffle.partitions": "2",
                    "spark.local.dir": str(folder / "scratch"),
                    "spark.sql.warehouse.dir": str(folder / "warehouse"),
                    "spark.hadoop.fs.s3a.bucket.elsewhere.session.token": "canary-of-spark-conf",
                },
            },
        }
    )
