"""A fingerprint is parsed by its source's kind. An error names a fact that it lacks."""

from __future__ import annotations

import pytest

from schemas.catalog import Catalog
from schemas.errors import SchemaError
from tests.unit.schemas.catalogs import FACTS, LEAF, changed, column, with_columns

INDEX = {"written": "5", "flags": "t", "chosen": False}
WHOLE = changed(
    indexes={"9": INDEX}, leaves={"public.o1": {**LEAF, "oid": 101, "relfilenode": 201}}
)
OPTIONAL = {"key_made", "children", "publication", "indexes"}
REST = {"oid", "kind", "persistence", "partition_of", "publication_entry"}
MYSQL = {
    "source_kind": "mysql",
    "engine": "InnoDB",
    "columns": {"id": column("id", "int"), "a note": column("a note")},
    "primary_key": ["a note", "id"],
    "table_id": "7",
    "altered": "0",
    "read_at": "u:1-5",
}


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


def test_facts_that_only_some_tables_have_may_be_absent() -> None:
    catalog = Catalog.read({key: fact for key, fact in FACTS.items() if key not in OPTIONAL})
    assert (catalog.publication, catalog.indexes) == (None, {})
    assert catalog.number == FACTS["oid"]


@pytest.mark.parametrize("name", ["source_kind", "columns", "primary_key"])
def test_a_fact_that_every_catalog_of_mysql_has_is_named(name: str) -> None:
    facts = {key: fact for key, fact in MYSQL.items() if key != name}
    with pytest.raises(SchemaError, match=f"a table has no fact '{name}'$"):
        Catalog.read(facts)


def test_a_catalog_of_mysql_has_no_fact_that_only_postgres_has() -> None:
    catalog = Catalog.read(MYSQL)
    assert (catalog.primary_key, catalog.read_at) == (("a note", "id"), "u:1-5")
    assert catalog.rest == {"engine": "InnoDB"}, "storage is no fact by which events are lost"
    assert (catalog.attributes, catalog.replica_identity, catalog.number) == (None, None, None)
    assert (catalog.files, catalog.partitions, catalog.identity_key) == ({}, {}, ())


def names(before: Catalog, now: Catalog) -> list[tuple[str | None, str | None]]:
    pairs = now.column_pairs(before)
    return [(old and old.name, new and new.name) for old, new in pairs]


def test_a_renamed_column_of_mysql_is_another_column() -> None:
    columns = {"other": column("other"), "id": column("id", "int")}
    before, now = Catalog.read(MYSQL), Catalog.read({**MYSQL, "columns": columns})
    assert names(before, now) == [("a note", None), ("id", "id"), (None, "other")]
    assert [old.name for old, _ in now.kept_columns(before)] == ["id"]
    assert not now.added_and_dropped(before)


def test_a_renamed_column_of_postgres_keeps_its_number() -> None:
    more = {"2": column("other"), "3": None, "10": column("x"), "4": column("y")}
    before, now = Catalog.read(FACTS), Catalog.read(with_columns(more, attributes=10))
    kept = [("id", "id"), ("note", "other")]
    assert names(before, now) == [*kept, ("price", None), (None, "y"), (None, "x")]
    assert [(old.name, new.name) for old, new in now.kept_columns(before)] == kept
    assert now.added_and_dropped(before)
