from __future__ import annotations

import pytest

from cdc.sources.postgres.hazards import hazards as of_columns
from cdc.sources.source_facts import ReplicaIdentity, SourceColumn
from schemas.types_postgres import PostgresType


def array(name: str, kind: str = "b") -> PostgresType:
    element = PostgresType(name, kind=kind)  # type: ignore[arg-type]
    return PostgresType(f"_{name}", element=element, display=f"{name}[]")


def hazards(
    kind: PostgresType, identity: ReplicaIdentity = "default", *, generated: bool = False
) -> tuple[str, ...]:
    key = SourceColumn("id", PostgresType("int4"), False, False, None)
    return of_columns((key, SourceColumn("c", kind, True, generated, None)), identity)


@pytest.mark.parametrize(
    "kind",
    [
        PostgresType("text"),
        PostgresType("numeric"),
        PostgresType("bit", 1),
        PostgresType("mood", kind="e"),
        *map(array, ("int4", "int8", "text", "varchar", "bpchar", "json", "jsonb")),
        *map(array, ("bytea", "uuid", "date")),
        array("interval"),
        array("pair", "c"),
        array("amount", "d"),
    ],
)
def test_types_that_always_travel_or_never_do(kind: PostgresType) -> None:
    assert hazards(kind) == ()


@pytest.mark.parametrize(
    "kind",
    [
        *map(array, ("int2", "bool", "float8", "inet", "timestamp", "oid", "citext", "hstore")),
        array("int4range", "r"),
        PostgresType("varbit"),
        PostgresType("polygon"),
        *map(PostgresType, ("vector", "halfvec", "sparsevec", "geometry", "geography")),
        PostgresType("bit", 9000),
        PostgresType("tags", kind="d", base=array("inet")),
        PostgresType("numbers", kind="d", base=array("int4")),
    ],
)
def test_large_values_without_a_stand_in(kind: PostgresType) -> None:
    (said,) = hazards(kind)
    assert "column c" in said
    assert str(kind) in said
    assert "REPLICA IDENTITY FULL avoids it for later updates" in said
    assert "columns.as and columns.exclude do not" in said
    assert hazards(kind, "full") == ()
    assert hazards(kind, generated=True) == ()


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (array("mood", "e"), "a NULL in the array"),
        (array("tsvector"), "a NULL in the array"),
        (array("numeric"), "a NaN in the array"),
        (array("bit"), "any value"),
        (PostgresType("interval"), "more than 2,147,483,647 hours"),
        (
            PostgresType("span", kind="d", base=PostgresType("interval")),
            "more than 2,147,483,647 hours",
        ),
        (PostgresType("timetz"), "a time whose offset has seconds (+05:30:15)"),
    ],
)
def test_values_that_no_replica_identity_helps(kind: PostgresType, says: str) -> None:
    (said,) = hazards(kind, "full")
    assert says in said
    assert "REPLICA IDENTITY" not in said
