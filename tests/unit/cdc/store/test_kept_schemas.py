"""Known schemas stay available while the registry is down; an id with a new schema is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.store.kept_schemas import KeptSchemas
from cdc.store.state_store import Store
from schemas.errors import RegistryError, UnknownSchemaError

URL = "http://registry:8080/apis/ccompat/v7"


class Registry:
    """A fake registry with schemas by id; it can be down, and counts the requests."""

    def __init__(self, **schemas: str) -> None:
        self.schemas = {int(name.removeprefix("id")): text for name, text in schemas.items()}
        self.away = False
        self.asked = 0

    def schema(self, schema_id: int) -> str:
        self.asked += 1
        if self.away:
            raise RegistryError("unreachable", remedy="Start it.")
        if schema_id not in self.schemas:
            raise UnknownSchemaError("unknown", remedy="Look.", schema_id=schema_id)
        return self.schemas[schema_id]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path / 'state.db'}")


def test_a_process_asks_once(store: Store) -> None:
    registry = Registry(id1='"int"')
    schemas = KeptSchemas(registry, URL, store)
    assert [schemas.schema(1) for _ in range(3)] == ['"int"'] * 3
    assert registry.asked == 1


def test_what_another_process_saw_is_there_while_the_registry_is_away(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    registry = Registry(id1='"int"', id2='"long"')
    KeptSchemas(registry, URL + "/", store).schema(1)
    registry.away, registry.asked = True, 0
    later = KeptSchemas(registry, URL, store)
    assert [later.schema(1), later.schema(1)] == ['"int"'] * 2
    assert registry.asked == 1, "it is left alone for a while"
    assert "taken from the state store" in caplog.text
    with pytest.raises(RegistryError, match="unreachable"):
        later.schema(2)
    registry.away = False
    assert later.schema(2) == '"long"'


def test_it_is_asked_again_after_a_while(store: Store) -> None:
    registry = Registry(id1='"int"')
    KeptSchemas(registry, URL, store).schema(1)
    registry.away = True
    later = KeptSchemas(registry, URL, store, away_s=0)
    later.schema(1)
    later.schema(1)
    assert registry.asked == 3


def test_an_id_that_means_another_schema_now_is_refused(store: Store) -> None:
    KeptSchemas(Registry(id1='{"type": "int"}'), URL, store).schema(1)
    assert KeptSchemas(Registry(id1='{"type":"int"}'), URL, store).schema(1)
    with pytest.raises(UnknownSchemaError, match="now names another schema"):
        KeptSchemas(Registry(id1='"long"'), URL, store).schema(1)
    assert KeptSchemas(Registry(id1='"long"'), "http://other", store).schema(1) == '"long"'


def test_records_from_before_are_not_read_with_the_ids_of_a_new_registry(store: Store) -> None:
    """Under a new address, ids are not compared, so the tables must leave their topics first."""
    KeptSchemas(Registry(id1='"int"'), URL, store).schema(1)
    with pytest.raises(UnknownSchemaError) as refused:
        KeptSchemas(Registry(id1='"long"'), URL, store).schema(1)
    steps = ("`tributary offboard`", "kafka.registry.url", "topic_prefix", "`tributary onboard`")
    places = [refused.value.remedy.find(step) for step in steps]
    assert places == sorted(places)
    assert -1 not in places


def test_an_id_that_the_registry_has_forgotten_is_unknown(store: Store) -> None:
    KeptSchemas(Registry(id1='"int"'), URL, store).schema(1)
    with pytest.raises(UnknownSchemaError):
        KeptSchemas(Registry(), URL, store).schema(1)


def test_two_processes_may_keep_the_same_schema(store: Store) -> None:
    store.keep_schema(URL, 1, '"int"')
    store.keep_schema(URL, 1, '"int"')
    assert store.kept_schema(URL, 1) == '"int"'
    assert store.kept_schema(URL, 2) is None
