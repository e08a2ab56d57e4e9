"""Fetches the Avro schemas of a topic's records; each record has the id of its schema."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from schemas.avro import DebeziumSchema
from schemas.errors import AvroSchemaError, RegistryError, UnknownSchemaError

if TYPE_CHECKING:
    from schemas.registry import SchemaRegistry

_log = logging.getLogger(__name__)


class WriterSchemas:
    """The schemas of a run's change events in one topic, by id.

    Args:
        registry: The schema registry.
        topic: The topic. Its name determines the name of its events' schema.
    """

    def __init__(self, registry: SchemaRegistry, topic: str) -> None:
        self._registry = registry
        self._topic = topic
        self.known: dict[int, DebeziumSchema] = {}
        self.refused: dict[int, str] = {}
        """By schema id, the reason why the schema cannot be the schema of the topic's events."""

    def expect(self, schema_ids: Iterable[int]) -> None:
        """Fetch schemas that the next batch will probably need.

        Errors of the registry are ignored.
        """
        for schema_id in schema_ids:
            try:
                self.fetch(schema_id)
            except RegistryError as error:
                _log.debug("schema %s is not available: %s", schema_id, error)

    def fetch(self, schema_id: int) -> bool:
        """Fetch a schema; return whether events can be decoded with the schema.

        If events cannot be decoded, :attr:`refused` has the reason.

        Raises:
            RegistryError: The registry is unreachable, or refuses the request for a reason other
                than the schema.
        """
        if schema_id in self.known:
            return True
        if schema_id in self.refused:
            return False
        try:
            schema = DebeziumSchema.parse(self._registry.schema(schema_id))
        except (AvroSchemaError, UnknownSchemaError) as error:
            self.refused[schema_id] = error.message
            return False
        mismatch = schema.mismatch(self._topic)
        if mismatch is not None:
            self.refused[schema_id] = mismatch
            return False
        self.known[schema_id] = schema
        return True
