"""The connectors of MySQL and MariaDB: configuration, include list, audit, positions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cdc.config import Config, parse
from cdc.debezium import (
    CaptureNames,
    DefinitionChange,
    audit,
    captured_tables,
    connector_config,
    fresh_starts,
    heartbeat_sql,
    known_tables,
    lost_after_s,
    names,
    settings_changed_while_running,
)
from cdc.debezium.connector import KINDS as CONNECTORS
from cdc.debezium.connector import capture_settings
from cdc.debezium.include_list import entry, include_list, listed
from cdc.debezium.kind import NOT_SET
from cdc.debezium.mysql import server_id
from cdc.errors import ConfigError, StateError
from cdc.log.binlog_position import BinlogPosition, StoredPosition
from cdc.log.gtid import MariadbGtidSet, MysqlGtidSet
from cdc.log.position import Lsn
from schemas.table import TableId
from tests.unit.cdc.configuration import ENVIRONMENT, minimal

KINDS = ("mysql", "mariadb")
ORDERS = TableId("shop", "shop", "orders")
HISTORY = "schema.history.internal"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def read(kind: str, connect: dict[str, Any] | None = None, **primary: Any) -> Config:
    document = minimal()
    document["sources"]["shop"] = {
        "kind": kind,
        "primary": {"host": "db.example.com", **primary},
        "credentials": {"admin": {"user": "admin", "password": "${CAPTURE_PW}"}},
    }
    document["connect"].update(connect or {})
    return parse(yaml.safe_dump(document))


def made(config: Config, *tables: TableId) -> tuple[dict[str, str], CaptureNames]:
    source = config.sources["shop"]
    settings = connector_config("shop", source, "default", config.kafka, config.connect, tables)
    return settings, names("shop", source)


# --- configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_we_make_passes_the_audit(kind: str) -> None:
    settings, capture = made(read(kind), ORDERS)
    assert audit(settings, capture) == []
    assert capture.kind == kind
    assert not [value for value in settings.values() if ENVIRONMENT["CAPTURE_PW"] in value]
    assert settings["database.password"] == "${env:CAPTURE_PW}"


def test_each_kind_has_its_connector_and_server_identity() -> None:
    classes = set()
    for kind, identity in (("mysql", "@@server_uuid"), ("mariadb", "@@hostname")):
        settings, capture = made(read(kind))
        classes.add(settings["connector.class"])
        assert identity in heartbeat_sql(capture)
        assert f"'{capture.connector}'" in heartbeat_sql(capture)
        assert settings["heartbeat.action.query"] == heartbeat_sql(capture)
    assert len(classes) == 2


def test_a_connector_has_a_number_of_its_own_that_never_changes() -> None:
    numbers = {server_id(f"tributary_shop_{n}") for n in range(1000)}
    assert len(numbers) == 1000
    assert min(numbers) >= 10**9
    assert max(numbers) < 2**32
    assert server_id("tributary_shop_default") == 4144219184


def test_the_number_can_be_given() -> None:
    config = read("mysql", {"connector": {"database.server.id": "77"}})
    settings, capture = made(config)
    assert settings["database.server.id"] == "77"
    assert audit(settings, capture) == []


@pytest.mark.parametrize(
    ("kind", "mode", "wanted"),
    [
        ("mysql", "disabled", "disabled"),
        ("mysql", "preferred", "preferred"),
        ("mysql", "verify_identity", "verify_identity"),
        ("mariadb", "disabled", "disable"),
        ("mariadb", "preferred", "disable"),
        ("mariadb", "required", "trust"),
        ("mariadb", "verify_ca", "verify-ca"),
        ("mariadb", "verify_identity", "verify-full"),
    ],
)
def test_tls_has_the_connectors_own_words(
    kind: str, mode: str, wanted: str, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").touch()
    primary = {"ssl_mode": mode}
    if mode.startswith("verify"):
        primary["ssl_ca"] = str(tmp_path / "ca.pem")
    settings, _ = made(read(kind, **primary))
    assert settings["database.ssl.mode"] == wanted


def test_a_client_certificate_that_the_connector_cannot_read_is_refused(tmp_path: Path) -> None:
    files = {}
    for key in ("ssl_cert", "ssl_key"):
        (tmp_path / key).touch()
        files[key] = str(tmp_path / key)
    with pytest.raises(ConfigError, match="reads no PEM files") as caught:
        made(read("mysql", ssl_mode="required", **files))
    assert "database.ssl.keystore" in caught.value.remedy
    stored = {"connector": {"database.ssl.keystore": "/etc/client.p12"}}
    settings, _ = made(read("mysql", stored, ssl_mode="required", **files))
    assert settings["database.ssl.keystore"] == "/etc/client.p12"


def test_the_history_reaches_kafka_by_its_own_clients_without_a_secret() -> None:
    document = yaml.safe_load(yaml.safe_dump(minimal()))
    document["sources"]["shop"] = {
        "kind": "mysql",
        "primary": {"host": "db"},
        "credentials": {"admin": {"user": "admin"}},
    }
    document["kafka"]["security"] = {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "username": "connect",
        "password": "${KAFKA_PW}",
    }
    settings, capture = made(parse(yaml.safe_dump(document)))
    assert settings[f"{HISTORY}.kafka.bootstrap.servers"] == "localhost:9092"
    for client in ("producer", "consumer"):
        assert settings[f"{HISTORY}.{client}.security.protocol"] == "SASL_SSL"
        login = settings[f"{HISTORY}.{client}.sasl.jaas.config"]
        assert 'password="${env:KAFKA_PW}"' in login
        assert ENVIRONMENT["KAFKA_PW"] not in login
    assert audit(settings, capture) == []


def test_its_own_topics_with_the_history_kept_for_ever() -> None:
    _, capture = made(read("mariadb"))
    assert capture.own_topics == (
        "shop_default.tributary.heartbeat",
        "shop_default.tributary.marker",
        "shop_default",
        "shop_default.schema_history",
    )
    forever = {"retention.ms": "-1", "retention.bytes": "-1"}
    kept = [dict(capture.topic_config(topic)) for topic in capture.own_topics]
    assert kept == [{}, {}, forever, forever]


def test_heartbeats_of_logs_are_in_the_same_table() -> None:
    config = read("mysql")
    capture = names("shop", config.sources["shop"], "default_append")
    assert capture.heartbeat_table == "heartbeat"


# --- the include list ----------------------------------------------------------------------------


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression of Java, translated to Python."""
    code = re.compile(r"\\x\{([0-9a-f]+)\}")
    return re.compile(code.sub(lambda match: re.escape(chr(int(match[1], 16))), text))


@given(st.text(min_size=1), st.text(min_size=1))
def test_an_entry_matches_its_table_and_comes_back(database: str, table: str) -> None:
    text = entry(database, table)
    assert "," not in text
    assert text == text.strip()
    assert pattern(text).fullmatch(f"{database}.{table}")
    assert listed(text) == {(database, table)}


def test_no_character_of_a_name_means_anything() -> None:
    text = entry("shop", "a.b")
    assert not pattern(text).fullmatch("shop.axb")
    assert not pattern(entry("s", "t")).fullmatch("s.tt")


def test_equal_sets_give_equal_text_that_has_our_own_tables() -> None:
    tables = [TableId("shop", "shop", name) for name in ("b", "a", "ü", "a b", "x,y")]
    text = include_list(tables)
    assert text == include_list([*reversed(tables), tables[0]])
    assert {("tributary", "heartbeat"), ("tributary", "marker")} < listed(text)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tables_of_a_running_connector_are_told(kind: str) -> None:
    tables = sorted([ORDERS, TableId("shop", "a.b", "c,d"), TableId("shop", "a", "b.c,d")])
    settings, capture = made(read(kind), *tables)
    assert captured_tables(settings, capture) == tables
    assert captured_tables({}, capture) == []
    assert "table.include.list" in settings_changed_while_running(capture)


def test_a_publication_has_no_list() -> None:
    source = parse(yaml.safe_dump(minimal())).sources["shop"]
    capture = names("shop", source)
    assert captured_tables({}, capture) is None
    assert "table.include.list" not in settings_changed_while_running(capture)


# --- audit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("present", [True, False])
def test_each_setting_is_proven(kind: str, *, present: bool) -> None:
    settings, capture = made(read(kind), ORDERS)
    for name in (*capture_settings(capture), "exactly.once.support", "table.include.list"):
        broken = {key: value for key, value in settings.items() if key != name}
        if present:
            broken[name] = "something else"
        found = [item for item in audit(broken, capture) if item.property == name]
        assert found, name
        assert {item.found for item in found} == {"something else" if present else NOT_SET}
        assert all(item.reason for item in found)


@pytest.mark.parametrize("kind", KINDS)
def test_no_connector_opens_a_lost_connection_by_itself(kind: str) -> None:
    settings, capture = made(read(kind), ORDERS)
    (found,) = audit({**settings, "connect.keep.alive": "true"}, capture)
    assert (found.property, found.found) == ("connect.keep.alive", "true")
    assert "leave out its other rows" in found.reason
    assert lost_after_s(capture, 1000) == 60.0
    assert lost_after_s(capture, 60_000) == 6 * 75


def test_our_own_tables_are_in_the_list() -> None:
    settings, capture = made(read("mysql"))
    assert audit(settings, capture) == []
    found = audit({**settings, "table.include.list": "shop.orders"}, capture)
    assert {finding.property for finding in found} == {"table.include.list"}
    assert any("tributary.heartbeat" in finding.reason for finding in found)


FORBIDDEN = {
    "table.exclude.list": "shop.orders",
    "database.include.list": "shop",
    "database.exclude.list": "other",
    "column.include.list": "shop.orders.id",
    "column.exclude.list": "shop.orders.id",
    "column.mask.with.12.chars": "shop.orders.name",
    "column.truncate.to.20.chars": "shop.orders.name",
    "message.key.columns": "shop.orders:name",
    "transforms": "unwrap",
    "predicates": "p",
    "converters": "c",
    "post.processors": "reselector",
    "signal.data.collection": "shop.signals",
    "signal.kafka.topic": "signals",
    "snapshot.include.collection.list": "shop.orders",
    "snapshot.select.statement.overrides": "shop.orders",
    "gtid.source.includes": "x",
    "gtid.source.excludes": "x",
    "gtid.source.filter.dml.events": "true",
    "gtid.ignore.on.recovery": "true",
    "event.deserialization.failure.handling.mode": "warn",
    "binlog.buffer.size": "1000",
    "topic.regex": ".*",
    "sourceinfo.struct.maker": "x",
    "internal.implementation": "legacy",
    "extended.headers.enabled": "false",
    "producer.override.acks": "1",
    HISTORY: "io.debezium.storage.file.history.FileSchemaHistory",
    f"{HISTORY}.ddl.filter": "ALTER.*",
    f"{HISTORY}.producer.acks": "1",
    f"{HISTORY}.prefer.ddl": "true",
    "database.initial.statements": "SET sql_log_bin = 0",
    "driver.sessionVariables": "sql_mode=ANSI",
    "ddl.parser.type": "legacy",
    "resolve.create.table.like.schema": "true",
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_each_property_that_breaks_the_capture_is_found(name: str) -> None:
    settings, capture = made(read("mysql"), ORDERS)
    (finding,) = audit({**settings, name: FORBIDDEN[name]}, capture)
    assert (finding.property, finding.required) == (name, NOT_SET)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("binlog.buffer.size", "0"),
        ("gtid.ignore.on.recovery", "false"),
        (f"{HISTORY}.kafka.bootstrap.servers", "inside:9092"),
        (f"{HISTORY}.consumer.security.protocol", "SSL"),
        ("connect.keep.alive.interval.ms", "60000"),
        ("database.ssl.truststore", "/etc/ca.p12"),
        ("max.batch.size", "4096"),
        ("ddl.parser.type", "default"),
    ],
)
def test_properties_that_only_tune_are_let_through(name: str, value: str) -> None:
    settings, capture = made(read("mysql"), ORDERS)
    assert audit({**settings, name: value}, capture) == []


# --- positions -----------------------------------------------------------------------------------


def test_a_stored_offset_is_a_position_of_its_kind() -> None:
    uuid = "41f7d426-e693-11f1-8f50-02fc00000001"
    mysql = {"file": "binlog.000001", "pos": 5, "gtids": f"{uuid}:1-53", "event": 2}
    place = BinlogPosition("binlog.000001", 4)
    assert CONNECTORS["mysql"].stored_position(mysql) == StoredPosition(
        MysqlGtidSet.parse(f"{uuid}:1-53"), place
    )
    del mysql["gtids"]
    assert CONNECTORS["mysql"].stored_position(mysql) == StoredPosition(None, place)
    assert CONNECTORS["mariadb"].stored_position({"gtids": "0-1-28"}) == MariadbGtidSet.parse(
        "0-1-28"
    )
    assert CONNECTORS["postgres"].stored_position({"lsn": 9, "lsn_commit": 7}) == Lsn(7)
    assert CONNECTORS["postgres"].stored_position({"lsn_commit": -1}) == Lsn(2**64 - 1)


@pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"])
def test_an_offset_may_name_no_position(kind: Any) -> None:
    file = "" if kind == "mysql" else "binlog.000001"
    assert CONNECTORS[kind].stored_position({"file": file, "pos": 5}) is None


@pytest.mark.parametrize(
    ("stored", "passed"),
    [
        # Amid a transaction that begins there: its rows are not all in Kafka, what is before is.
        ({"file": "binlog.000007", "pos": 500, "event": 3, "row": 2}, False),
        # After a commit, or with the first of two records of one statement: nobody knows which.
        ({"file": "binlog.000007", "pos": 900}, False),
        ({"file": "binlog.000007", "pos": 979}, True),
        ({"file": "binlog.000007", "pos": 979, "event": 1}, True),
        ({"file": "binlog.000008", "pos": 4}, True),
        ({"file": "binlog.000006", "pos": 9000}, False),
    ],
)
def test_a_transaction_is_captured_once_a_later_event_has_begun(
    stored: dict[str, Any], passed: bool
) -> None:
    """The transaction is at 500 to 900 in file 7; no event in a binlog is shorter than 19 bytes."""
    found = CONNECTORS["mysql"].stored_position({**stored, "ts_sec": 1, "server_id": 1})
    assert found is not None
    assert found.reaches(BinlogPosition("binlog.000007", 900)) is passed


def test_a_position_of_another_kind_is_refused() -> None:
    with pytest.raises(StateError):
        CONNECTORS["mysql"].stored_position({"gtids": "0-1-28"})


# --- definitions ---------------------------------------------------------------------------------


def change(kind: str | None, name: str, statement: str = "", **more: Any) -> DefinitionChange:
    table = TableId("shop", "shop", name) if name else None
    values = {"gtid": None, "snapshot": False, "offset": 0, **more}
    return DefinitionChange(kind=kind, table=table, statement=statement, **values)


def test_the_connector_knows_what_was_created_and_not_dropped() -> None:
    told = [
        change("DROP", "a"),
        change("CREATE", "a"),
        change("CREATE", "b"),
        change("ALTER", "c"),
        change("DROP", "b"),
        change(None, ""),
    ]
    assert {table.name for table in known_tables(told)} == {"a", "c"}


def test_each_start_without_a_position_is_found() -> None:
    opening = "SET character_set_server=utf8mb4"
    told = [
        change(None, "", opening, snapshot=True, offset=0),
        change("CREATE", "a", snapshot=True, offset=1),
        change(None, "", opening, snapshot=True, offset=2),
        change("CREATE", "a", snapshot=True, offset=3),
        change("ALTER", "a", offset=4),
        change("DROP", "a", snapshot=True, offset=5),
    ]
    assert fresh_starts(told) == [0, 2, 5]
    assert fresh_starts([]) == []
