"""Which types the connector can mistake for other types that had the same names before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.capture.type_looks import ROW, Mistakes, TypeLooks, changed, merged, require_own_types
from cdc.debezium import CaptureNames
from cdc.errors import SchemaChangeError
from cdc.kafka import KafkaRecord
from cdc.sources.named_types import TypedColumn
from cdc.store.attempt import Attempt
from cdc.store.kept_type_looks import TYPE_LOOKS, KeptTypeLooks, NamedType, TypeDoubt, TypeLook
from cdc.store.state_store import Store
from cdc.store.table_state import TableRecord
from schemas.table import Column
from tests.records import ORDERS, READY, table_record
from tests.unit.cdc.task_topics import event

NAMES = CaptureNames("shop", "default", "p", "s", "c", "shop", "postgres")
AT = datetime(2026, 1, 2, tzinfo=timezone.utc)
INT, TEXT, OTHER = NamedType(1, "23"), NamedType(2, "text"), NamedType(3, "23")
TABLE = NamedType(9, ROW)
ENUM = NamedType(4, "enum of a, b")
WIDER = replace(ENUM, form="enum of a, b, c")


def mistaken(
    now: Mapping[str, Mapping[str, NamedType]],
    former: Mapping[str, Mapping[str, tuple[NamedType, ...]]],
    *,
    schema: str = "public",
    array: bool = False,
) -> dict[int, bool]:
    found = Mistakes(now, former)
    return {oid: found.is_mistaken(oid, schema, array=array) for oid in found.suspects}


def test_names_that_are_gone_or_mean_another_type_are_kept_with_what_they_meant() -> None:
    before = {"a": {"public": INT, "other": TEXT}, "b": {"public": TABLE}}
    now = {"a": {"public": OTHER, "other": TEXT}, "c": {"public": INT}}
    former = {"a": {"public": (TEXT,)}, "d": {"public": (TEXT,)}}
    assert changed(before, before, {}) == {}
    found = changed(before, now, former)
    assert found == {
        "d": {"public": (TEXT,)},
        "a": {"public": (TEXT, INT)},
        "b": {"public": (TABLE,)},
    }
    assert [*found] == ["d", "a", "b"]
    assert changed(before, now, found) == found


def test_one_table_is_enough_for_what_a_name_has_meant() -> None:
    """So a program that creates a table again and again does not fill the state store."""
    before, former = {"a": {"public": TABLE}}, {"a": {"public": (replace(TABLE, oid=8), INT)}}
    now = {"a": {"public": replace(TABLE, oid=10)}}
    assert changed(before, now, former) == {"a": {"public": (INT, TABLE)}}


def test_only_the_newest_names_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc.capture.type_looks._NAMES_KEPT", 2)
    former = {"old": {"public": (TABLE,)}, "a": {"public": (TEXT,)}}
    before = {"a": {"public": INT}, "b": {"public": INT}}
    assert [*changed(before, {}, former)] == ["a", "b"]


@pytest.mark.parametrize(
    ("had", "has", "array", "expected"),
    [
        (INT, TEXT, False, True),
        (INT, OTHER, False, False),
        (INT, OTHER, True, True),
        (TABLE, TEXT, False, True),
        (NamedType(7), NamedType(8), False, True),
        (ENUM, replace(ENUM, oid=5), False, False),
        (ENUM, replace(WIDER, oid=5), False, True),
        (ENUM, TEXT, False, True),
        (TEXT, ENUM, False, True),
    ],
)
def test_types_that_are_read_alike_are_not_mistaken(
    had: NamedType, has: NamedType, array: bool, expected: bool
) -> None:
    now, former = {"a": {"public": has}}, {"a": {"public": (had,)}}
    assert mistaken(now, former, array=array) == {has.oid: expected}


def test_a_name_is_looked_for_in_the_tables_schema_and_then_everywhere() -> None:
    former = {"a": {"public": (INT,)}}
    assert mistaken({"a": {"public": TEXT}}, former) == {2: True}
    assert mistaken({"a": {"public": TEXT}}, former, schema="app") == {2: True}
    assert mistaken({"a": {"app": TEXT}}, former) == {2: True}
    assert mistaken({"a": {"app": TEXT}}, former, schema="app") == {2: False}
    assert mistaken({"a": {"public": INT}}, former) == {}
    assert mistaken({"b": {"public": TEXT}}, former) == {}
    assert mistaken({"a": {"public": replace(TABLE, oid=8)}}, former) == {}


def test_a_type_that_had_another_name_is_taken_for_another_of_its_new_one() -> None:
    former, now = {"b": {"public": (TEXT,)}}, {"a": {"public": TEXT, "app": INT}}
    assert mistaken(now, former) == {2: True}
    assert mistaken({"a": {"public": TEXT}}, former) == {}


def test_another_label_of_an_enum_is_no_other_type_until_the_enum_is_recreated() -> None:
    former = changed({"a": {"public": ENUM}}, {"a": {"public": WIDER}}, {})
    assert former == {"a": {"public": (ENUM,)}}
    assert mistaken({"a": {"public": WIDER}}, former) == {}
    there = {"a": {"public": WIDER, "app": INT}}
    assert mistaken(there, former, schema="elsewhere") == {}, "both names mean what they meant"
    recreated = {"a": {"public": replace(WIDER, oid=5)}}
    former = changed({"a": {"public": WIDER}}, recreated, former)
    assert mistaken(recreated, former) == {5: True}, "the connector may know the first labels only"


class Types:
    """The types of a source."""

    def __init__(self) -> None:
        self.now: dict[str, dict[str, NamedType]] = {"mood": {"public": TABLE}}
        self.used: list[TypedColumn] = []
        self.reads = 0

    def digest(self) -> str:
        return str(self.now)

    def read(self) -> tuple[str, Mapping[str, Mapping[str, NamedType]]]:
        self.reads += 1
        return self.digest(), {name: dict(of) for name, of in self.now.items()}

    def columns_of(self, types: Collection[int]) -> list[TypedColumn]:
        return [one for one in self.used if one.type_id in types]

    @property
    def named_types(self) -> Types:
        return self


def orders(start: int = 0) -> TableRecord:
    attempt = Attempt(READY.id, AT, "p", start_offsets={0: start})
    return table_record(attempt=attempt)


class Lab:
    """A capture of one table whose topic has a number of events."""

    def __init__(self, folder: Path) -> None:
        self.types, self.end, self.task = Types(), 5, "a"
        self.store = Store(f"sqlite:///{folder / 'state.db'}")
        self.record = self.store.put(orders())
        self.looks = TypeLooks(self.store, cast("Any", self))

    def stable_offsets_many(self, topics: Collection[str]) -> dict[str, dict[int, int]]:
        return {topic: {0: self.end} for topic in topics}

    def latest_record(self, topic: str) -> KafkaRecord:
        assert topic == NAMES.heartbeat_topic
        return event(1, 1, "c", 1, topic=topic, task=self.task)

    def follow(self) -> TypeLook:
        found = self.looks.follow(NAMES, cast("Any", self.types))
        assert found is not None
        return found

    def become_enum(self) -> None:
        self.types.now["mood"] = {"public": TEXT}
        self.types.used = [TypedColumn("public", "orders", "feels", 2, False)]

    def copied(self, start: int) -> TableRecord:
        self.record = self.store.put(replace(orders(start), version=self.record.version))
        return self.record


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_a_look_costs_one_digest_while_no_name_changes(lab: Lab) -> None:
    first = lab.follow()
    assert (first.former, first.mistaken, lab.types.reads) == ({}, {}, 1)
    assert lab.follow() == first
    assert lab.types.reads == 1
    lab.types.now["fresh"] = {"public": INT}
    assert (lab.follow().former, lab.follow().suspects, lab.types.reads) == ({}, (), 2)


def test_a_table_that_uses_the_name_later_is_found_too(lab: Lab) -> None:
    lab.follow()
    lab.types.now["mood"] = {"public": TEXT}
    assert lab.follow().mistaken == {}
    lab.become_enum()
    assert lab.follow().columns(lab.record) == {"feels": "public.mood"}
    assert lab.follow().doubts == {str(ORDERS): TypeDoubt(4, {"feels": "public.mood"})}


def test_what_a_name_has_meant_counts_until_the_second_task_since(lab: Lab) -> None:
    """The first new task may have read the types before the name changed its meaning."""
    lab.follow()
    lab.become_enum()
    lab.follow()
    lab.copied(5)
    for task, counts in (("a", True), ("b", True), ("b", True), ("c", False), ("d", False)):
        lab.task = task
        assert (lab.follow().mistaken != {}) is counts, task
    lab.types.now["mood"] = {"public": INT}
    lab.types.used = [TypedColumn("public", "orders", "feels", 1, False)]
    assert lab.follow().mistaken == {str(ORDERS): {"feels": "public.mood"}}


def test_what_was_noticed_at_two_times_counts_together() -> None:
    older = {"a": {"public": (INT,)}, "b": {"public": (INT,)}}
    newer = {"a": {"public": (TEXT,), "app": (INT,)}, "c": {"public": (INT,)}}
    assert merged(older, newer) == {
        "a": {"public": (INT, TEXT), "app": (INT,)},
        "b": {"public": (INT,)},
        "c": {"public": (INT,)},
    }


def test_a_doubt_outlives_the_connectors_restart_until_a_copy(lab: Lab) -> None:
    lab.follow()
    lab.become_enum()
    before = lab.follow()
    lab.looks.begin_again(NAMES, cast("Any", lab.types), before)
    now = lab.follow()
    assert (now.former, now.suspects, now.mistaken) == ({}, (), {})
    assert now.columns(lab.record) == {"feels": "public.mood"}
    assert now.columns(lab.copied(5)) == {}
    assert lab.follow().doubts == {}, "a later copy of another topic begins at a lower offset"


def test_a_table_that_began_to_use_the_name_before_the_restart_is_in_doubt(lab: Lab) -> None:
    lab.follow()
    lab.types.now["mood"] = {"public": TEXT}
    before = lab.follow()
    lab.become_enum()
    lab.end = 7
    lab.looks.begin_again(NAMES, cast("Any", lab.types), before)
    now = lab.follow()
    assert (now.former, now.mistaken) == ({}, {})
    assert now.doubts == {str(ORDERS): TypeDoubt(6, {"feels": "public.mood"})}


def test_a_doubt_moves_with_the_topic_while_the_connector_can_mistake_the_type(lab: Lab) -> None:
    lab.follow()
    lab.become_enum()
    assert lab.follow().doubts[str(ORDERS)].offset == 4
    lab.end = 9
    assert lab.follow().doubts[str(ORDERS)].offset == 8


def test_a_name_that_changes_while_the_connector_restarts_stays_in_doubt(lab: Lab) -> None:
    before = lab.follow()
    lab.become_enum()
    lab.follow()
    lab.looks.begin_again(NAMES, cast("Any", lab.types), before)
    assert lab.follow().mistaken == {str(ORDERS): {"feels": "public.mood"}}


def test_a_copy_without_a_restart_stays_in_doubt(lab: Lab) -> None:
    lab.follow()
    lab.become_enum()
    lab.follow()
    lab.copied(5)
    lab.end = 8
    assert lab.follow().columns(lab.record) == {"feels": "public.mood"}
    assert lab.follow().doubts[str(ORDERS)].offset == 7


def test_a_source_whose_connector_has_no_named_types_has_no_look(lab: Lab) -> None:
    source = cast("Any", SimpleNamespace(named_types=None))
    assert lab.looks.follow(NAMES, source) is None
    lab.looks.begin_again(NAMES, source, TypeLook("", {}))
    assert KeptTypeLooks(lab.store).of("c") is None


def test_only_columns_with_values_from_events_stop_a_table(lab: Lab) -> None:
    lab.follow()
    lab.become_enum()
    look = lab.follow()
    feels = Column("feels", "mood", "string", nullable=True)
    require_own_types(None, lab.record, [feels])
    require_own_types(look, lab.record, [])
    require_own_types(look, lab.record, [replace(feels, read_by_key=True)])
    with pytest.raises(SchemaChangeError, match=r"'feels' \(public\.mood\)") as stopped:
        require_own_types(look, lab.record, [feels])
    assert "tributary bootstrap shop:public.orders" in stopped.value.remedy


def test_a_look_is_replaced_only_by_one_that_has_read_it(tmp_path: Path) -> None:
    looks = KeptTypeLooks(Store(f"sqlite:///{tmp_path / 'state.db'}"))
    first = TypeLook("1", {"a": {"public": INT}}, "run", {"a": {"public": (TEXT,)}})
    second = replace(first, digest="2", doubts={"shop:public.orders": TypeDoubt(3, {"c": "a"})})
    assert TYPE_LOOKS.read(TYPE_LOOKS.write(second), "the look") == second
    assert looks.of("c") is None
    assert looks.move("c", None, first)
    assert not looks.move("c", None, second)
    kept = looks.of("c")
    assert looks.move("c", kept, second)
    assert not looks.move("c", kept, first)
    newest = looks.of("c")
    assert newest is not None
    assert newest.look == second
    looks.forget("c")
    assert looks.of("c") is None
