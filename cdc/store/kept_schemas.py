"""Writers' schemas that outlive an outage of the registry: each is kept in the state store."""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING

from schemas.errors import RegistryError, UnknownSchemaError

if TYPE_CHECKING:
    from cdc.store.state_store import Store
    from schemas.registry import SchemaRegistry

_log = logging.getLogger(__name__)


class KeptSchemas:
    """A registry's schemas by id; those that were ever seen also while the registry is away.

    The registry is asked first, once per process and id: that shows when it has lost its store and
    gives out its ids again. Safe to share among threads.

    Args:
        registry: The registry.
        url: Its address, under which its schemas are kept.
        store: Where they are kept.
        away_s: How long a registry that did not answer is left alone, in seconds.
    """

    def __init__(
        self, registry: SchemaRegistry, url: str, store: Store, *, away_s: float = 60.0
    ) -> None:
        self._registry = registry
        self._url = url.rstrip("/")
        self._store = store
        self._away_s = away_s
        self._away_until = float("-inf")
        self._known: dict[int, str] = {}
        self._lock = threading.Lock()

    def schema(self, schema_id: int) -> str:
        """The Avro schema under the id, as JSON text.

        Raises:
            UnknownSchemaError: There is none, or it is not the one that it was.
            RegistryError: The registry is away, and the schema was never seen before.
            StateError: The state store is not usable.
        """
        with self._lock:
            known, away = self._known.get(schema_id), time.monotonic() < self._away_until
        if known is not None:
            return known
        kept = self._store.kept_schema(self._url, schema_id)
        if kept is not None and away:
            return kept
        try:
            found = self._registry.schema(schema_id)
        except UnknownSchemaError:
            raise
        except RegistryError as error:
            with self._lock:
                self._away_until = time.monotonic() + self._away_s
            if kept is None:
                raise
            _log.warning("%s; schemas are taken from the state store meanwhile", error)
            return kept
        if kept is None:
            self._store.keep_schema(self._url, schema_id, found)
        elif json.loads(kept) != json.loads(found):
            raise UnknownSchemaError(
                f"schema id {schema_id} of registry {self._url} is another schema than it was:"
                " the registry has given out its ids again",
                remedy="Restore the registry's store from a backup. Where that is not possible,"
                " give the new registry another address in kafka.registry.url, and copy the tables"
                " again: `tributary resync`.",
                schema_id=schema_id,
            )
        with self._lock:
            self._known[schema_id] = found
        return found
