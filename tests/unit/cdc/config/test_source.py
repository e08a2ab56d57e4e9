"""Each kind of source has its own settings; the key ``kind`` says which kind it is."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema.validators import validator_for

from cdc.config import Config, MysqlSourceConfig, PostgresSourceConfig
from cdc.debezium import names
from cdc.errors import ConfigError
from tests.unit.cdc.configuration import minimal, read, refusal

_SERVER: dict[str, Any] = {
    "host": "db",
    "port": 3307,
    "ssl_mode": "verify_ca",
    "ssl_ca": "ca.pem",
    "ssl_cert": "client.pem",
    "ssl_key": "client.key",
}
_SOURCE: dict[str, Any] = {
    "kind": "mysql",
    "primary": _SERVER,
    "replica": {"host": "replica"},
    "endpoint_for_connect": {"host": "db.internal", "ssl_mode": "disabled"},
    "credentials": {"admin": {"user": "admin", "password": "${file:/run/secrets/admin}"}},
    "databases": ["shop", "shop_*"],
    "topic_prefix": "my.{source}.{tier}",
    "connector": "my_{source}_{tier}",
    "heartbeat_interval_ms": 200,
    "copy_sessions": 8,
    "copy_mb_per_s": 40,
}


def document(**changes: Any) -> dict[str, Any]:
    """A configuration with the PostgreSQL source ``shop`` and the MySQL source ``orders``."""
    made = minimal()
    made["sources"]["orders"] = {**copy.deepcopy(_SOURCE), **changes}
    made["lake"].pop("name", None)
    return made


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_source_of_each_kind_is_read_beside_a_postgresql_one(kind: str) -> None:
    config = read(document(kind=kind), base=Path("/etc/tributary"))
    source = config.source("orders")
    assert isinstance(source, MysqlSourceConfig)
    assert isinstance(config.source("shop"), PostgresSourceConfig)
    assert source.kind == kind
    assert source.primary.port == 3307
    assert source.primary.ssl_ca == Path("/etc/tributary/ca.pem")
    assert source.replica is not None
    assert (source.replica.port, source.replica.ssl_mode) == (3306, "preferred")
    assert source.databases == ("shop", "shop_*")
    assert source.credentials.marker == source.credentials.admin


def test_every_key_of_a_mysql_source_is_in_the_document_above() -> None:
    assert set(_SOURCE) == set(MysqlSourceConfig.model_fields)


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"kind": "oracle"}, "sources.orders.kind", "one of postgres, mysql, mariadb"),
        ({"slot": "s"}, "sources.orders.slot", "unknown key; the allowed keys are kind, primary"),
        ({"conector": "s"}, "sources.orders.conector", "did you mean 'connector'"),
        ({"primary": {"port": 1}}, "sources.orders.primary.host", "is required"),
        ({"primary": {"host": "h", "database": "d"}}, "sources.orders.primary.database", "unknown"),
        ({"databases": []}, "sources.orders.databases", "at least 1 item"),
        ({"connector": "{slot}"}, "sources.orders.connector", "unknown placeholder {slot}"),
        (
            {"primary": {"host": "h", "ssl_cert": "c"}},
            "sources.orders.primary.ssl_key",
            "go together",
        ),
        (
            {"primary": {"host": "h", "ssl_mode": "verify_identity"}},
            "sources.orders.primary.ssl_ca",
            "is required",
        ),
        (
            {"credentials": {"admin": {"user": "a", "password": "plain"}}},
            "sources.orders.credentials.admin.password",
            "reference",
        ),
        (
            {"connector": "tributary_shop_{tier}"},
            "sources.orders.connector",
            "gives the same name, tributary_shop_default",
        ),
    ],
)
def test_what_is_wrong_is_named_by_its_path(
    changes: dict[str, Any], field: str, reason: str
) -> None:
    error = refusal(document(**changes))
    assert error.context["field"] == field
    assert reason in error.message


def test_a_kind_that_is_no_text_is_refused() -> None:
    assert refusal(document(kind=["mysql"])).context["field"] == "sources.orders.kind"


def test_a_reference_to_the_environment_is_followed_in_a_mysql_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DB_PORT", "6000")
    config = read(document(primary={"host": "h", "port": "${DB_PORT}"}))
    assert config.source("orders").primary.port == 6000


def test_the_json_schema_tells_the_kinds_apart() -> None:
    schema = Config.json_schema()
    validator = validator_for(schema)(schema)
    assert validator.is_valid(document())
    assert validator.is_valid(document(kind="mariadb"))
    assert not validator.is_valid(document(kind="postgres"))
    assert not validator.is_valid(document(kind="oracle"))
    assert not validator.is_valid(document(slot="s"))


def test_a_capture_is_named_after_the_connector() -> None:
    capture = names("orders", read(document()).source("orders"), "hot")
    assert capture.connector == "my_orders_hot"
    assert (capture.publication, capture.slot) == (None, None)
    with pytest.raises(TypeError, match="a PostgreSQL source is needed, not mysql"):
        _ = capture.on_primary
    assert capture.placeholder != replace(capture, connector="another").placeholder
    assert capture.heartbeat_topic == "my.orders.hot.tributary.heartbeat"


def test_the_limits_of_a_slot_are_sizes_that_ascend() -> None:
    shop = read(minimal()).source("shop")
    assert shop.log_limits == {"warn": 20 * 2**30, "alarm": 50 * 2**30}, "nothing is given up"
    made = minimal()
    made["sources"]["shop"]["wal_limit"] = {"warn": None, "alarm": "512MiB", "give_up": "1TiB"}
    assert read(made).source("shop").log_limits == {"alarm": 2**29, "give_up": 2**40}
    assert read(document()).source("orders").log_limits == {}


@pytest.mark.parametrize(
    ("limit", "field", "said"),
    [
        ({"warn": "50GiB"}, "alarm", "must be larger than warn"),
        ({"alarm": "10GiB"}, "alarm", "must be larger than warn"),
        ({"alarm": None, "give_up": "1GiB"}, "give_up", "must be larger than warn"),
        ({"give_up": "50GB"}, "give_up", "pattern"),
        ({"give_up": 5}, "give_up", "string"),
        ({"warn": "0GiB"}, "warn", "pattern"),
    ],
)
def test_limits_that_cannot_work_are_refused_by_their_keys(
    limit: dict[str, Any], field: str, said: str
) -> None:
    made = minimal()
    made["sources"]["shop"]["wal_limit"] = limit
    with pytest.raises(ConfigError, match=said) as refused:
        read(made)
    assert refused.value.context["field"] == f"sources.shop.wal_limit.{field}"


def test_a_source_with_binlogs_has_no_limit_of_a_slot() -> None:
    with pytest.raises(ConfigError, match="wal_limit"):
        read(document(wal_limit={"warn": "1GiB"}))
