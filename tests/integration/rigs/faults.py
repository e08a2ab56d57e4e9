"""Faults around a run: failing servers, registries and leases, and records without a connector."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from confluent_kafka import Producer

from cdc.config import Config
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
