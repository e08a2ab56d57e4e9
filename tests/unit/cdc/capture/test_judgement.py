"""What each fact about a capture means."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.capture.evidence import CaptureEvidence, CleanupPolicy, ConnectorFacts
from cdc.capture.judgement import Severity, of_capture, of_table, of_topic, stopping
from cdc.connect import ConnectorStatus
from cdc.connect.values import TaskStatus
from cdc.debezium import CaptureNames, Finding
from cdc.errors import SourceError
from schemas.table import TableId

ORDERS = TableId("shop", "public", "orders")
NAMES = CaptureNames("shop", "default", "p", "s", "c", "t", "postgres")
STATUS = ConnectorStatus("c", "RUNNING", "w", tasks=(TaskStatus(0, "RUNNING", "w"),))
RUNNING = ConnectorFacts({}, (), None, STATUS)
SOUND = CaptureEvidence(
    names=NAMES,
    log=cast("Any", SimpleNamespace(title="replication slot s")),
    lost=None,
    unreadable=None,
    obstacles=(),
    server=cast("Any", None),
    topics={"t.schema": CleanupPolicy("delete", lagging=False)},
    connector=RUNNING,
    stored=None,
)
DOWN = SourceError("it is down", remedy="Wait.")
WRONG = Finding("skipped.operations", "d", "none", "changes would be left out")
FAILED = replace(STATUS, state="FAILED")


def test_a_sound_capture_has_no_finding() -> None:
    assert of_capture(SOUND) == []
    assert of_table(SOUND, ORDERS) == []


@pytest.mark.parametrize(
    ("changed", "severity", "subject", "message"),
    [
        ({"lost": "is gone"}, Severity.LOST, "replication slot s", "replication slot s is gone"),
        (
            {"unreadable": "cannot be read further"},
            Severity.LOST,
            "replication slot s",
            "replication slot s cannot be read further",
        ),
        (
            {"obstacles": ("publication p is FOR ALL TABLES",)},
            Severity.INCOMPLETE,
            "capture shop/default",
            "publication p is FOR ALL TABLES",
        ),
        (
            {"topics": {"t": CleanupPolicy("compact,delete", lagging=False)}},
            Severity.INCOMPLETE,
            "topic t",
            "topic t has cleanup.policy=compact,delete, so records may be gone from it",
        ),
        (
            {"connector": replace(RUNNING, wrong=(WRONG,))},
            Severity.INCOMPLETE,
            "connector c: skipped.operations",
            f"connector c: {WRONG}",
        ),
        ({"connector": None}, Severity.WAITING, "connector c", "there is no connector c"),
        (
            {"connector": replace(RUNNING, status=replace(STATUS, state="PAUSED"))},
            Severity.WAITING,
            "connector c",
            "connector c is not running: PAUSED",
        ),
        (
            {"connector": replace(RUNNING, status=FAILED, failure="no route")},
            Severity.WAITING,
            "connector c",
            "connector c is not running: no route",
        ),
        ({"server": DOWN}, Severity.UNKNOWN, "capture shop/default", "it is down"),
    ],
)
def test_each_fact_has_its_finding(
    changed: dict[str, Any], severity: Severity, subject: str, message: str
) -> None:
    (found,) = of_capture(replace(SOUND, **changed))
    assert (found.severity, found.subject, found.message) == (severity, subject, message)
    assert found.remedy
    stops = severity in (Severity.LOST, Severity.INCOMPLETE)
    assert stopping([found]) == [message] * stops


def test_one_server_that_is_down_is_one_finding_and_the_others_are_judged() -> None:
    found = of_capture(replace(SOUND, log=DOWN, lost=DOWN, server=DOWN, connector=None))
    assert [one.severity for one in found] == [Severity.WAITING, Severity.UNKNOWN]


def test_a_topic_that_spares_all_records_has_them() -> None:
    spared = CleanupPolicy("compact", lagging=True)
    assert of_capture(replace(SOUND, topics={"t": spared})) == []
    (found,) = of_topic("t", spared)
    assert found.message == "topic t has cleanup.policy=compact"
    assert list(of_topic("t", CleanupPolicy("", lagging=False))) == []


def test_a_table_that_no_list_has_is_not_captured() -> None:
    listing = replace(SOUND, connector=replace(RUNNING, listed=frozenset()))
    (found,) = of_table(listing, ORDERS)
    assert found.message == "connector c does not list it"
    assert "tributary onboard" in found.remedy
    listed = replace(SOUND, connector=replace(RUNNING, listed=frozenset({ORDERS})))
    assert of_table(listed, ORDERS) == []
    (by_hand,) = of_table(listed, ORDERS, ["a foreign key changes its rows"])
    assert "offboard" in by_hand.remedy
    (added,) = of_table(SOUND, ORDERS, ["it is not in publication p"])
    assert "tributary onboard" in added.remedy
