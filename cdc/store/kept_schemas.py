"""Writers' schemas, kept in the state store for times at which the registry is down."""

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
    """A registry's schemas by id. The state store has copies of the schemas for outages.

    Each process reads the schema of each id from the registry once, and compares it with the stored
    copy: a registry that has lost its database can assign the id to another schema. The stored copy
    is used only if the registry does not answer. Safe to share among threads.

    If the registry's address changes, ids are not compared with the copies of the former address.
    So no topic may have ids of two registries: a new registry needs new topics.

    Args:
        registry: The registry.
        url: The registry's address. The copies are stored by address and id.
        store: The state store that has the copies.
        away_s: Time after a failed call during which the registry is not called again, in seconds.
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
        """Return an id's Avro schema (JSON); the stored copy if the registry does not answer.

        Raises:
            UnknownSchemaError: The registry has no schema with this id, or the registry's schema
                differs from the stored copy.
            RegistryError: The registry does not answer, and the state store lacks the schema.
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
                f"schema id {schema_id} of registry {self._url} now names another schema: the"
                " registry has given out its ids again",
                remedy="Restore the registry's store from a backup. Where that is not possible, no"
                " record from before may be read with the new ids: first run `tributary offboard`"
                " for all tables, then give the registry another address in kafka.registry.url and"
                " each source another topic_prefix, then run `tributary onboard` for the tables,"
                " which copies them again. Readers keep the former copies until then.",
                schema_id=schema_id,
            )
        with self._lock:
            self._known[schema_id] = found
        return found
