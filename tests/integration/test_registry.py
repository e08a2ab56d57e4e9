"""Reads from a real schema registry through its Confluent-compatible API."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator

import httpx
import pytest
import stamina

from schemas.errors import RegistryError
from schemas.registry import ConfluentRegistry, RegistryEndpoint
from stack.local import LocalStack

SCHEMA = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}


@pytest.fixture(scope="module")
def url(stack: LocalStack) -> str:
    stack.up()
    return stack.addresses().registry_url


@pytest.fixture
def registry(url: str) -> Iterator[ConfluentRegistry]:
    with contextlib.closing(ConfluentRegistry(RegistryEndpoint(url))) as client:
        yield client


def register(url: str, schema: object, kind: str | None = None) -> int:
    body = {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
    if kind is not None:
        body["schemaType"] = kind
    answer = httpx.post(f"{url}/subjects/{uuid.uuid4()}-key/versions", json=body, timeout=30)
    return int(answer.raise_for_status().json()["id"])


def test_a_schema_is_read_by_its_id(url: str, registry: ConfluentRegistry) -> None:
    registry.ping()
    schema_id = register(url, SCHEMA)
    assert json.loads(registry.schema(schema_id)) == SCHEMA


def test_a_schema_is_fetched_once(url: str, registry: ConfluentRegistry) -> None:
    schema_id = register(url, SCHEMA)
    first = registry.schema(schema_id)
    begun = time.monotonic()
    for _ in range(10_000):
        assert registry.schema(schema_id) is first
    assert time.monotonic() - begun < 1


def test_an_unknown_id_is_named(registry: ConfluentRegistry, url: str) -> None:
    with pytest.raises(RegistryError) as caught:
        registry.schema(987654321)
    assert "987654321" in str(caught.value)
    assert url in str(caught.value)
    assert "store survived" in caught.value.remedy


def test_other_kinds_of_schemas_are_refused(url: str, registry: ConfluentRegistry) -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    schema_id = register(url, schema, "JSON")
    with pytest.raises(RegistryError) as caught:
        registry.schema(schema_id)
    assert "JSON" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "says"),
    [("http://127.0.0.1:9", "unreachable"), ("http://nowhere.invalid", "unreachable")],
)
def test_an_unreachable_registry_is_told_with_its_address(address: str, says: str) -> None:
    with (
        contextlib.closing(ConfluentRegistry(RegistryEndpoint(address))) as client,
        stamina.set_testing(True, attempts=2),
        pytest.raises(RegistryError) as caught,
    ):
        client.schema(1)
    assert says in str(caught.value)
    assert address in str(caught.value)


@pytest.mark.parametrize("path", ["", "/apis/registry/v2", "/nothing"])
def test_another_address_of_the_same_server_is_refused(url: str, path: str) -> None:
    elsewhere = url.partition("/apis/")[0] + path
    with (
        contextlib.closing(ConfluentRegistry(RegistryEndpoint(elsewhere))) as client,
        pytest.raises(RegistryError) as caught,
    ):
        client.ping()
    assert "kafka.registry.url" in caught.value.remedy


def test_the_password_is_not_shown() -> None:
    endpoint = RegistryEndpoint("http://r", username="u", password="hunter2")
    assert "hunter2" not in repr(endpoint)
