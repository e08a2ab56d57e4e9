from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from cdc.config import Config, TableSettings, load, parse
from cdc.config.document import dotted
from cdc.errors import ConfigError
from schemas.table import TableId
from tests.unit.cdc.configuration import (
    ENVIRONMENT,
    Path_,
    at,
    changed,
    full,
    minimal,
    read,
    refusal,
)
from tests.unit.cdc.configuration import environment as environment


def leaves(value: object, path: Path_ = ()) -> Iterator[Path_]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    else:
        yield path


def maps(value: object, path: Path_ = ()) -> Iterator[Path_]:
    if isinstance(value, dict):
        yield path
        for key, item in value.items():
            yield from maps(item, (*path, key))


RAW = {"options", "librdkafka", "java", "config", "secrets", "connector", "hadoop", "conf", "hudi"}
OPEN = RAW | {"sources", "tables", "tiers", "as", "renames", "checks", "readers"}
CLOSED_MAPS = [path for path in maps(full()) if not path or path[-1] not in OPEN]


def test_a_full_document_is_read_and_keeps_every_value() -> None:
    config = read(full(), base=Path("/etc/tributary"))
    shop = config.sources["shop"]
    assert shop.primary.port == 5433
    assert shop.primary.sslrootcert == Path("/etc/tributary/ca.pem")
    assert shop.primary.options == {"connect_timeout": "10"}
    assert shop.credentials.capture.user == "capture"
    assert config.kafka.topic.config == {"min.insync.replicas": "2"}
    assert config.spark.conf == {"spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "false"}
    assert config.lake.hadoop == {"fs.s3a.secret.key": "canary-s3_secret"}
    assert config.defaults.chunk_bytes == 64 * 1024 * 1024
    assert config.state.connection_url() == "postgresql://tributary:canary-state_pw@db/state"


def test_a_minimal_document_takes_the_documented_defaults(tmp_path: Path) -> None:
    config = read(minimal(), base=tmp_path)
    shop = config.sources["shop"]
    assert (shop.kind, shop.primary.port, shop.replica) == ("postgres", 5432, None)
    assert shop.credentials.capture == shop.credentials.admin
    assert config.lake.url == str(tmp_path / "lake")
    assert config.state.url == f"sqlite:///{tmp_path}/.tributary/state.db"
    assert config.spark.local
    assert config.defaults == TableSettings()
    assert config.defaults.chunk_bytes == 128 * 1024 * 1024
    assert config.connect.exactly_once


def test_the_full_document_sets_every_key_there_is() -> None:
    """The tests below change each key of this document, so it must have all keys."""

    def missing(model: type[BaseModel], value: Any, path: str) -> Iterator[str]:
        for attribute, field in model.model_fields.items():
            name = field.alias or attribute
            if name not in value:
                yield f"{path}.{name}"
            elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                yield from missing(field.annotation, value[name], f"{path}.{name}")

    document = full()
    config = read(document)
    assert list(missing(Config, document, "")) == []
    source = type(config.sources["shop"])
    assert list(missing(source, document["sources"]["shop"], "shop")) == []
    assert list(missing(TableSettings, document["tables"]["public.orders"], "orders")) == []


@pytest.mark.parametrize("path", list(leaves(full())), ids=dotted)
def test_a_value_of_the_wrong_type_is_refused_by_its_path(path: Path_) -> None:
    wrong = {"not": {"a": "scalar"}} if path[-1] not in ("include", "exclude") else 7
    error = refusal(changed(path, wrong))
    assert error.context["field"].startswith(dotted(path))
    assert dotted(path) in error.message


@pytest.mark.parametrize("path", [path for path in maps(full()) if path], ids=dotted)
def test_a_section_that_is_no_map_is_refused_by_its_path(path: Path_) -> None:
    error = refusal(changed(path, 42))
    assert error.context["field"] == dotted(path)
    assert "must be a map" in error.message


@pytest.mark.parametrize("path", CLOSED_MAPS, ids=dotted)
def test_an_unknown_key_is_refused_by_its_path(path: Path_) -> None:
    error = refusal(changed((*path, "zzz"), 1))
    assert error.context["field"] == dotted((*path, "zzz"))
    assert "unknown key; the allowed keys are" in error.message


@pytest.mark.parametrize("path", CLOSED_MAPS, ids=dotted)
def test_a_misspelt_key_is_answered_with_the_one_that_was_meant(path: Path_) -> None:
    document = full()
    names = list(at(document, path))
    for name in names:
        at(document, path)[f"{name}s" if len(name) > 3 else name + name[-1]] = 1
    message = refusal(document).message
    for name in names:
        assert f"did you mean '{name}'?" in message


@pytest.mark.parametrize(
    "path",
    [
        ("sources",),
        ("kafka",),
        ("connect",),
        ("lake",),
        ("sources", "shop", "primary"),
        ("sources", "shop", "primary", "host"),
        ("sources", "shop", "primary", "database"),
        ("sources", "shop", "credentials"),
        ("sources", "shop", "credentials", "admin"),
        ("sources", "shop", "credentials", "admin", "user"),
        ("kafka", "bootstrap_servers"),
        ("kafka", "registry"),
        ("kafka", "registry", "url"),
        ("connect", "url"),
        ("lake", "url"),
    ],
    ids=dotted,
)
def test_a_required_key_that_is_missing_is_named(path: Path_) -> None:
    document = minimal()
    del at(document, path[:-1])[path[-1]]
    error = refusal(document)
    assert error.message == f"tributary.yaml: {dotted(path)}: is required"
    assert error.context["field"] == dotted(path)


def test_all_problems_are_reported_at_once() -> None:
    document = minimal()
    document["sources"]["shop"]["primary"]["prot"] = 1
    document["kafka"]["bootstrap_servers"] = ""
    document["spark"] = {"parallel_tables": 0}
    error = refusal(document)
    assert error.message.startswith("tributary.yaml has 3 problems:\n")
    for expected in (
        "sources.shop.primary.prot: unknown key; did you mean 'port'?",
        "kafka.bootstrap_servers: string should have at least 1 character",
        "spark.parallel_tables: input should be greater than or equal to 1",
    ):
        assert expected in error.message


@pytest.mark.parametrize(
    ("path", "value", "field", "text"),
    [
        (("sources",), {}, "sources", "at least one source"),
        (("sources", "Shop"), {}, "sources.Shop", "match pattern"),
        (("state", "url"), "sqlite:///x.db", "state.url", "SQLite works only with a local"),
        (("sources", "shop", "primary", "sslkey"), None, "sources.shop.primary.sslkey", "together"),
        (
            ("sources", "shop", "replica", "sslmode"),
            "disable",
            "sources.shop.replica.sslmode",
            "certif",
        ),
        (("kafka", "security", "protocol"), "SSL", "kafka.security.mechanism", "has no login"),
        (("kafka", "security", "protocol"), "SASL_PLAINTEXT", "kafka.security.ca_file", "no TLS"),
        (
            ("kafka", "security", "password"),
            None,
            "kafka.security.password",
            "is required for mechanism",
        ),
        (("kafka", "security", "key_file"), None, "kafka.security.key_file", "go together"),
        (("kafka", "topic", "replication_factor"), 0, "kafka.topic.replication_factor", "-1"),
        (
            ("kafka", "topic", "config"),
            {"cleanup.policy": "compact"},
            'kafka.topic.config."cleanup.policy"',
            "loses",
        ),
        (
            ("kafka", "topic", "config"),
            {"retention.ms": 5},
            'kafka.topic.config."retention.ms"',
            "retention_ms",
        ),
        (("kafka", "registry", "url"), "registry:8080", "kafka.registry.url", "http://"),
        (("kafka", "registry", "url"), "http://a:b@c", "kafka.registry.url", "contains a login"),
        (
            ("kafka", "registry", "url"),
            "http://a:b/hidden@c",
            "kafka.registry.url",
            "contains a login",
        ),
        (
            ("kafka", "registry", "url"),
            "http://c/?token=hidden",
            "kafka.registry.url",
            "parameters",
        ),
        (("connect", "url"), "http://c/#hidden", "connect.url", "parameters"),
        (
            ("kafka", "bootstrap_servers"),
            "a:hidden@b:9092",
            "kafka.bootstrap_servers",
            "contains a login",
        ),
        (("catalog", "metastore"), "thrift://a:hidden@b:9083", "catalog.metastore", "pattern"),
        (("lake", "url"), "s3a://key:hid/den@bucket", "lake.url", "contains a login"),
        (("lake", "url"), "s3a://key:hidden@bucket", "lake.url", "contains a login"),
        (("lake", "url"), "s3a://hidden@bucket", "lake.url", "contains a login"),
        (
            ("lake", "url"),
            "abfss://a:hidden@b.dfs.core.windows.net",
            "lake.url",
            "contains a login",
        ),
        (("lake", "url"), "abfss://a@b:hidden@c.example.com", "lake.url", "contains a login"),
        (("lake", "name"), "../{table}", "lake.name", "relative path"),
        (("lake", "name"), "{source}//{table}", "lake.name", "relative path"),
        (("lake", "name"), "{tabel}", "lake.name", "unknown placeholder {tabel}"),
        (("lake", "name"), "{table", "lake.name", "not a template"),
        (("lake", "name"), "{table!r}", "lake.name", "unknown placeholder"),
        (("lake", "name"), "{table}", "lake.name", "it must contain {schema}"),
        (("defaults", "name"), "sales", "defaults.name", "it must contain {schema}, {table}"),
        (("tables", "*.orders"), {"name": "x"}, 'tables."*.orders".name', "must contain {schema}"),
        (("tables", "public.orders", "name"), "/x", 'tables."public.orders".name', "relative"),
        (
            ("sources", "shop", "slot"),
            "slot_{tire}",
            "sources.shop.slot",
            "unknown placeholder {tire}",
        ),
        (("sources", "shop", "slot"), "Slot", "sources.shop.slot", "match pattern"),
        (("spark", "driver_memory"), "4 GB", "spark.driver_memory", "match pattern"),
        (
            ("defaults", "columns"),
            {"include": ["id"], "exclude": ["x"]},
            "defaults.columns",
            "not both",
        ),
        (("defaults", "columns"), {"exclude": ["id"]}, "defaults.columns", "left out: id"),
        (("defaults", "columns"), {"include": ["country"]}, "defaults.columns", "left out: id"),
        (("defaults", "index"), "bloom", "defaults.buckets", "has no buckets"),
        (("tables", "public.orders", "index"), "bloom", 'tables."public.orders".buckets', "has no"),
        (("tables", "orders"), {}, "tables.orders", "is not *, schema.table"),
        (("tables", "shp:public.orders"), {}, 'tables."shp:public.orders"', "no configured source"),
        (("defaults", "tier"), "a_b", "defaults.tier", "match pattern"),
        (
            ("connect", "secrets"),
            {"database.password": "hidden"},
            'connect.secrets."database.password"',
            "plain text",
        ),
        (
            ("connect", "connector"),
            {"a.password": "hidden"},
            'connect.connector."a.password"',
            "plain text",
        ),
        (("connect", "connector"), {"a": "${ADMIN_PW}"}, "connect.connector.a", "${env:NAME}"),
        (("spark", "conf"), {"x.password": "hidden"}, 'spark.conf."x.password"', "plain text"),
        (
            ("kafka", "java"),
            {"sasl.jaas.config": "hidden"},
            'kafka.java."sasl.jaas.config"',
            "plain text",
        ),
        (
            ("lake", "hadoop"),
            {"fs.s3a.secret.key": "hidden"},
            'lake.hadoop."fs.s3a.secret.key"',
            "plain text",
        ),
        (("state", "url"), "postgresql://a:hidden@b/c", "state.url", "plain text"),
        (("state", "url"), "postgresql://b/c?password=hidden", "state.url", "plain text"),
        (("state", "url"), "postgresql://a:hid/den@b/c", "state.url", "plain text"),
        (("state", "url"), "postgresql://a:hidden${STATE_PW}@b/c", "state.url", "plain text"),
        (("state", "url"), "mysql://b/c?ssl_key_password=hidden", "state.url", "plain text"),
        (("state", "url"), "mysql://b/c?a=b&pass%77ord=hidden", "state.url", "plain text"),
        (
            ("sources", "shop", "primary", "host"),
            "${NOT_SET}",
            "sources.shop.primary.host",
            "NOT_SET is not set",
        ),
    ],
)
def test_what_cannot_work_is_refused_by_its_path(
    path: Path_, value: object, field: str, text: str
) -> None:
    error = refusal(changed(path, value))
    assert error.context["field"] == field
    assert text in error.message
    assert error.remedy
    assert "hidden" not in error.message


@pytest.mark.parametrize("scheme", ["abfs", "abfss", "wasb", "wasbs"])
def test_a_lake_may_be_in_a_container_of_an_azure_account(scheme: str) -> None:
    url = f"{scheme}://lake@account.dfs.core.windows.net/tables"
    assert read(changed(("lake", "url"), url)).lake.url == url


SECRETS = [path for path in leaves(full()) if path[-1] in ("password", "key_password")]


@pytest.mark.parametrize("path", SECRETS, ids=dotted)
@pytest.mark.parametrize("plain", ["hunter2", "", "${A}${B}", "x${A}", "${file:relative}", 7])
def test_a_secret_in_plain_text_is_refused_and_not_repeated(path: Path_, plain: object) -> None:
    error = refusal(changed(path, plain))
    assert error.context["field"] == dotted(path)
    assert "plain text" in error.message
    assert "${NAME}" in error.message
    assert "hunter2" not in f"{error!r} {error} {error.to_dict()} {error.__cause__}"


def test_no_secret_shows_in_the_repr_or_survives_pickling() -> None:
    config = read(full())
    shown = f"{config!r} {config} {pickle.dumps(config)!r}"
    assert "canary" not in repr(config)
    for name, value in ENVIRONMENT.items():
        if name != "S3_SECRET":  # handed to Spark as it is, so the value has to be in the object
            assert value not in shown


def test_references_in_plain_values_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PORT", "6000")
    monkeypatch.setenv("DB_HOST", "db")
    document = changed(("sources", "shop", "primary", "port"), "${DB_PORT}")
    document = changed(("sources", "shop", "primary", "host"), "${DB_HOST}.example.com", document)
    document = changed(("spark", "conf"), {"a": "$${DB_HOST}"}, document)
    config = read(document)
    assert config.sources["shop"].primary.port == 6000
    assert config.sources["shop"].primary.host == "db.example.com"
    assert config.spark.conf == {"a": "${DB_HOST}"}


def test_references_below_an_unknown_key_are_left_alone() -> None:
    error = refusal({**minimal(), "lak": {"url": "${NOT_SET}"}})
    assert error.message == "tributary.yaml: lak: unknown key; did you mean 'lake'?"


def test_references_for_connect_are_kept_as_written() -> None:
    document = changed(("connect", "connector"), {"database.password": "${env:PW}"})
    config = read(document)
    assert config.connect.connector == {"database.password": "${env:PW}"}
    assert config.connect.secrets == {"database.password": "${vault:shop:password}"}


def test_sqlite_behind_a_reference_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_URL", "sqlite:////var/state.db")
    assert refusal(changed(("state", "url"), "${STATE_URL}")).context["field"] == "state.url"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a map of sections"),
        ("- a", "must be a map of sections"),
        ("a: [", "not valid YAML"),
        ("a: {password: hidden", "not valid YAML"),
        ("lake: {}\nlake: {}", "key 'lake' is given twice (line 2, column 1)"),
        ("x: \x01hidden", "not valid YAML"),
        ("? [a]\n: b", "not valid YAML"),
        ("1: {}", "key 1 is not text; put it in quotes (line 1, column 1)"),
        ("sources: {no: {}}", "key no is not text; put it in quotes (line 1, column 11)"),
    ],
)
def test_text_that_is_no_configuration_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert message in caught.value.message
    assert "hidden" not in caught.value.message


def test_anchors_and_merges_work() -> None:
    text = yaml.safe_dump(minimal()) + "tables: {public.a: &a {tier: x}, public.b: {<<: *a}}\n"
    assert parse(text).table_settings(TableId("shop", "public", "b")).tier == "x"


def test_where_the_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"configuration file tributary\.yaml does not exist"):
        load()
    for name, url in (("tributary", "a"), ("named", "b"), ("given", "c")):
        document = changed(("lake", "url"), f"s3a://{url}", minimal())
        Path(f"{name}.yaml").write_text(yaml.safe_dump(document))
    assert load().lake.url == "s3a://a"
    monkeypatch.setenv("TRIBUTARY_CONFIG", str(tmp_path / "named.yaml"))
    assert load().lake.url == "s3a://b"
    assert load(Path("given.yaml")).lake.url == "s3a://c"


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(binary)


def test_relative_paths_start_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    (tmp_path / "tributary.yaml").write_text(yaml.safe_dump(minimal()))
    config = load(tmp_path / "tributary.yaml")
    assert config.lake.url == str(tmp_path / "lake")
    assert config.state.url == f"sqlite:///{tmp_path}/.tributary/state.db"


def test_the_shares_of_tiers_are_at_most_the_whole() -> None:
    both = {"critical": {"pool_share": 0.5}, "bulk": {"pool_share": 0.5}, "default": {}}
    config = read(changed(("tiers",), both))
    assert config.tiers["critical"].pool_share == 0.5
    assert config.tiers["default"].pool_share is None
    error = refusal(changed(("tiers",), {**both, "other": {"pool_share": 0.1}}))
    assert error.context["field"] == "tiers"
    assert "the pool_share of all tiers is 1.1, more than 1" in error.message
    for share in (0, 1.01, -0.5):
        error = refusal(changed(("tiers",), {"critical": {"pool_share": share}}))
        assert error.context["field"] == "tiers.critical.pool_share"


def test_a_tier_sets_the_target_of_its_tables_and_a_table_overrides_it() -> None:
    document = {
        **minimal(),
        "defaults": {"freshness_target_s": 900},
        "tiers": {"critical": {"freshness_target_s": 300}, "bulk": {"pool_share": 0.1}},
        "tables": {
            "public.orders": {"tier": "critical"},
            "public.lines": {"tier": "critical", "freshness_target_s": 60},
            "public.log": {"tier": "bulk"},
        },
    }
    config = read(document)
    targets = {
        name: config.table_settings(TableId("shop", "public", name)).freshness_target_s
        for name in ("orders", "lines", "log", "other")
    }
    assert targets == {"orders": 300, "lines": 60, "log": 900, "other": 900}
    assert config.table_settings(TableId("shop", "public", "orders")).min_commit_interval_s == 30


def test_the_published_schema_is_the_one_of_the_code() -> None:
    published = Path(__file__).parents[4] / "schemas" / "tributary.schema.json"
    assert yaml.safe_load(published.read_text()) == Config.json_schema(), (
        "write it anew: tributary config schema > schemas/tributary.schema.json"
    )


def test_the_schema_is_valid_and_takes_what_the_code_takes() -> None:
    schema = Config.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for document in (full(), minimal()):
        assert [error.message for error in validator.iter_errors(document)] == []
    for path in [*CLOSED_MAPS]:
        assert not validator.is_valid(changed((*path, "zzz"), 1)), dotted(path)
    for path in SECRETS:
        assert not validator.is_valid(changed(path, "hunter2")), dotted(path)
    assert validator.is_valid(changed(("sources", "shop", "primary", "port"), "${DB_PORT}"))
