"""Which captures the tables have, and which tables a finding about a capture concerns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.capture.captured_tables import captures_of
from cdc.capture.judgement import Finding, Severity
from cdc.store.table_state import CaptureRecord, State, TableRecord, TierCapture
from schemas.table import TableId
from tests.records import ORDERS, table_record

LINES = TableId("shop", "public", "lines")
SOURCE = SimpleNamespace(kind="postgres")
CONFIG = cast(Any, SimpleNamespace(sources={"shop": SOURCE}, source=lambda _: SOURCE))
FAST = TierCapture("fast", "shop_fast.public.orders", CaptureRecord("shop_fast", "c2", "p2", "s2"))


def record(table: TableId = ORDERS, **facts: Any) -> TableRecord:
    return table_record(table, **{"capture": CaptureRecord("shop", "c", "p", "s")} | facts)


def test_a_table_that_moves_has_two_captures_and_follows_one() -> None:
    moving, other = record(other=FAST), record(LINES)
    default, fast = captures_of(CONFIG, [moving, other])
    assert (default.names.connector, default.followed, default.moving) == ("c", (moving, other), ())
    assert (fast.names.connector, fast.followed, fast.moving) == ("c2", (), (moving,))
    assert (fast.names.tier, fast.names.slot) == ("fast", "s2")
    assert fast.topics == ["shop_fast.public.orders"]
    assert default.topics == ["t", "t"]


def test_a_capture_that_tables_follow_and_others_join_is_one() -> None:
    there = record(LINES, tier="fast", capture=FAST.capture)
    _, fast = captures_of(CONFIG, [record(other=FAST), there])
    assert (fast.followed, fast.moving) == ((there,), (record(other=FAST),))


def test_tables_off_the_plan_and_those_of_unknown_sources_have_none() -> None:
    gone = record(state=State.RETIRED)
    assert captures_of(CONFIG, [gone, record(TableId("former", "public", "orders"))]) == []


FINDING = Finding(Severity.WAITING, "connector c", "connector c is PAUSED", "Resume it.")


@pytest.mark.parametrize("severity", Severity)
def test_a_finding_about_what_only_a_move_uses_names_its_tables_and_the_move(
    severity: Severity,
) -> None:
    default, fast = captures_of(CONFIG, [record(other=FAST), record(LINES, other=FAST)])
    finding = Finding(severity, "connector c", "connector c is PAUSED", "Resume it.")
    assert default.attributed(finding) == finding
    attributed = fast.attributed(finding)
    assert (attributed.severity, attributed.subject) == (severity, finding.subject)
    assert attributed.message.startswith("connector c is PAUSED; it concerns the move of ")
    assert f"{LINES}, {ORDERS}" in attributed.message
    assert f"`tributary move {LINES} {ORDERS}`" in attributed.remedy
    waits = severity in (Severity.WAITING, Severity.UNKNOWN)
    assert attributed.remedy.startswith("Resume it. Then run `tributary move") is waits, (
        "a capture that lost changes, or alters them, is made anew by the move"
    )


def test_a_finding_about_what_a_table_follows_is_not_changed() -> None:
    there = record(LINES, tier="fast", capture=FAST.capture)
    _, fast = captures_of(CONFIG, [record(other=FAST), there])
    assert fast.attributed(FINDING) is FINDING
