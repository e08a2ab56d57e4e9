from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from cdc.errors import LostHistoryError, SchemaChangeError
from cdc.position import Lsn
from cdc.position_check import (
    TopicFacts,
    check_capture,
    check_catalog,
    check_server,
    check_slot,
    check_topic,
)
from cdc.sources.values import Fingerprint, ServerIdentity, SlotHealth, SourceColumn, SourceTable
from schemas.table import TableId
from schemas.types_postgres import PostgresType

TABLE = TableId("shop", "public", "orders")
TOPIC = "shop.public.orders"
SERVER = ServerIdentity("71", 1, in_recovery=False)
FACTS: dict[str, Any] = {
    "oid": 100,
    "relfilenode": 200,
    "kind": "p",
    "persistence": "p",
    "replica_identity": "d",
    "columns": {
        "1": {"name": "id", "type": 23, "typmod": -1, "written": "700"},
        "2": {"name": "note", "type": 25, "typmod": -1, "written": "700"},
    },
    "keys": {"primary": "1"},
    "leaves": {"public.o1": {"oid": 101, "relfilenode": 201, "replica_identity": "d"}},
}


def check(
    now: TopicFacts, *, start: dict[int, int] | None = None, topic_id: str | None = "T1"
) -> None:
    check_topic(TABLE, TOPIC, topic_id=topic_id, start=start or {0: 10}, now=now)


@pytest.mark.parametrize(("first", "end"), [(0, 10), (10, 10), (10, 99)])
def test_a_topic_that_holds_what_is_next_is_fine(first: int, end: int) -> None:
    check(TopicFacts("T1", {0: first}, {0: end}))


@pytest.mark.parametrize(
    ("now", "gap"),
    [
        (TopicFacts(None, {}, {}), "no longer exists"),
        (TopicFacts("T2", {0: 0}, {0: 20}), "created again"),
        (TopicFacts("T1", {0: 0, 1: 0}, {0: 20, 1: 0}), "2 partitions, the lake has read 1"),
        (TopicFacts("T1", {0: 11}, {0: 20}), "offsets 10 to 10 of topic"),
        (TopicFacts("T1", {0: 0}, {0: 9}), "ends at offset 9"),
    ],
)
def test_a_gap_in_the_topic_is_named(now: TopicFacts, gap: str) -> None:
    with pytest.raises(LostHistoryError, match=gap) as caught:
        check(now)
    assert "tributary bootstrap shop:public.orders" in caught.value.remedy


@pytest.mark.parametrize(
    "known",
    [
        None,
        {},
        {"system_identifier": "71", "timeline": 1},
        {"system_identifier": 71, "timeline": None},
    ],
)
def test_the_same_server_is_fine(known: dict[str, Any] | None) -> None:
    check_server(TABLE, known=known, now=SERVER)
    check_server(TABLE, known=known, now=ServerIdentity(None, None, in_recovery=False))


@pytest.mark.parametrize(
    ("known", "what"),
    [({"system_identifier": "72"}, "system identifier was 72, is 71"), ({"timeline": 2}, "is 1")],
)
def test_another_server_stops(known: dict[str, Any], what: str) -> None:
    with pytest.raises(LostHistoryError, match=what):
        check_server(TABLE, known=known, now=SERVER)


def slot(status: str | None) -> SlotHealth:
    return SlotHealth("s", True, status, Lsn(1), Lsn(1), 0, None)


@pytest.mark.parametrize("status", ["reserved", "extended", None])
def test_a_slot_with_its_log_is_fine(status: str | None) -> None:
    check_slot(TABLE, "s", slot(status))


@pytest.mark.parametrize("health", [None, slot("lost"), slot("unreserved")])
def test_a_lost_slot_stops(health: SlotHealth | None) -> None:
    with pytest.raises(LostHistoryError, match="replication slot s"):
        check_slot(TABLE, "s", health)


@pytest.mark.parametrize(
    ("active", "confirmed", "stored", "lost"),
    [
        (False, 8, Lsn(7), True),
        (False, 7, Lsn(7), False),
        (False, 8, None, False),
        (True, 8, Lsn(7), False),
    ],
)
def test_a_slot_after_what_was_captured_stops(
    active: bool, confirmed: int, stored: Lsn | None, lost: bool
) -> None:
    health = SlotHealth("s", active, "reserved", Lsn(confirmed), Lsn(1), 0, None)
    if not lost:
        check_slot(TABLE, "s", health, stored=stored)
        return
    with pytest.raises(LostHistoryError, match="made anew or moved behind the connector"):
        check_slot(TABLE, "s", health, stored=stored)


def test_incomplete_capture_stops() -> None:
    check_capture(TABLE, [])
    with pytest.raises(LostHistoryError, match="does not publish delete"):
        check_capture(TABLE, ["publication p does not publish delete"])


def column(name: str, number: int, **changes: Any) -> SourceColumn:
    plain = SourceColumn(name, PostgresType("int4"), number, True, False, None)
    return replace(plain, **changes)


def catalog(
    now: dict[str, Any],
    *columns: SourceColumn,
    lake: tuple[str, ...] = ("id", "note"),
    widened: tuple[str, ...] = (),
) -> tuple[str, ...]:
    table = SourceTable(
        table=TABLE,
        oid=100,
        kind="table",
        columns=(column("id", 1), column("note", 2), *columns),
        primary_key=("id",),
        unique_indexes=(("id",),),
        replica_identity="default",
        identity_columns=("id",),
        rows_estimate=1,
        total_bytes=1,
        owner="o",
    )
    return check_catalog(
        table,
        known=Fingerprint(FACTS),
        now=Fingerprint(now),
        lake_columns=lake,
        widened=widened,
    )


def changed(**facts: Any) -> dict[str, Any]:
    return {**deepcopy(FACTS), **facts}


def with_column(number: str, name: str | None) -> dict[str, Any]:
    now = deepcopy(FACTS)
    if name is None:
        del now["columns"][number]
    else:
        now["columns"][number] = {"name": name, "type": 23, "typmod": -1}
    return now


def test_an_unchanged_catalog_is_fine() -> None:
    assert catalog(deepcopy(FACTS)) == ()


def test_a_nullable_column_may_come() -> None:
    assert catalog(with_column("3", "extra"), column("extra", 3)) == ()


def test_a_column_may_go() -> None:
    assert catalog(with_column("2", None)) == ()


def test_a_generated_column_is_none_of_our_business() -> None:
    made = column("made", 3, generated=True, default_sql="(id + 1)")
    assert catalog(with_column("3", "made"), made) == ()


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"nullable": False}, "added as NOT NULL"),
        ({"default_sql": "5"}, "default for old rows"),
        ({"fills_old_rows": True}, "default for old rows"),
    ],
)
def test_a_column_with_values_for_old_rows_is_never_silently_null(
    extra: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SchemaChangeError, match=reason):
        catalog(with_column("3", "extra"), column("extra", 3, **extra))


def test_a_renamed_column_stops() -> None:
    with pytest.raises(SchemaChangeError, match="'note' was renamed to 'remark'"):
        catalog(with_column("2", "remark"))


def test_a_column_that_was_dropped_and_added_again_stops() -> None:
    now = with_column("2", None)
    now["columns"]["3"] = {"name": "note", "type": 25, "typmod": -1}
    with pytest.raises(SchemaChangeError, match="dropped and added again"):
        catalog(now, column("note", 3))


def test_a_changed_key_stops() -> None:
    with pytest.raises(SchemaChangeError, match="its key changed"):
        catalog(changed(keys={"primary": "2"}))


@pytest.mark.parametrize(
    "facts",
    [
        {"oid": 101},
        {"replica_identity": "f"},
        {"persistence": "u"},
        {"leaves": {}},
        {"leaves": {**FACTS["leaves"], "public.o2": {"oid": 9, "relfilenode": 9}}},
        {"leaves": {"public.o1": {"oid": 9, "relfilenode": 201, "replica_identity": "d"}}},
    ],
)
def test_a_change_that_sends_no_events_stops(facts: dict[str, Any]) -> None:
    with pytest.raises(LostHistoryError, match="sends no events"):
        catalog(changed(**facts))


@pytest.mark.parametrize(
    "facts",
    [
        {"relfilenode": 999},
        {"leaves": {"public.o1": {"oid": 101, "relfilenode": 9, "replica_identity": "d"}}},
    ],
)
def test_a_new_file_alone_asks_for_verify(facts: dict[str, Any]) -> None:
    (warning,) = catalog(changed(**facts))
    assert "tributary verify shop:public.orders" in warning


def altered(**facts: Any) -> dict[str, Any]:
    now = changed(**facts)
    now["columns"]["2"]["written"] = "800"
    return now


def test_a_column_may_be_altered_without_a_rewrite() -> None:
    """A wider varchar, other statistics, another default: no row changes."""
    assert catalog(altered()) == ()


def test_a_rewrite_of_an_altered_column_stops_although_its_type_is_the_same() -> None:
    with pytest.raises(
        SchemaChangeError, match="column 'note' was altered and the table rewritten"
    ):
        catalog(altered(relfilenode=999))


def test_a_rewrite_that_widens_the_type_is_followed() -> None:
    (warning,) = catalog(altered(relfilenode=999), widened=("note",))
    assert "verify" in warning
