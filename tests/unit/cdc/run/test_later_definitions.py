"""Events that the connector can have read by a later definition of their table."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.errors import SchemaChangeError
from cdc.lake.handoff import LakeColumn
from cdc.run.later_definitions import LaterDefinitions
from schemas.avro import DebeziumField, DebeziumSchema
from schemas.fingerprint import Fingerprint
from schemas.table import DROPPED, TableId
from tests.handoffs import handed
from tests.unit.schemas.catalogs import column, with_columns

TABLE = TableId("shop", "public", "t")
ADDED = LaterDefinitions(written={"c": 900})


def written(*names: str, **labels: str) -> DebeziumSchema:
    """A writer's schema with columns in this order; those with labels are enums."""
    fields = [
        DebeziumField(
            name,
            "string",
            "io.debezium.data.Enum" if name in labels else None,
            {"allowed": labels[name]} if name in labels else {},
        )
        for name in names
    ]
    return DebeziumSchema("{}", "Envelope", after=tuple(fields), envelope=("after", "source", "op"))


FORMER = written("id", "s", "a", s="x,y")


def entry(name: str, **facts: Any) -> LakeColumn:
    return LakeColumn(name, facts.pop("source", "text"), "string", **facts)


def test_what_the_handoff_knows_of_definitions() -> None:
    columns = {
        "2": column("c", written="901"),
        "3": column("m", written="902"),
        "4": column("g", generated=True, written="903"),
        "5": column("d", "dom", domain={"xmin": "700", "typnotnull": False, "typowner": 10}),
    }
    lake = [
        entry("id"),
        entry("c", late=True, added=True, fill="5"),
        entry("m", renamed=True, former=("n",)),
        entry("a", source=DROPPED),
    ]
    handoff = handed(lake, fingerprint=Fingerprint(with_columns(columns)))
    found = LaterDefinitions.of(handoff, "904")
    assert found.written == {"c": 901, "m": 902}
    assert (found.withheld, found.over_enums, found.dropped) == ({"g"}, {"d"}, {"a"})
    assert found.dropped_by == 904
    settled = [entry("c", added=True, fill="5"), entry("m", former=("n",))]
    handoff = handed(settled, fingerprint=Fingerprint(with_columns(columns)))
    assert LaterDefinitions.of(handoff).written == {}
    assert LaterDefinitions.of(handoff).dropped_by is None
    assert LaterDefinitions.of(handoff, replayed=True).written == {"c": 901, "m": 902}
    of_mysql = handed(lake, fingerprint=Fingerprint({"source_kind": "mysql"}))
    assert LaterDefinitions.of(of_mysql) == LaterDefinitions()


def test_values_behind_a_withheld_column_stop_the_table() -> None:
    found = LaterDefinitions(withheld=frozenset({"g"}))
    found.require_places(TABLE, {1: written("id", "a"), 2: written("id", "a", "g")})
    with pytest.raises(SchemaChangeError, match="'g', which the log does not carry") as caught:
        found.require_places(TABLE, {1: written("id", "g", "a")})
    assert "tributary bootstrap" in caught.value.remedy


def test_events_without_an_enum_are_in_no_doubt() -> None:
    assert ADDED.doubts({2: written("id", "c")}, {}) == {}
    assert ADDED.doubts({2: written("id", "s", s="x")}, {}) == {}, "the column is not there"


@pytest.mark.parametrize(
    ("labels", "before", "doubtful"),
    [
        ("x,y", {1: FORMER}, False),
        ("x,y,z", {1: FORMER}, True),  # a new label
        ("x,y", {}, True),  # the first batch after a copy
        ("x,y", {1: written("id", "other", other="x,y")}, True),
        ("x,y", {2: written("id", "s", "c", s="x,y"), 1: FORMER}, False),  # the rest of a migration
        ("x,y", {2: written("id", "s", "c", s="x,y"), 1: written("id", "s", s="x")}, True),
    ],
)
def test_a_new_label_and_a_later_column_are_in_doubt(
    labels: str, before: dict[int, DebeziumSchema], doubtful: bool
) -> None:
    now = {2: written("id", "s", "a", "c", s=labels)}
    assert ADDED.doubts(now, before) == ({2: 900} if doubtful else {})


def test_the_labels_of_a_domain_prove_nothing() -> None:
    over = LaterDefinitions(written={"c": 900}, over_enums=frozenset({"s"}))
    assert over.doubts({2: written("id", "s", "c", s="x,y")}, {1: FORMER}) == {2: 900}


def test_a_dropped_column_is_a_reason_only_while_events_can_have_had_it() -> None:
    found = LaterDefinitions(dropped=frozenset({"a"}), dropped_by=950)
    now = {2: written("id", "s", s="x,y,z")}
    assert found.doubts(now, {1: FORMER}) == {2: 950}
    assert found.doubts(now, {}) == {2: 950}
    assert found.doubts(now, {1: written("id", "s", s="x,y")}) == {}, "it was gone before"
    assert found.doubts({2: written("id", "s", "a", s="x,y,z")}, {1: FORMER}) == {}
    assert found.doubts(now, now) == {}, "it was gone before"


def test_a_dropped_column_that_the_lake_never_had_is_a_reason_too() -> None:
    """Events have all columns, even those that the settings leave out of the lake."""
    found = LaterDefinitions(frozenset({"g"}), dropped_by=950)
    excluded = written("id", "s", "ssn", "b", s="x")
    assert found.doubts({2: written("id", "s", "b", "c", s="x,y")}, {1: excluded}) == {2: 950}
    with_generated = written("id", "s", "b", "g", s="x")
    assert found.doubts({2: written("id", "s", "b", s="x,y")}, {1: with_generated}) == {}


def test_the_youngest_transaction_counts_also_where_ids_begin_again() -> None:
    found = LaterDefinitions(frozenset(), {"b": (1 << 32) - 5, "c": 7}, frozenset({"a"}), 3)
    assert found.doubts({2: written("id", "s", "b", "c", s="x")}, {}) == {2: 7}
