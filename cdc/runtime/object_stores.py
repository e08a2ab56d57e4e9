"""Tributary's defaults for object stores' file systems; the user's settings override them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cdc.config.lake import HADOOP_PREFIX

if TYPE_CHECKING:
    from cdc.config import Config

_S3 = {
    # By Hadoop's defaults, a store that does not answer, or refuses because it is too busy, holds a
    # table for hours, since both S3A and the SDK below it retry. With these values, a request to a
    # store that is too busy fails after 28 attempts in 30 to 45 s. Delays grow, so one more of
    # these retries would double the time.
    "fs.s3a.attempts.maximum": "3",
    "fs.s3a.retry.limit": "4",
    "fs.s3a.retry.interval": "500ms",
    "fs.s3a.retry.throttle.limit": "6",
    "fs.s3a.retry.throttle.interval": "200ms",
    "fs.s3a.connection.establish.timeout": "5000",
    "fs.s3a.connection.timeout": "60000",
    # Tables run side by side, and each open file holds a connection.
    "fs.s3a.connection.maximum": "256",
    # Otherwise each new file costs a request that deletes the markers of the folders above it.
    "fs.s3a.directory.marker.retention": "keep",
}
_GCS = {
    # Hadoop's own defaults name no class for gs://, and the jar comes after Hadoop has looked for
    # classes that register themselves.
    "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
    # By the connector's defaults, each request to a store that is away takes two minutes.
    "fs.gs.http.max.retry": "6",
    "fs.gs.http.connect-timeout": "5000",
}
_DEFAULTS: Mapping[str | None, Mapping[str, str]] = {"s3": _S3, "gcs": _GCS}


def store_defaults(config: Config) -> dict[str, str]:
    """Return Tributary's defaults for the lake's object store, except those that the user sets."""
    given = {*config.lake.hadoop, *(key.removeprefix(HADOOP_PREFIX) for key in config.spark.conf)}
    defaults = _DEFAULTS.get(config.lake.store, {})
    return {key: value for key, value in defaults.items() if key not in given}
