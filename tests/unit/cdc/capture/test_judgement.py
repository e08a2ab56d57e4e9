"""What each fact about a capture means."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.capture.evidence import (
    CaptureEvidence,
    CleanupPolicy,
    ConnectorFacts,
    ConnectorHealth,
    SignsOfLife,
)
from cdc.capture.judgement import Severity, of_capture, of_table, of_topic, stopping, why_silent
from cdc.connect import ConnectorStatus
from cdc.connect.values import TaskStatus
from cdc.debezium import CaptureNames, Finding
from cdc.errors import SourceError
from schemas.table import TableId

ORDERS = TableId("shop", "public", "orders")
NAMES = CaptureNames("shop", "default", "p", "s", "c", "t", "postgres")
STATUS = ConnectorStatus("c", "RUNNING", "w", tasks=(TaskStatus(0, "RUNNING", "w"),))
RUNNING = ConnectorFacts({}, (), None, ConnectorHealth(STATUS))
BEATING = SignsOfLife("t.tributary.heartbeat", 3.0, sends=True, remedy="Look at the heartbeats.")
QUIET = replace(BEATING, beat_age_s=3600.0, sends=False)
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
FAILED = ConnectorHealth(
    replace(STATUS, state="FAILED"), "connector c failed: no route", "Build one."
)


def in_state(state: str, **changes: Any) -> ConnectorFacts:
    return replace(RUNNING, health=ConnectorHealth(replace(STATUS, state=state, **changes)))


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
        (
            {"connector": None},
            Severity.WAITING,
            "connector c",
            "there is no connector c, and changes wait in the source's log",
        ),
        (
            {"connector": in_state("PAUSED")},
            Severity.WAITING,
            "connector c",
            "connector c is PAUSED",
        ),
        (
            {"connector": replace(RUNNING, health=FAILED)},
            Severity.WAITING,
            "connector c",
            "connector c failed: no route",
        ),
        (
            {"connector": in_state("UNASSIGNED", tasks=()), "life": BEATING},
            Severity.WAITING,
            "connector c",
            "connector c is UNASSIGNED with no task",
        ),
        (
            {"life": QUIET},
            Severity.WAITING,
            "connector c",
            "connector c runs, and its last heartbeat in topic t.tributary.heartbeat is 3,600 s"
            " old",
        ),
        (
            {"life": replace(QUIET, beat_age_s=None)},
            Severity.WAITING,
            "connector c",
            "connector c runs, and topic t.tributary.heartbeat holds no heartbeat",
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


def test_a_connector_that_starts_is_silent_only_without_signs_of_life() -> None:
    starting = ConnectorHealth(replace(STATUS, state="UNASSIGNED", tasks=()))
    assert why_silent(NAMES, starting, BEATING) is None
    assert why_silent(NAMES, ConnectorHealth(STATUS), None) is None, "nobody has looked"
    found = why_silent(NAMES, starting, QUIET)
    assert found is not None
    assert found.message.startswith("connector c is UNASSIGNED with no task, and its last")
    assert found.remedy == QUIET.remedy
    assert of_capture(replace(SOUND, connector=in_state("UNASSIGNED", tasks=()), life=QUIET)) == [
        found
    ]


def test_a_silence_shows_while_connect_is_away() -> None:
    away = replace(SOUND, connector=DOWN, stored=DOWN, life=BEATING)
    assert [one.severity for one in of_capture(away)] == [Severity.UNKNOWN]
    silent, unknown = of_capture(replace(away, life=QUIET))
    assert (silent.severity, unknown.severity) == (Severity.WAITING, Severity.UNKNOWN)
    assert silent.message.startswith("Kafka Connect does not answer (it is down), and its last")
    assert silent.remedy == DOWN.remedy
    (unknown,) = of_capture(replace(SOUND, life=DOWN))
    assert unknown.message == "it is down", "Kafka does not answer, so no silence is known"


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
