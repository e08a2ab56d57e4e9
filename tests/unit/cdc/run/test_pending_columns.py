"""Columns that events may lack or have under another name, as the lake's commits record them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import SchemaChangeError
from cdc.lake.handoff import Handoff, LakeColumn
from cdc.run.pending_columns import LateColumns
from schemas.avro import DebeziumSchema
from schemas.changes import Change, RenameColumn, Verdict
from schemas.fingerprint import Fingerprint
from schemas.table import DROPPED, Column, TableId, TableSchema
from tests.handoffs import handed

TABLE = TableId("shop", "public", "t")


class Writer:
    """The part of a writer's schema that these tests need: its columns."""

    def __init__(self, *names: str) -> None:
        self.after = [SimpleNamespace(column=name) for name in names]

    def field(self, name: str) -> SimpleNamespace | None:
        return next((one for one in self.after if one.column == name), None)


def written(*schemas: tuple[str, ...]) -> Mapping[int, DebeziumSchema]:
    return cast("Mapping[int, DebeziumSchema]", {n: Writer(*s) for n, s in enumerate(schemas)})


def entry(name: str, **facts: Any) -> LakeColumn:
    return LakeColumn(name, "text", "string", **facts)


def follow(columns: Iterable[LakeColumn], names: tuple[str, ...], *changes: Change) -> Handoff:
    had = handed(columns)
    return had.after_schema_change(
        [Column(name, "text", "string") for name in names],
        changes,
        Fingerprint({"source_kind": "postgres"}),
        fills={},
        schema=had.next_schema(changes, at=datetime.now(timezone.utc), schema_ids=()),
        hash_key=None,
    )


def rename(old: str, new: str, *former: str) -> RenameColumn:
    names = former or (old,)
    return RenameColumn(verdict=Verdict.FILL, why="", name=old, to=new, former=names)


def by_name(handoff: Handoff) -> dict[str, LakeColumn]:
    return {one.name: one for one in handoff.columns}


def test_the_new_name_is_looked_for_under_the_old_until_a_batch_has_it() -> None:
    now = follow([entry("id"), entry("a")], ("id", "b"), rename("a", "b"))
    assert by_name(now)["a"].source == DROPPED
    late = LateColumns.of(now)
    assert late.former == {"b": ("a",)}
    assert "b" not in late.absent, "an event without either name is not one of then"
    mixed = now.without_late_columns(written(("id", "a"), ("id", "b")))
    assert LateColumns.of(mixed).former == {"b": ("a",)}
    done = mixed.without_late_columns(written(("id", "b")))
    assert LateColumns.of(done).former == {}
    assert LateColumns.of(done, replayed=True).former == {"b": ("a",)}


def test_a_column_that_was_late_is_late_under_its_new_name() -> None:
    late = entry("a", late=True, added=True, fill="5")
    now = follow([entry("id"), late], ("id", "b"), rename("a", "b"))
    found = LateColumns.of(now)
    assert (found.absent["b"], found.former["b"]) == ("5", ("a",))


def test_renames_of_two_looks_add_up() -> None:
    first = follow([entry("id"), entry("a")], ("id", "b"), rename("a", "b"))
    second = follow(first.columns, ("id", "c"), rename("b", "c"))
    assert LateColumns.of(second).former == {"c": ("b", "a")}
    assert {n for n, one in by_name(second).items() if one.source == DROPPED} == {"a", "b"}


def schema(*names: str) -> TableSchema:
    return TableSchema(TABLE, tuple(Column(name, "text", "string") for name in names), ("id",))


def test_events_with_exactly_one_of_the_names_are_read() -> None:
    late = LateColumns(former={"c": ("b", "a")})
    late.require(schema("id", "c"), written(("id", "a"), ("id", "b"), ("id", "c", "x")))


@pytest.mark.parametrize("names", [("id",), ("id", "x"), ("id", "a", "b"), ("id", "a", "c")])
def test_events_with_none_or_two_of_the_names_stop_the_table(names: tuple[str, ...]) -> None:
    late = LateColumns(former={"c": ("b", "a")})
    with pytest.raises(SchemaChangeError, match="'c'") as caught:
        late.require(schema("id", "c"), written(names))
    assert "tributary bootstrap" in caught.value.remedy


def test_a_column_that_events_may_lack_is_not_asked_for() -> None:
    late = LateColumns(absent={"c": "NULL"})
    late.require(schema("id", "c"), written(("id",), ("id", "c")))
    late.require(schema("id", "c"), written(("id", "gone")))
    with pytest.raises(SchemaChangeError, match="had another name for a while"):
        LateColumns().require(schema("id", "c"), written(("id",)))


def test_events_whose_columns_are_in_another_order_stop_the_table() -> None:
    late = LateColumns(former={"c": ("b",)}, absent={"x": "NULL"}, ordered=True)
    known = schema("id", "a", "c", "x")
    late.require(known, written(("id", "a", "c"), ("id", "out", "a", "b"), ("id", "a", "c", "x")))
    for swapped in (("id", "c", "a"), ("id", "b", "a", "x")):
        with pytest.raises(SchemaChangeError, match="in another order") as caught:
            late.require(known, written(swapped))
        assert "tributary bootstrap" in caught.value.remedy
    LateColumns(absent={"x": "NULL"}).require(known, written(("id", "c", "a")))


def test_places_of_columns_are_facts_where_the_server_numbers_them() -> None:
    of_mysql = handed([], fingerprint=Fingerprint({"source_kind": "mysql"}))
    assert not LateColumns.of(of_mysql).ordered
    assert LateColumns.of(handed([])).ordered


def test_a_new_column_that_had_another_name_at_first_stops_the_table() -> None:
    late = LateColumns(absent={"c": "5"}, new=frozenset({"c"}), known=frozenset({"id", "out"}))
    late.require(schema("id", "c"), written(("id",), ("id", "out"), ("id", "c", "x")))
    with pytest.raises(SchemaChangeError, match=r"'x'.*former name of") as caught:
        late.require(schema("id", "c"), written(("id", "x")))
    assert "tributary bootstrap" in caught.value.remedy


def test_a_later_column_with_the_first_name_of_a_new_one_stops_the_table() -> None:
    """Columns are added in the order of their numbers, so no event has only the later column."""
    columns = [{"name": name} for name in ("id", "was", "now", "out", "n")]
    facts = {
        "source_kind": "postgres",
        "columns": {str(number): one for number, one in enumerate(columns, 7)},
    }
    added = [entry(name, late=True, added=True) for name in ("was", "now")]
    late = LateColumns.of(
        handed([entry("id"), *added, entry("n")], fingerprint=Fingerprint(facts)), {"out"}
    )
    known = schema("id", "was", "now")
    late.require(known, written(("id",), ("id", "was"), ("id", "was", "now", "out")))
    for names in (("id", "now"), ("id", "out"), ("id", "was", "out")):
        with pytest.raises(
            SchemaChangeError, match=r"was added after it.*former name of"
        ) as caught:
            late.require(known, written(names))
        assert "tributary bootstrap" in caught.value.remedy
    of_mysql = Fingerprint({**facts, "source_kind": "mysql"})
    LateColumns.of(handed([entry("id"), *added], fingerprint=of_mysql), {"out"}).require(
        known, written(("id", "now"))
    )
