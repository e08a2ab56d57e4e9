"""A schema id that a real registry does not know until a test registers it."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx

from cdc.connect import ConnectClient


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
