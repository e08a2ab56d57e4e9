from __future__ import annotations

import copy
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.config import TableSettings
from cdc.debezium import (
    CaptureNames,
    audit,
    connector_config,
    heartbeat_sql,
    names,
    topic_collisions,
    topic_for,
)
from cdc.debezium.connector import apicurio_url, capture_settings, silence_remedy
from cdc.debezium.kind import NOT_SET
from cdc.errors import ConfigError
from schemas.table import TableId
from tests.unit.cdc.configuration import ENVIRONMENT, minimal, read
from tests.unit.cdc.debezium.connectors import made, plain, with_connect


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


# --- names ---------------------------------------------------------------------------------------


def test_names_follow_the_templates() -> None:
    source = read(minimal()).sources["shop"]
    assert names("shop", source, "hot") == CaptureNames(
        source="shop",
        tier="hot",
        publication="tributary_shop_hot",
        slot="tributary_shop_hot",
        connector="tributary_shop_hot",
        topic_prefix="shop_hot",
        kind="postgres",
    )
    capture = names("shop", source)
    assert capture.topic(TableId("shop", "public", "orders")) == "shop_default.public.orders"
    assert capture.heartbeat_topic == "shop_default.tributary.heartbeat"
    assert capture.marker_topic == "shop_default.tributary.marker"


def test_names_that_postgresql_would_cut_off_are_refused() -> None:
    document = minimal()
    document["sources"]["shop"]["slot"] = "s" * 60 + "_{tier}"
    with pytest.raises(ConfigError) as caught:
        names("shop", read(document).sources["shop"], "hot")
    assert "sources.shop.slot" in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "table", "topic"),
    [
        # Each was seen in Kafka, written by Debezium 3.7.0.
        ("public", "orders", "p.public.orders"),
        ("My Schema", "T a.b-ü😀", "p.My_Schema.T_a.b-___"),
        ("public", "größe", "p.public.gr__e"),
        ("public", "a-b x", "p.public.a-b_x"),
        (" ", "t", "p.t"),
        ("public", "x" * 300, "p.public." + "x" * 240),
    ],
)
def test_topics_follow_debezium(schema: str, table: str, topic: str) -> None:
    assert topic_for("p", schema, table) == topic


@given(st.text(min_size=1), st.text(min_size=1))
def test_every_table_has_a_topic_that_kafka_takes(schema: str, table: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic_for("p", schema, table))


def test_collisions_are_found_with_all_tables_concerned() -> None:
    clash = [
        TableId("shop", "public", "größe"),
        TableId("shop", "public", "grüße"),
        TableId("shop", "public", "gr__e"),
    ]
    other = TableId("shop", "public", "orders")
    assert topic_collisions("p", [*clash, other]) == {"p.public.gr__e": sorted(clash)}
    assert topic_collisions("p", [other]) == {}


def test_names_that_differ_in_dots_only_collide_as_kafka_sees_them() -> None:
    pair = [TableId("shop", "a.b", "c"), TableId("shop", "a", "b.c"), TableId("shop", "a", "b_c")]
    ((topic, found),) = topic_collisions("p", pair).items()
    assert topic.startswith("p.a")
    assert found == sorted(pair)


def test_no_table_may_take_the_topics_of_our_own() -> None:
    intruder = TableId("shop", "tributary", "heart beat")
    assert topic_collisions("p", [intruder]) == {}
    intruder = TableId("shop", "tributary.heartbeat", " ")
    assert list(topic_collisions("p", [intruder])) == ["p.tributary.heartbeat"]


# --- configuration -------------------------------------------------------------------------------


def test_no_secret_is_in_the_configuration() -> None:
    config, _ = plain()
    for name, value in config.items():
        for secret in ENVIRONMENT.values():
            assert secret not in value, name
    assert config["database.password"] == "${env:CAPTURE_PW}"
    assert config["value.converter.apicurio.registry.dereference-schema"] == "true"
    for login in ("apicurio.auth", "apicurio.registry.auth"):  # of versions 2 and 3
        assert config[f"value.converter.{login}.password"] == "${env:REGISTRY_PW}"


def test_a_secret_file_becomes_a_directory_reference() -> None:
    document = with_connect()
    capture = document["sources"]["shop"]["credentials"]["capture"]
    capture["password"] = "${file:/run/secrets/capture}"
    config, _ = made(document)
    assert config["database.password"] == "${directory:/run/secrets:capture}"


def test_references_can_be_replaced_where_the_worker_keeps_secrets_elsewhere() -> None:
    document = with_connect(secrets={"database.password": "${vault:db:capture}"})
    config, _ = made(document)
    assert config["database.password"] == "${vault:db:capture}"


def test_connect_may_see_another_address() -> None:
    document = with_connect()
    document["sources"]["shop"]["endpoint_for_connect"]["host"] = "inside.example.com"
    config, _ = made(document)
    assert config["database.hostname"] == "inside.example.com"
    assert config["database.port"] == "5433"
    assert config["database.sslmode"] == "verify-full"


def test_exactly_once_can_be_left_out() -> None:
    document = minimal()
    document["connect"]["exactly_once"] = False
    config, capture = made(document)
    assert "exactly.once.support" not in config
    assert audit(config, capture, exactly_once=False) == []
    assert [item.property for item in audit(config, capture)] == ["exactly.once.support"]


def test_the_confluent_converter_gets_its_own_settings() -> None:
    config, capture = made(with_connect(converter="confluent"))
    for side in ("key", "value"):
        assert config[f"{side}.converter"] == "io.confluent.connect.avro.AvroConverter"
        assert config[f"{side}.converter.schema.registry.url"].startswith("https://")
        user = config[f"{side}.converter.basic.auth.user.info"]
        assert user.endswith(":${env:REGISTRY_PW}")
    assert audit(config, capture) == []


@pytest.mark.parametrize(
    ("given_url", "url"),
    [
        ("http://r:8080/apis/ccompat/v7", "http://r:8080/apis/registry/v2"),
        ("http://r:8080", "http://r:8080/apis/registry/v2"),
        ("https://r/base/apis/ccompat/v7", "https://r/base/apis/registry/v2"),
    ],
)
def test_the_apicurio_converter_gets_apicurios_own_api(given_url: str, url: str) -> None:
    assert apicurio_url(given_url) == url


def test_the_heartbeat_names_its_slot() -> None:
    _, capture = plain()
    statement = heartbeat_sql(capture)
    assert f"'{capture.slot}'" in statement
    assert "ON CONFLICT (source) DO UPDATE" in statement


def test_a_silent_heartbeat_names_the_rights_that_its_statement_needs() -> None:
    _, capture = plain()
    assert "SELECT, INSERT, UPDATE on tributary.heartbeat " in silence_remedy(capture)
    logged = replace(capture, tier=TableSettings(mode="append").capture_tier)
    assert "SELECT, INSERT, DELETE on tributary.heartbeat_log " in silence_remedy(logged)
    assert "`tributary onboard`" in silence_remedy(logged)


# --- audit ---------------------------------------------------------------------------------------


def test_what_we_make_passes_the_audit() -> None:
    config, capture = plain()
    assert audit(config, capture) == []


def test_raw_overrides_are_audited_too() -> None:
    config, capture = made(with_connect(connector={"snapshot.mode": "when_needed"}))
    (finding,) = audit(config, capture)
    assert (finding.property, finding.found, finding.required) == (
        "snapshot.mode",
        "when_needed",
        "no_data",
    )


PROVEN = [
    *capture_settings(names("shop", read(with_connect()).sources["shop"])),
    "exactly.once.support",
    "key.converter",
    "value.converter",
    "key.converter.apicurio.registry.auto-register",
    "key.converter.apicurio.registry.as-confluent",
    "value.converter.apicurio.registry.use-id",
    "value.converter.apicurio.registry.find-latest",
    "value.converter.apicurio.registry.headers.enabled",
]


@pytest.mark.parametrize("name", PROVEN)
@pytest.mark.parametrize("present", [True, False])
def test_each_setting_is_proven(name: str, *, present: bool) -> None:
    config, capture = plain()
    wanted = config.pop(name)
    if present:
        config[name] = "something else"
    (finding,) = [item for item in audit(config, capture) if item.property == name]
    assert finding.found == ("something else" if present else NOT_SET)
    assert wanted in finding.required
    assert finding.reason
    assert name in str(finding)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("table.include.list", "public.orders"),
        ("table.exclude.list", "public.orders"),
        ("schema.include.list", "public"),
        ("column.include.list", "public.orders.id"),
        ("column.exclude.list", "public.orders.id"),
        ("column.mask.with.12.chars", "public.orders.name"),
        ("column.mask.hash.SHA-256.with.salt.x", "public.orders.name"),
        ("column.truncate.to.20.chars", "public.orders.name"),
        ("message.key.columns", "public.orders:name"),
        ("message.prefix.include.list", "x"),
        ("transforms", "unwrap"),
        ("transforms.unwrap.type", "io.debezium.transforms.ExtractNewRecordState"),
        ("predicates", "p"),
        ("converters", "c"),
        ("post.processors", "reselector"),
        ("signal.data.collection", "public.signals"),
        ("signal.kafka.topic", "signals"),
        ("snapshot.include.collection.list", "public.orders"),
        ("snapshot.select.statement.overrides", "public.orders"),
        ("flush.lsn.source", "false"),
        ("slot.seek.to.known.offset.on.start", "false"),
        ("slot.stream.params", "include-xids=true"),
        ("database.options", "-c bytea_output=escape"),
        ("driver.socketTimeout", "30"),
        ("database.initial.statements", "SET search_path TO elsewhere"),
        ("topic.regex", ".*"),
        ("topic.replacement", "x"),
        ("sourceinfo.struct.maker", "x"),
        ("table.ignore.builtin", "false"),
        ("guardrail.collections.max", "10"),
        ("internal.log.position.check.enable", "false"),
        ("replica.identity.autoset.values", "public.*:FULL"),
        ("extended.headers.enabled", "false"),
        ("producer.override.acks", "1"),
        ("producer.override.transactional.id", "x"),
        ("producer.override.max.in.flight.requests.per.connection", "5"),
        ("value.converter.connect.meta.data", "false"),
        ("key.converter.scrub.invalid.names", "true"),
        ("value.converter.generalized.sum.type.support", "true"),
        ("value.converter.flatten.unions", "true"),
        ("value.converter.discard.type.doc.default", "true"),
        ("value.converter.apicurio.registry.artifact.version", "3"),
        ("value.converter.apicurio.registry.artifact-resolver-strategy", "x.SimpleTopicIdStrategy"),
        ("key.converter.apicurio.registry.auto-register.if-exists", "RETURN"),
        ("value.converter.apicurio.registry.dereference-schema", "false"),
        ("value.converter.apicurio.registry.avro.encoding", "JSON"),
        ("value.converter.apicurio.registry.id-handler", "x.Legacy8ByteIdHandler"),
        ("value.converter.apicurio.registry.url.version", "2"),
        ("header.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("signal.enabled.channels", "source,file"),
        ("transaction.metadata.factory", "x"),
        ("connector.plugin.version", "[3.6.1.Final]"),
        ("value.converter.plugin.version", "2.6.2.Final"),
    ],
)
def test_each_property_that_breaks_the_capture_is_found(name: str, value: str) -> None:
    config, capture = plain()
    (finding,) = audit({**config, name: value}, capture)
    assert (finding.property, finding.found, finding.required) == (name, value, NOT_SET)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transforms", ""),
        ("producer.override.acks", "all"),
        ("producer.override.max.in.flight.requests.per.connection", "1"),
        ("value.converter.connect.meta.data", "true"),
        ("producer.override.batch.size", "100000"),
        ("poll.interval.ms", "500"),
        ("max.batch.size", "4096"),
        ("guardrail.collections.max", "0"),
        ("extended.headers.enabled", "true"),
        ("database.tcpKeepAlive", "true"),
        ("status.update.interval.ms", "5000"),
        ("signal.enabled.channels", "source"),
        ("driver.socketTimeout", "0"),
        ("producer.override.interceptor.classes", "x"),
        ("value.converter.apicurio.registry.artifact.group-id", "shop"),
        ("value.converter.apicurio.registry.auto-register.if-exists", "RETURN_OR_UPDATE"),
        ("value.converter.apicurio.registry.avro.encoding", "BINARY"),
        ("value.converter.apicurio.registry.avro.schema-cache-size", "100"),
        ("value.converter.apicurio.registry.check-period-ms", "60000"),
        ("value.converter.apicurio.registry.id-handler", "x.Default4ByteIdHandler"),
        ("value.converter.apicurio.registry.request.ssl.truststore.location", "/etc/ca.p12"),
        ("value.converter.apicurio.registry.tls.truststore.location", "/etc/ca.p12"),
        ("value.converter.use.schema.id", "7"),  # a setting of another converter
    ],
)
def test_properties_that_only_tune_are_let_through(name: str, value: str) -> None:
    config, capture = plain()
    assert audit({**config, name: value}, capture) == []


@pytest.mark.parametrize("interval", ["0", "-1", "often", None])
def test_a_connector_without_heartbeats_is_found(interval: str | None) -> None:
    config, capture = plain()
    name = "heartbeat.interval.ms"
    broken = {key: value for key, value in config.items() if key != name}
    if interval is not None:
        broken[name] = interval
    (finding,) = audit(broken, capture)
    assert (finding.property, finding.found) == (name, interval or NOT_SET)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "SELECT * FROM tributary.heartbeat",
        "INSERT INTO tributary.heartbeat_log VALUES (1)",
    ],
)
def test_heartbeats_must_write_to_the_captures_table(query: str) -> None:
    config, capture = plain()
    assert capture.heartbeat_table == "heartbeat"
    (finding,) = audit({**config, "heartbeat.action.query": query}, capture)
    assert (finding.property, finding.found) == ("heartbeat.action.query", query)
    assert finding.required == "an INSERT INTO tributary.heartbeat"


@pytest.mark.parametrize("name", ["database.password", "value.converter.apicurio.auth.password"])
def test_a_plain_secret_is_found_and_not_repeated(name: str) -> None:
    config, capture = plain()
    (finding,) = audit({**config, name: "hunter2"}, capture)
    assert finding.property == name
    assert "hunter2" not in str(finding)


def test_another_connectors_names_are_found() -> None:
    config, capture = plain()
    other = names("shop", read(with_connect()).sources["shop"], "hot")
    found = {item.property: item.required for item in audit(config, other)}
    assert found == {
        "publication.name": other.publication,
        "slot.name": other.slot,
        "topic.prefix": other.topic_prefix,
        "unavailable.value.placeholder": other.placeholder,
    }
    assert capture != other


def test_findings_are_sorted_and_all_reported() -> None:
    config, capture = plain()
    broken = copy.copy(config)
    broken.update({"transforms": "x", "snapshot.mode": "initial", "errors.tolerance": "all"})
    found = [item.property for item in audit(broken, capture)]
    assert found == ["errors.tolerance", "snapshot.mode", "transforms"]


def test_each_capture_has_a_placeholder_of_its_own() -> None:
    config, capture = plain()
    assert config["unavailable.value.placeholder"] == capture.placeholder
    source = read(with_connect()).sources["shop"]
    found = {names("shop", source, tier).placeholder for tier in ("default", "hot", "cold")}
    assert len(found) == 3
    assert names("shop", source).placeholder == capture.placeholder, "it never changes"


# --- logs ----------------------------------------------------------------------------------------


def log_capture() -> tuple[dict[str, str], CaptureNames]:
    config = read(with_connect())
    source, tier = config.sources["shop"], TableSettings(mode="append").capture_tier
    config_of_logs = connector_config("shop", source, tier, config.kafka, config.connect)
    return config_of_logs, names("shop", source, tier)


def test_logs_have_names_of_their_own() -> None:
    _, capture = log_capture()
    _, keyed = plain()
    for field in ("publication", "slot", "connector", "topic_prefix", "heartbeat_topic"):
        assert getattr(capture, field) != getattr(keyed, field)
    assert capture.transaction_topic == f"{capture.topic_prefix}.transaction"
    assert capture.transaction_topic in capture.own_topics
    assert keyed.transaction_topic not in keyed.own_topics


def test_only_the_connector_of_logs_tells_where_transactions_end() -> None:
    config, capture = log_capture()
    assert config["provide.transaction.metadata"] == "true"
    assert audit(config, capture) == []
    keyed, names_of_keyed = plain()
    assert keyed["provide.transaction.metadata"] == "false"
    for connector, of in ((config, names_of_keyed), (keyed, capture)):
        found = {item.property for item in audit(connector, of)}
        assert "provide.transaction.metadata" in found


def test_a_heartbeat_is_an_insert_where_nothing_else_is_published() -> None:
    _, capture = log_capture()
    statement = heartbeat_sql(capture)
    assert "INSERT INTO tributary.heartbeat_log" in statement
    assert "ON CONFLICT" not in statement
    assert f"source = '{capture.slot}'" in statement, "others' heartbeats are not deleted"


def test_logs_need_exactly_once_delivery() -> None:
    document = with_connect(exactly_once=False)
    document["tables"] = {"public.events": {"mode": "append"}}
    with pytest.raises(ConfigError, match=r"append needs connect\.exactly_once"):
        read(document)
