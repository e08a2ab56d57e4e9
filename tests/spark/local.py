"""A configuration for a Spark session of this machine; nothing else in it is real."""

from __future__ import annotations

from pathlib import Path

from cdc.config import Config

SECRETS = {
    "fs.s3a.bucket.elsewhere.secret.key": "canary-of-lake-hadoop",
    "fs.s3a.bucket.elsewhere.session.token": "canary-of-spark-conf",
    "fs.elsewhere.custom": "canary-of-a-plain-name",
}
"""What Hadoop is told by these names, and no one else."""


def local_config(folder: Path) -> Config:
    """Two threads, and scratch space in ``folder``."""
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
