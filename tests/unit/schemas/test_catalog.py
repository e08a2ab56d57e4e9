"""A recorded catalog that lacks a fact is refused with an error that names the fact."""

from __future__ import annotations

import pytest

from schemas.catalog import Catalog
from schemas.errors import SchemaError
from tests.unit.schemas.catalogs import FACTS, LEAF, changed

INDEX = {"written": "5", "flags": "t", "chosen": False}
WHOLE = changed(
    indexes={"9": INDEX}, leaves={"public.o1": {**LEAF, "oid": 101, "relfilenode": 201}}
)
OPTIONAL = {"key_made", "children", "publication", "indexes", "replica_identity"}
REST = {"oid", "kind", "persistence", "partition_of", "publication_entry"}


@pytest.mark.parametrize("name", sorted(FACTS.keys() - OPTIONAL - REST))
def test_a_fact_that_every_catalog_has_is_named(name: str) -> None:
    facts = {key: fact for key, fact in WHOLE.items() if key != name}
    with pytest.raises(SchemaError, match=f"a table has no fact '{name}'$") as caught:
        Catalog.read(facts)
    assert "bootstrap" in caught.value.remedy


@pytest.mark.parametrize(
    ("part", "name"),
    [
        *((("leaves", "public.o1"), name) for name in WHOLE["leaves"]["public.o1"]),
        *((("indexes", "9"), name) for name in INDEX),
        *((("columns", "1"), name) for name in ("name", "shown", "nullable", "default", "written")),
        *((("publication",), name) for name in ("pubowner", "written")),
    ],
)
def test_a_fact_of_a_part_is_named(part: tuple[str, ...], name: str) -> None:
    facts = changed(**WHOLE)
    inner = facts
    for key in part[:-1]:
        inner[key] = dict(inner[key])
        inner = inner[key]
    inner[part[-1]] = {key: fact for key, fact in inner[part[-1]].items() if key != name}
    with pytest.raises(SchemaError, match=f"a table has no fact '{name}'$"):
        Catalog.read(facts)


def test_facts_that_only_some_servers_have_may_be_absent() -> None:
    catalog = Catalog.read({key: fact for key, fact in FACTS.items() if key not in OPTIONAL})
    assert (catalog.publication, catalog.indexes, catalog.replica_identity) == (None, {}, None)
    assert catalog.number == FACTS["oid"]
