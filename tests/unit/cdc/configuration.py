"""A configuration in which every key is set, a minimal one, and helpers for tests of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.config import Config, parse
from cdc.errors import ConfigError

Path_ = tuple[Any, ...]

ENVIRONMENT = {
    name: f"canary-{name.lower()}"
    for name in (
        "ADMIN_PW",
        "CAPTURE_PW",
        "KAFKA_PW",
        "KEY_PW",
        "REGISTRY_PW",
        "CONNECT_PW",
        "STATE_PW",
        "S3_SECRET",
        "HASH_KEY",
    )
}

_ENDPOINT = {
    "host": "db.example.com",
    "port": 5433,
    "database": "shop",
    "sslmode": "verify-full",
    "sslrootcert": "ca.pem",
    "sslcert": "client.pem",
    "sslkey": "client.key",
    "options": {"connect_timeout": 10},
}

_TABLE = {
    "from": [],
    "shard_column": "_shard",
    "shard": "{schema}",
    "name": "sales/{schema}/{table}",
    "tier": "hot",
    "key_columns": ["id"],
    "mode": "upsert",
    "snapshot_from": "replica",
    "one_view": True,
    "partition_by": ["country"],
    "columns": {
        "include": ["id", "country", "email", "phone"],
        "exclude": [],
        "as": {"country": "string", "rate": "decimal(18,4)"},
        "hash": ["email"],
        "mask": ["phone"],
        "renames": {"surname": "name"},
    },
    "timestamps_without_zone": "timestamp",
    "max_events_per_run": 10,
    "allowed_lateness_s": 5,
    "event_time": None,
    "completeness": None,
    "delete_mode": "soft",
    "on_truncate": "pause",
    "on_bad_message": "stop",
    "max_quarantined": 7,
    "on_schema_change": "freeze",
    "chunk_rows": 100,
    "chunk_bytes": "64MiB",
    "parallel_chunks": 2,
    "on_incompatible": "resync",
    "resync": {"max_rows": 1000, "window": "22:00-05:00"},
    "retain_generations": 3,
    "readers_keep": "30m",
    "readers": {"billing": {"lag": "1h"}, "*": {"lag": "2d"}},
    "min_commit_interval": "30s",
    "freshness_target_s": 60,
    "index": "bucket",
    "buckets": 4,
    "hudi": {"hoodie.parquet.compression.codec": "zstd"},
    "checks": {
        "countries": {
            "kind": "accepted_values",
            "enabled": True,
            "policy": "pause",
            "cron": "30 2 * * 1-5",
            "zone": "Europe/Zurich",
            "every_commits": 50,
            "columns": ["country"],
            "values": ["CH", "DE"],
        },
        "rates": {"kind": "range", "columns": ["rate"], "min": 0, "max": "99.5"},
        "customers": {
            "kind": "reference",
            "columns": ["customer"],
            "references": {"table": "public.customers", "columns": ["id"]},
        },
        "daily": {
            "kind": "volume",
            "time_column": "sold_at",
            "period": "1d",
            "settle": "2h",
            "history": 14,
            "least": 0.8,
            "most": 1.5,
        },
        "fresh": {"kind": "freshness", "max_age": "1h"},
        "equal": {
            "kind": "verify",
            "method": "full",
            "max_seconds": 600,
            "max_sessions": 2,
            "read_from": "primary",
        },
        "some": {"kind": "verify", "method": "sample", "fraction": 0.1},
        "recent": {"kind": "verify", "method": "window", "time_column": "at", "window": "1d"},
    },
}


_KAFKA: dict[str, Any] = {
    "bootstrap_servers": "a:9092,b:9092",
    "security": {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "username": "kafka",
        "password": "${KAFKA_PW}",
        "ca_file": "ca.pem",
        "certificate_file": "client.pem",
        "key_file": "client.key",
        "key_password": "${KEY_PW}",
    },
    "librdkafka": {"socket.timeout.ms": 1000},
    "java": {"request.timeout.ms": 1000},
    "registry": {
        "url": "https://registry.example.com/apis/ccompat/v7",
        "username": "registry",
        "password": "${REGISTRY_PW}",
        "ca_file": "ca.pem",
    },
    "topic": {
        "replication_factor": 3,
        "retention_ms": 1000,
        "max_message_bytes": 2000,
        "config": {"min.insync.replicas": 2},
    },
}
_CONNECT: dict[str, Any] = {
    "url": "https://connect.example.com",
    "username": "connect",
    "password": "${CONNECT_PW}",
    "ca_file": "ca.pem",
    "secrets": {"database.password": "${vault:shop:password}"},
    "connector": {"max.batch.size": 4096},
    "exactly_once": False,
    "timeout_s": 5,
    "events_per_s": 20_000,
    "converter": "confluent",
    "registry_url": "https://registry.internal",
}


def full() -> dict[str, Any]:
    """A fresh, valid document."""
    return {
        "sources": {
            "shop": {
                "kind": "postgres",
                "primary": copy.deepcopy(_ENDPOINT),
                "replica": copy.deepcopy(_ENDPOINT),
                "endpoint_for_connect": copy.deepcopy(_ENDPOINT),
                "credentials": {
                    "admin": {"user": "admin", "password": "${ADMIN_PW}"},
                    "capture": {"user": "capture", "password": "${CAPTURE_PW}"},
                    "snapshot": {"user": "snapshot", "password": "${file:/run/secrets/snapshot}"},
                    "marker": {"user": "marker", "password": "${ADMIN_PW}"},
                },
                "topic_prefix": "cdc.{source}.{tier}",
                "publication": "pub_{source}_{tier}",
                "slot": "slot_{source}_{tier}",
                "heartbeat_interval_ms": 500,
                "copy_sessions": 8,
                "copy_mb_per_s": 40,
                "wal_limit": {"warn": "512MiB", "alarm": "20GiB", "give_up": "1TiB"},
            }
        },
        "kafka": copy.deepcopy(_KAFKA),
        "connect": copy.deepcopy(_CONNECT),
        "lake": {
            "url": "s3a://bucket/lake",
            "name": "{source}/{schema}/{table}",
            "hadoop": {"fs.s3a.secret.key": "${S3_SECRET}"},
            "hash_key": "${HASH_KEY}",
        },
        "catalog": {
            "metastore": "thrift://a:9083,thrift://b:9083",
            "database": "lake_{source}",
            "table": "{schema}_{table}",
        },
        "state": {"url": "postgresql://tributary:${STATE_PW}@db/state", "keep_history": "7d"},
        "spark": {
            "master": "yarn",
            "conf": {"spark.sql.shuffle.partitions": 8, "spark.ui.enabled": False},
            "driver_memory": "4g",
            "jars": "provided",
            "start_timeout_s": 60,
            "parallel_tables": 2,
            "task_timeout_s": 600,
        },
        "defaults": copy.deepcopy(_TABLE),
        "tiers": {"critical": {"pool_share": 0.5}},
        "tables": {"public.orders": {**copy.deepcopy(_TABLE), "name": "sales/orders"}},
    }


def minimal() -> dict[str, Any]:
    """A fresh document with only what is required."""
    return {
        "sources": {
            "shop": {
                "primary": {"host": "localhost", "database": "shop"},
                "credentials": {"admin": {"user": "admin"}},
            }
        },
        "kafka": {
            "bootstrap_servers": "localhost:9092",
            "registry": {"url": "http://localhost:8080"},
        },
        "connect": {"url": "http://localhost:8083"},
        "lake": {"url": "lake"},
    }


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The secrets that the configuration refers to."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TRIBUTARY_CONFIG", raising=False)


def read(document: dict[str, Any], base: Path | None = None) -> Config:
    return parse(yaml.safe_dump(document, sort_keys=False), base=base)


def refusal(document: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(document)
    return caught.value


def at(document: Any, path: Path_) -> Any:
    for part in path:
        document = document[part]
    return document


def changed(path: Path_, value: object, document: dict[str, Any] | None = None) -> dict[str, Any]:
    document = copy.deepcopy(document or full())
    at(document, path[:-1])[path[-1]] = value
    return document
