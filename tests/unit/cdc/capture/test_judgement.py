"""What each fact about a capture means."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from cdc.capture.evidence import (
    Beats,
    CleanupPolicy,
    ConnectorFacts,
    ConnectorHealth,
    SignsOfLife,
)
from cdc.capture.judgement import (
    Severity,
    of_capture,
    of_stream,
    of_table,
    of_topic,
    stopping,
    why_silent,
)
from cdc.debezium import ReportedStatements, SettingFinding
from cdc.sources.source_facts import ServerIdentity
from cdc.store.attempt import Attempt, CopyView
from cdc.store.table_state import State, TableRecord
from schemas.table import TableId
from tests.records import table_record
from tests.unit.cdc.capture.capture_evidence import DOWN, NAMES, RUNNING, SOUND, STATUS

ORDERS = TableId("shop", "public", "orders")
BEATING = SignsOfLife("t.tributary.heartbeat", 3.0, sends=True, remedy="Look at the heartbeats.")
QUIET = replace(BEATING, beat_age_s=3600.0, sends=False)
STRANGERS = Beats(strangers="topic t.tributary.heartbeat has heartbeats of servers 1 and 2")
WRONG = SettingFinding("skipped.operations", "d", "none", "changes would be left out")
FAILED = ConnectorHealth(
    replace(STATUS, state="FAILED"), "connector c failed: no route", "Build one."
)


def in_state(state: str, **changes: Any) -> ConnectorFacts:
    return replace(RUNNING, health=ConnectorHealth(replace(STATUS, state=state, **changes)))


@pytest.mark.parametrize("converter", ["confluent", "apicurio"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_connector_that_no_longer_sends_null_stops_the_tables_that_rely_on_it(
    converter: str, *, kept: bool
) -> None:
    settings = {
        "value.converter": f"io.{converter}.connect.avro.AvroConverter",
        "value.converter.ignore.default.for.nullables": "true",
    }
    evidence = replace(SOUND, connector=replace(RUNNING, effective=settings))
    attempt = Attempt(UUID(int=1), datetime.now(timezone.utc), "p", nulls_are_kept=kept)
    found = of_table(evidence, ORDERS, (), table_record(ORDERS, attempt=attempt))
    if converter == "confluent" or not kept:
        assert found == []
    else:
        assert [one.severity for one in found] == [Severity.INCOMPLETE]
        assert "now sends the default" in found[0].message


def test_a_sound_capture_has_no_finding() -> None:
    assert of_capture(SOUND) == []
    assert of_table(SOUND, ORDERS, ()) == []


@pytest.mark.parametrize(
    ("changed", "severity", "subject", "message"),
    [
        ({"lost": "is gone"}, Severity.LOST, "replication slot s", "replication slot s is gone"),
        (
            {"log": SimpleNamespace(title="replication slot s", danger="can lose its log")},
            Severity.WAITING,
            "replication slot s",
            "replication slot s can lose its log",
        ),
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
            "topic t has cleanup.policy=compact,delete, so deletes and older changes may be gone"
            " from it",
        ),
        (
            {"beats": STRANGERS},
            Severity.INCOMPLETE,
            "topic t.tributary.heartbeat",
            "topic t.tributary.heartbeat has heartbeats of servers 1 and 2",
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
        (
            {"skipped": "connector c skips a definition"},
            Severity.INCOMPLETE,
            "connector c",
            "connector c skips a definition",
        ),
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


def followed(**changes: Any) -> TableRecord:
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    view = CopyView("v", "0/1", at, False, system_identifier="71", timeline=None)
    attempt = Attempt(id=UUID(int=1), started_at=at, path="p", view=view, statements_upto=7)
    attempt = replace(attempt, statements_topic_id="first")
    return table_record(ORDERS, **{"attempt": attempt, **changes})


SLOT = SimpleNamespace(title="replication slot s", problem=lambda *_: None)
SERVER = ServerIdentity("71", None, in_recovery=False)
RUNS = replace(SOUND, log=cast("Any", SLOT), server=SERVER)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"server": replace(SERVER, system_identifier="72")}, "its system identifier was 71"),
        ({"starts": (3, 9)}, "started without its stored position"),
        (
            {"statements": ReportedStatements("second", 0, 9)},
            "was deleted and created again (its id was first, is second)",
        ),
        ({"statements": ReportedStatements("first", 8, 9)}, "its offsets 7 to 7 were deleted"),
        (
            {"statements": ReportedStatements("first", 0, 6)},
            "it ends at offset 6, and ended at 7 when the copy began",
        ),
        (
            {
                "log": SimpleNamespace(
                    title="replication slot s", problem=lambda *_: "ends too soon"
                )
            },
            "replication slot s ends too soon",
        ),
    ],
)
def test_each_fact_that_a_lake_table_rests_on_has_its_finding(
    changed: dict[str, Any], message: str
) -> None:
    source, evidence = cast("Any", None), replace(RUNS, **changed)
    (found,) = of_stream(followed(), evidence, source)
    assert (found.severity, found.subject) == (Severity.LOST, f"table {ORDERS}")
    assert message in found.message
    assert "tributary bootstrap" in found.remedy
    assert list(of_stream(followed(), RUNS, source)) == []
    whole = replace(RUNS, statements=ReportedStatements("first", 7, 7))
    assert list(of_stream(followed(), whole, source)) == []
    paused = {"state": State.PAUSED, "resume_to": State.INCREMENTAL}
    assert len(list(of_stream(followed(**paused), evidence, source))) == 1
    for state in (State.REGISTERED, State.BOOTSTRAPPING, State.NEEDS_BOOTSTRAP):
        assert list(of_stream(followed(state=state), evidence, source)) == [], "nothing follows"
    for shown in ({"server": DOWN}, {"log": DOWN}):
        told_once = replace(evidence, **cast("Any", shown))
        assert list(of_stream(followed(), told_once, source)) == [], "of_capture has it"


def test_what_the_log_has_lost_for_all_tables_is_not_named_for_each() -> None:
    gone = SimpleNamespace(title="replication slot s", problem=lambda *_: "is gone")
    lost = replace(RUNS, log=cast("Any", gone), lost="is gone")
    source = cast("Any", None)
    assert list(of_stream(followed(), lost, source)) == []
    elsewhere = replace(lost, server=replace(SERVER, system_identifier="72"))
    (found,) = of_stream(followed(), elsewhere, source)
    assert "is another server" in found.message


def test_a_table_that_no_list_has_is_not_captured() -> None:
    listing = replace(SOUND, connector=replace(RUNNING, listed=frozenset()))
    (found,) = of_table(listing, ORDERS, ())
    assert found.message == "connector c does not list it"
    assert "tributary onboard" in found.remedy
    listed = replace(SOUND, connector=replace(RUNNING, listed=frozenset({ORDERS})))
    assert of_table(listed, ORDERS, ()) == []
    (by_hand,) = of_table(listed, ORDERS, ["a foreign key changes its rows"])
    assert "offboard" in by_hand.remedy
    (added,) = of_table(SOUND, ORDERS, ["it is not in publication p"])
    assert "tributary onboard" in added.remedy


def test_changes_in_a_topic_that_no_table_has_are_missing_from_the_tables_own() -> None:
    strayed = replace(SOUND, strays={ORDERS: ["t.b.orders"]})
    (found,) = of_table(strayed, ORDERS, ())
    assert stopping([found]) == [found.message]
    assert "topic t.b.orders" in found.message
    assert "Restart c, delete that topic" in found.message
    assert of_table(strayed, replace(ORDERS, name="lines"), ()) == []
