"""A schema id that a real registry does not know yet, and comes to know when a test says so."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx

from cdc.connect import ConnectClient


class LostSchema:
    """An id that the registry will give out before long.

    Args:
        url: The registry's Confluent-compatible API.
        ahead: Ids that others may take meanwhile; connectors take one every few seconds.
    """

    def __init__(self, url: str, *, ahead: int = 30) -> None:
        self._url = url
        self.id = self._register({"type": "record", "name": "Last", "fields": []}) + ahead

    def write(self, value: bytes) -> bytes:
        """A message as if it had been written with the lost schema."""
        return b"\x00" + self.id.to_bytes(4, "big") + value[5:]

    def restore(self, schema: str, connect: ConnectClient, connector: str) -> None:
        """Give the id a schema: copies of it that differ in their documentation take the rest.

        The connector stands still meanwhile, since it takes ids, too.
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
