"""Reads single Avro events of a connector in this process, without Spark."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import fastavro

from cdc.errors import DecodeError
from schemas.avro import split_wire
from schemas.errors import SchemaError

if TYPE_CHECKING:
    from cdc.kafka import KafkaRecord
    from schemas.registry import SchemaRegistry

T = TypeVar("T")


class EventReader:
    """Decodes records of Debezium. It fetches each writer's schema only once.

    Args:
        registry: The writers' schemas.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._schemas: dict[int, Any] = {}

    def read(self, record: KafkaRecord, what: str, take: Callable[[Any], T]) -> T:
        """Decode the event in a record, and return what ``take`` makes of the event.

        Args:
            record: The record.
            what: What the record should be, for the error's message: for example ``a heartbeat``.
            take: Takes the decoded event and returns the result. It raises a KeyError, TypeError or
                ValueError if the event is not what the record should be.

        Raises:
            RegistryError: The registry does not know the record's schema.
            DecodeError: The record cannot be decoded, or is not what it should be.
        """
        try:
            return take(self._event(record.value or b""))
        except (SchemaError, KeyError, TypeError, ValueError, EOFError) as error:
            raise DecodeError(
                f"the record at offset {record.offset} of topic {record.topic} partition"
                f" {record.partition} is not {what}: {error}",
                remedy="Check that only this source's connector writes to the topic.",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            ) from error

    def _event(self, value: bytes) -> Any:
        """Decode a record's value by the schema whose id is at the beginning of the value."""
        schema_id, body = split_wire(value)
        if schema_id not in self._schemas:
            document = json.loads(self._registry.schema(schema_id))
            self._schemas[schema_id] = fastavro.parse_schema(document)
        return fastavro.schemaless_reader(io.BytesIO(body), self._schemas[schema_id])
