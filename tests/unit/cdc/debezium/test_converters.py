"""What the audit of a connector finds in the settings of its converters."""

from __future__ import annotations

import pytest

from cdc.debezium import audit, keeps_nulls
from tests.unit.cdc.configuration import ENVIRONMENT
from tests.unit.cdc.debezium.connectors import made, plain, with_connect


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("side", ["key", "value"])
@pytest.mark.parametrize(
    ("setting", "wanted"), [("auto.register.schemas", "true"), ("use.latest.version", "false")]
)
def test_confluents_converter_writes_the_id_of_the_writers_schema(
    side: str, setting: str, wanted: str
) -> None:
    config, capture = made(with_connect(converter="confluent"))
    (finding,) = audit({**config, f"{side}.converter.{setting}": "other"}, capture)
    assert finding.property == f"{side}.converter.{setting}"
    assert finding.required == wanted


def test_an_unknown_converter_is_found() -> None:
    config, capture = plain()
    (finding,) = audit({**config, "value.converter": "com.example.AvroConverter"}, capture)
    assert finding.found == "com.example.AvroConverter"


def test_only_confluents_converter_keeps_nulls_and_only_if_it_is_told_to() -> None:
    config, capture = made(with_connect(converter="confluent"))
    assert keeps_nulls(config)
    assert not keeps_nulls(plain()[0])
    name = "value.converter.ignore.default.for.nullables"
    without = {key: value for key, value in config.items() if key != name}
    assert not keeps_nulls(without)
    assert audit(without, capture) == [], "runs read such values from the primary"


@pytest.mark.parametrize(
    ("setting", "value", "harmless"),
    [
        ("use.schema.id", "7", "-1"),
        ("value.schema.id.serializer", "x.HeaderSchemaIdSerializer", "x.PrefixSchemaIdSerializer"),
        ("context.name.strategy", "x.OwnContexts", "io.confluent.x.NullContextNameStrategy"),
        ("rule.executors", "encrypt", None),
        ("use.latest.with.metadata", "major.version=2", None),
        ("latest.cache.size", None, "100"),
        ("value.subject.name.strategy", None, "x.RecordNameStrategy"),
    ],
)
def test_confluents_converter_writes_the_form_that_runs_read(
    setting: str, value: str | None, harmless: str | None
) -> None:
    config, capture = made(with_connect(converter="confluent"))
    name = f"value.converter.{setting}"
    if value is not None:
        (finding,) = audit({**config, name: value}, capture)
        assert (finding.property, finding.found) == (name, value)
    if harmless is not None:
        assert audit({**config, name: harmless}, capture) == []


def test_a_secret_of_a_converters_rules_is_not_repeated() -> None:
    config, capture = made(with_connect(converter="confluent"))
    name = "value.converter.rule.executors._default_.param.client.secret"
    found = audit({**config, name: "hunter2"}, capture)
    assert {finding.property for finding in found} == {name}
    assert "hunter2" not in " ".join(map(str, found))
