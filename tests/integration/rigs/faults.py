"""Faults around a run: servers, registries, schemas, leases, and records without a connector."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
from confluent_kafka import Producer

from cdc.config import Config
from cdc.connect import ConnectClient
from cdc.store.lease import Lease, Leases
from schemas.errors import RegistryError
from schemas.registry import SchemaRegistry
from schemas.table import TableId
from stack.local import LocalStack


@contextlib.contextmanager
def restarted(stack: LocalStack, server: str) -> Iterator[None]:
    """Kill a server, and start it again after the block."""
    stack.server(server).kill()
    try:
        yield
    finally:
        stack.up()


class DownRegistry:
    """A registry that cannot be reached."""

    def schema(self, schema_id: int) -> str:
        raise RegistryError("the registry is unreachable", remedy="Start it.")


class Interrupting:
    """A registry that calls a function before it gives its first answer."""

    def __init__(self, registry: SchemaRegistry, act: Callable[[], object]) -> None:
        self._registry = registry
        self._act = act
        self.interrupted = False

    def schema(self, schema_id: int) -> str:
        if not self.interrupted:
            self.interrupted = True
            self._act()
        return self._registry.schema(schema_id)


class FreeLeases(Leases):
    """Leases that exclude nobody, as if each lease had expired."""

    @contextlib.contextmanager
    def hold(self, table: TableId, **wanted: Any) -> Iterator[Lease]:
        elsewhere = TableId(table.source, table.schema, f"{table.name}-free")
        with super().hold(elsewhere, **wanted) as lease:
            yield lease


def produce(
    config: Config,
    topic: str,
    *values: bytes,
    key: bytes | None = b"k",
    headers: Sequence[tuple[str, bytes]] = (),
) -> None:
    """Append messages that no connector wrote to a topic with one partition."""
    producer = Producer(config.kafka.librdkafka_config())
    for value in values:
        producer.produce(topic, value=value, key=key, partition=0, headers=[*headers])
    assert producer.flush(30) == 0


class LostSchema:
    """A schema id that the registry has not assigned yet, but will assign soon.

    Args:
        url: The registry's Confluent-compatible API.
        ahead: How far this id is ahead of the newest id. Connectors take an id every few seconds.
    """

    def __init__(self, url: str, *, ahead: int = 30) -> None:
        self._url = url
        self.id = self._register({"type": "record", "name": "Last", "fields": []}) + ahead

    def write(self, value: bytes) -> bytes:
        """A copy of a message whose schema id is the lost one."""
        return b"\x00" + self.id.to_bytes(4, "big") + value[5:]

    def restore(self, schema: str, connect: ConnectClient, connector: str) -> None:
        """Register copies of the schema until one of them gets the lost id.

        The copies differ in their documentation. The connector is paused meanwhile, since it
        registers schemas, too.
        """
        document = json.loads(schema)
        connect.pause(connector)
        try:
            while (made := self._register(document)) < self.id:
                pass
        finally:
            connect.resume(connector)
            connect.wait_running(connector)
        assert made == self.id, "someone else took the id"

    def _register(self, schema: dict[str, Any]) -> int:
        body = {"schema": json.dumps({**schema, "doc": str(uuid.uuid4())})}
        url = f"{self._url}/subjects/{uuid.uuid4()}/versions"
        return int(httpx.post(url, json=body, timeout=30).raise_for_status().json()["id"])
