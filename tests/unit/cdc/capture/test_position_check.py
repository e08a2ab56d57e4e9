from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.capture.position_check import (
    TopicFacts,
    check_capture,
    check_changes,
    check_cuts,
    check_log,
    check_server,
    check_starts,
    check_topic,
    rests_on,
)
from cdc.errors import CaptureError, LostHistoryError, PausedByPolicyError, SchemaChangeError
from cdc.log.position import Lsn
from cdc.sources.base import Source
from cdc.sources.log_health import LogHealth
from cdc.sources.postgres.slot import NoSlot, SlotHealth
from cdc.sources.source_facts import ServerIdentity
from cdc.store.attempt import CopyView
from schemas.catalog import SOURCE_KINDS, SourceKind
from schemas.changes import AddColumn, ChangeDefault, LoseEvents, NewFile, RenameColumn, Verdict
from schemas.table import TableId
from tests.handoffs import VIEW

TABLE = TableId("shop", "public", "orders")
TOPIC = "shop.public.orders"
SERVER = ServerIdentity("71", 1, in_recovery=False)


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


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_a_compacted_topic_stops(policy: str) -> None:
    with pytest.raises(
        LostHistoryError, match=f"cleanup.policy={policy}, so Kafka may have removed"
    ):
        check(TopicFacts("T1", {0: 0}, {0: 20}, policy=policy))
    with pytest.raises(CaptureError, match="it has lost nothing") as caught:
        check(TopicFacts("T1", {0: 0}, {0: 20}, policy=policy, lagging=True))
    assert "cleanup.policy=delete on topic shop.public.orders" in caught.value.remedy


def test_a_log_that_was_cut_off_stops() -> None:
    check_cuts(TABLE, TOPIC, {})
    with pytest.raises(LostHistoryError, match="then got other records: it") as caught:
        check_cuts(TABLE, TOPIC, {0: "it ends at 7"})
    assert caught.value.context["topic"] == TOPIC


def test_a_topic_that_keeps_everything_is_fine() -> None:
    check(TopicFacts("T1", {0: 0}, {0: 20}, policy=""))


@pytest.mark.parametrize(
    "known",
    [
        None,
        replace(VIEW, system_identifier=None, timeline=None),
        replace(VIEW, system_identifier="71", timeline=1),
        replace(VIEW, system_identifier="71", timeline=None),
    ],
)
def test_the_same_server_is_fine(known: CopyView | None) -> None:
    check_server(TABLE, "postgres", known=known, now=SERVER)
    check_server(TABLE, "postgres", known=known, now=ServerIdentity(None, None, in_recovery=False))


@pytest.mark.parametrize(
    ("known", "what"),
    [({"system_identifier": "72"}, "system identifier was 72, is 71"), ({"timeline": 2}, "is 1")],
)
def test_another_server_stops(known: dict[str, Any], what: str) -> None:
    known_view = replace(VIEW, **known)
    with pytest.raises(LostHistoryError, match=what):
        check_server(TABLE, "postgres", known=known_view, now=SERVER)


@pytest.mark.parametrize("timeline", [1, None])
@pytest.mark.parametrize("kind", SOURCE_KINDS)
def test_only_a_former_server_of_postgres_has_a_slot(
    kind: SourceKind, timeline: int | None
) -> None:
    known = replace(VIEW, system_identifier="72", timeline=None)
    now = replace(SERVER, timeline=timeline)
    with pytest.raises(LostHistoryError) as caught:
        check_server(TABLE, kind, known=known, now=now)
    assert ("slot" in caught.value.remedy) is (kind == "postgres")


def slot(status: str | None) -> SlotHealth:
    return SlotHealth("s", True, status, Lsn(1), Lsn(1), 0, None, Lsn(9), lambda: Lsn(9))


@pytest.mark.parametrize("status", ["reserved", "extended", "unreserved", None])
def test_a_slot_with_its_log_is_fine(status: str | None) -> None:
    check_log(TABLE, slot(status))


@pytest.mark.parametrize(
    ("status", "warned"),
    [("reserved", False), ("extended", False), ("unreserved", True), ("lost", False)],
)
def test_a_slot_that_can_lose_its_log_is_a_warning(status: str, warned: bool) -> None:
    assert (slot(status).danger is not None) is warned


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (None, "max_slot_wal_keep_size"),
        ("wal_removed", "max_slot_wal_keep_size"),
        ("idle_timeout", "idle_replication_slot_timeout"),
        ("wal_level_insufficient", "see wal_level"),
        ("another", "was invalidated (another)"),
    ],
)
def test_a_lost_slot_is_told_with_the_setting_that_led_to_it(reason: str | None, told: str) -> None:
    problem = replace(slot("lost"), invalidation_reason=reason).problem()
    assert problem is not None
    assert told in problem
    assert ("max_slot_wal_keep_size" in problem) is (reason in (None, "wal_removed"))


def test_an_invalidated_slot_is_lost_whatever_its_wal_status_is() -> None:
    assert replace(slot("reserved"), invalidation_reason="idle_timeout").problem() is not None


@pytest.mark.parametrize("health", [NoSlot("s"), slot("lost")])
def test_a_lost_slot_stops(health: LogHealth) -> None:
    with pytest.raises(LostHistoryError, match="replication slot s"):
        check_log(TABLE, health)


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
    health = replace(slot("reserved"), active=active, confirmed_flush_lsn=Lsn(confirmed))
    if not lost:
        check_log(TABLE, health, stored=stored)
        return
    with pytest.raises(LostHistoryError, match="the slot was recreated"):
        check_log(TABLE, health, stored=stored)


@pytest.mark.parametrize(
    ("confirmed", "stored", "lost"), [(8, Lsn(7), True), (7, Lsn(7), False), (8, None, False)]
)
def test_with_transactions_a_slot_in_use_is_never_after_what_was_captured(
    confirmed: int, stored: Lsn | None, lost: bool
) -> None:
    """If it is after, another reader has moved the slot.

    The product's connector confirms only positions that a Kafka transaction has stored before.
    """
    health = replace(slot("reserved"), active=True, confirmed_flush_lsn=Lsn(confirmed))
    problem = health.problem(stored, exactly_once=True)
    assert (problem is not None) is lost
    assert problem is None or "something other than the connector moved it" in problem


@pytest.mark.parametrize("known", ["stored", "recorded"])
def test_a_log_that_ends_before_what_was_captured_of_it_stops(known: str) -> None:
    check_log(TABLE, slot("reserved"), **{known: Lsn(9)})
    with pytest.raises(LostHistoryError, match="restored to an earlier state"):
        check_log(TABLE, slot("reserved"), **{known: Lsn(10)})
    check_log(TABLE, replace(slot("reserved"), current=lambda: Lsn(10)), **{known: Lsn(10)})


def test_a_table_rests_on_its_newest_commit_and_on_its_copy() -> None:
    """Neither Connect's stored position, which may be reset, nor R, which can be old, is enough."""
    source = cast("Source", SimpleNamespace(position=Lsn.parse))
    assert rests_on(source, "0/5", "0/9") == Lsn(9)
    assert rests_on(source, "0/9", "0/5") == Lsn(9)
    assert rests_on(source, "0/5", None) == Lsn(5)
    assert rests_on(source, None, None) is None


def test_a_connector_that_began_anew_stops() -> None:
    check_starts(TABLE, [0], 5)
    check_starts(TABLE, [0, 9], None)
    with pytest.raises(LostHistoryError, match="started without its stored position"):
        check_starts(TABLE, [0, 9], 5)


def test_incomplete_capture_stops() -> None:
    check_capture(TABLE, [])
    with pytest.raises(LostHistoryError, match="does not publish delete"):
        check_capture(TABLE, ["publication p does not publish delete"])


def added(verdict: Verdict) -> AddColumn:
    return AddColumn(verdict=verdict, why="so it is", name="extra", type="integer")


def test_changes_that_the_lake_follows_pass() -> None:
    changes = [added(Verdict.EVOLVE), added(Verdict.FILL), added(Verdict.IGNORE)]
    assert check_changes(TABLE, changes, "evolve") == ()


def test_a_new_file_asks_for_verify() -> None:
    new_file = NewFile(verdict=Verdict.EVOLVE, why="see `tributary verify`")
    (warning,) = check_changes(TABLE, [new_file], "evolve")
    assert "rewritten" in warning
    assert "tributary verify" in warning


def test_a_change_that_needs_a_copy_stops_with_all_its_reasons() -> None:
    moved = RenameColumn(verdict=Verdict.BOOTSTRAP, why="so it is", name="a", to="b")
    changes = [added(Verdict.FILL), moved, added(Verdict.BOOTSTRAP)]
    with pytest.raises(SchemaChangeError) as caught:
        check_changes(TABLE, changes, "evolve")
    assert "'a' was renamed to 'b'" in caught.value.message
    assert "'extra' (integer) was added" in caught.value.message
    assert "tributary bootstrap shop:public.orders" in caught.value.remedy


def test_lost_events_stop_before_anything_else() -> None:
    lost = LoseEvents(verdict=Verdict.BOOTSTRAP, why="it sends no events", fact="oid was 1, is 2")
    with pytest.raises(LostHistoryError, match="oid was 1, is 2: it sends no events"):
        check_changes(TABLE, [added(Verdict.BOOTSTRAP), lost], "pause")


def test_a_policy_of_pause_leaves_what_moves_the_lake_to_a_person() -> None:
    default = ChangeDefault(verdict=Verdict.EVOLVE, why="", name="a", old=None, new="5")
    assert check_changes(TABLE, [default, added(Verdict.IGNORE)], "pause") == ()
    with pytest.raises(PausedByPolicyError, match="'extra'") as caught:
        check_changes(TABLE, [default, added(Verdict.EVOLVE)], "pause")
    assert "tributary resume" in caught.value.remedy
