"""Tests that each fault raises its own alarms of the shipped Prometheus rules, and no others.

Prometheus' own tool (promtool) evaluates the rules on series that this module writes, one fault
at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.integration.rigs.prometheus import RULES, run_promtool

GB = 10**9
TABLE = 'source="shop",table="shop:public.orders",tier="default",instance="i",job="tributary"'
CAPTURE = 'source="shop",tier="default",instance="i",job="tributary"'
PROCESS = 'instance="i",job="tributary"'
MINUTES = 180
"""The length of each series in minutes, with one value per minute."""


def table(name: str, more: str = "") -> str:
    return f"tributary_table_{name}{{{TABLE}{more}}}"


def reader(name: str) -> str:
    return f'tributary_reader_{name}{{table="shop:public.orders",reader="billing",{PROCESS}}}'


def capture(name: str) -> str:
    return f"tributary_{name}{{{CAPTURE}}}"


def limit(level: str) -> str:
    return f'tributary_log_limit_bytes{{{CAPTURE},level="{level}"}}'


def up(service: str, source: str = "") -> str:
    return f'tributary_up{{service="{service}",source="{source}",{PROCESS}}}'


def always(value: float) -> str:
    return f"{value}+0x{MINUTES}"


def growing(start: float, per_minute: float) -> str:
    return f"{start:.0f}{per_minute:+.0f}x{MINUTES}"


def at_each_minute(value: Callable[[int], float]) -> str:
    return " ".join(f"{value(minute):g}" for minute in range(MINUTES + 1))


SUCCESS = f"tributary_scrape_success{{{PROCESS}}}"
OTHER = 'tributary_scrape_success{instance="other",job="tributary"}'
TABLES = f"tributary_tables{{{PROCESS}}}"
UNUSED = f"tributary_connectors_without_tables{{{PROCESS}}}"
READ_AT = f"tributary_facts_timestamp_seconds{{{PROCESS}}}"
FAILED, INCREMENTAL = table("state", ',state="failed"'), table("state", ',state="incremental"')
NEEDS = table("state", ',state="needs_bootstrap"')
PAUSED = table("state", ',state="paused"')
BY_POLICY = table("error", ',kind="PausedByPolicyError"')
CHECK = table("check_failed", ',check="keys",policy="alarm"')
PAUSING = table("check_failed", ',check="keys",policy="pause"')
REPORT = table("check_failed", ',check="keys",policy="report"')
DUE = table("check_due", ',check="keys"')
DRIFT = table("verify_drift_rows", ',kind="missing"')
HEALTHY: Mapping[str, str] = {
    reader("unread_seconds"): always(30),
    SUCCESS: always(1),
    READ_AT: growing(0, 60),
    TABLES: always(1),
    up("state_store"): always(1),
    up("kafka"): always(1),
    up("connect"): always(1),
    up("source", "shop"): always(1),
    INCREMENTAL: always(1),
    FAILED: always(0),
    NEEDS: always(0),
    PAUSED: always(0),
    table("late"): always(0),
    table("freshness_seconds"): always(30),
    table("freshness_target_seconds"): always(900),
    table("quarantined_messages"): always(0),
    table("period_due_timestamp_seconds"): growing(3600, 60),
    table("verify_success_timestamp_seconds"): always(0),
    CHECK: always(0),
    DUE: at_each_minute(lambda minute: minute % 60 < 20),
    capture("connector_up"): always(1),
    capture("capture_problem"): always(0),
    capture("heartbeat_timestamp_seconds"): growing(0, 60),
    capture("heartbeat_limit_seconds"): always(80),
    capture("log_in_danger"): always(0),
    capture("log_retained_bytes"): always(GB),
    limit("warn"): always(70 * GB),
    limit("alarm"): always(90 * GB),
    capture("slot_active"): always(1),
    capture("slot_safe_bytes"): always(9 * GB),
}
"""The series of a table and its capture for three hours without any fault."""

NOTHING = "_"
"""Stands for the values of a series that does not exist."""
LOST_STORE = {
    **{series: NOTHING for series in HEALTHY if "shop" in series},
    TABLES: "1x90 0x90",
}
"""A state store that had a table for 90 minutes, and has none since."""


def read_slowly(minute: int) -> int:
    """The time, in seconds, at which the facts in a minute's scrape were read.

    Each read of the facts takes five minutes.
    """
    return 60 * (minute - (minute + 1) % 5)


def released(minute: int) -> float:
    """The bytes of log that a slot holds back; they grow from minute 140 to minute 170."""
    return GB + (GB / 5 * (minute - 140) if 140 <= minute <= 170 else 0)


FAULTS: dict[str, tuple[dict[str, str], set[str]]] = {
    "nothing": ({}, set()),
    "a check that failed": ({CHECK: always(1)}, {"DataCheckFailed"}),
    "a check that failed and pauses its table": ({PAUSING: always(1)}, {"DataCheckFailed"}),
    "a check that failed and is only a report": ({REPORT: always(1)}, set()),
    "a check that nobody executes": ({DUE: always(1)}, {"DataCheckOverdue"}),
    "a table that is late": (
        {table("late"): always(1), table("freshness_seconds"): always(2000)},
        {"Stale"},
    ),
    "a table that is very late": (
        {table("late"): always(1), table("freshness_seconds"): always(4000)},
        {"Stale", "StaleCritical"},
    ),
    "a table that was late for a moment": ({table("late"): f"0x170 1x3 {always(0)}"}, set()),
    "a table that is paused, and old": ({table("freshness_seconds"): always(9000)}, set()),
    "a table that a person has paused": ({INCREMENTAL: always(0), PAUSED: always(1)}, set()),
    "a table that a setting has paused": (
        {INCREMENTAL: always(0), PAUSED: always(1), BY_POLICY: always(1)},
        {"TablePaused"},
    ),
    "a table that has failed": ({INCREMENTAL: always(0), FAILED: always(1)}, {"TableFailed"}),
    "a table that needs a bootstrap": (
        {INCREMENTAL: always(0), NEEDS: always(1)},
        {"NeedsBootstrap"},
    ),
    "a copy that nobody continues": ({table("copy_abandoned"): always(1)}, {"NeedsBootstrap"}),
    "a stream that is lost": ({table("lost"): always(1)}, {"NeedsBootstrap"}),
    "messages in quarantine": ({table("quarantined_messages"): always(3)}, {"Quarantined"}),
    "a lake that differs": ({DRIFT: always(2)}, {"VerifyDrift"}),
    "a reader without a limit that stopped": ({reader("unread_seconds"): always(9999)}, set()),
    "a reader that missed rows, without a limit": ({reader("lost"): always(1)}, set()),
    "a reader that is later than its limit": (
        {reader("unread_seconds"): always(3700), reader("lag_target_seconds"): always(3600)},
        {"ReaderLag"},
    ),
    "a reader within its limit": ({reader("lag_target_seconds"): always(3600)}, set()),
    "a reader that must read all of a table": (
        {reader("lost"): always(1), reader("lag_target_seconds"): always(3600)},
        {"ReaderLag"},
    ),
    "an hour that should be complete": (
        {table("period_due_timestamp_seconds"): always(60)},
        {"PeriodOverdue"},
    ),
    "an hour that is not complete since its table is late": (
        {
            table("period_due_timestamp_seconds"): always(60),
            table("late"): always(1),
            table("freshness_seconds"): always(2000),
        },
        {"Stale"},
    ),
    "a table that was never verified": (
        {table("verify_success_timestamp_seconds"): NOTHING},
        set(),
    ),
    "a connector that is down": (
        {
            capture("connector_up"): always(0),
            capture("capture_problem"): always(1),
            capture("heartbeat_timestamp_seconds"): always(0),
        },
        {"ConnectorDown"},
    ),
    "a connector that is down, so that nothing reads its slot": (
        {
            capture("connector_up"): always(0),
            capture("capture_problem"): always(1),
            capture("slot_active"): always(0),
        },
        {"ConnectorDown", "SlotInactive"},
    ),
    "a connector that runs and sends nothing": (
        {capture("heartbeat_timestamp_seconds"): always(0)},
        {"HeartbeatMissing"},
    ),
    "a connector that never sent a heartbeat": (
        {capture("heartbeat_timestamp_seconds"): NOTHING},
        {"HeartbeatMissing"},
    ),
    "a slot that nothing reads": ({capture("slot_active"): always(0)}, {"SlotInactive"}),
    "a slot that is nearly lost": (
        {
            capture("slot_safe_bytes"): always(GB),
            capture("log_retained_bytes"): always(9 * GB),
        },
        {"SlotNearLoss"},
    ),
    "a slot that is not reserved": ({capture("log_in_danger"): always(1)}, {"SlotNearLoss"}),
    "a slot that reaches its limit within four hours": (
        {
            capture("log_retained_bytes"): growing(GB, GB / 40),
            capture("slot_safe_bytes"): growing(8 * GB, -GB / 40),
        },
        {"WalGrowth"},
    ),
    "a slot that grows slowly": (
        {
            capture("log_retained_bytes"): growing(GB, GB / 500),
            capture("slot_safe_bytes"): growing(9 * GB, -GB / 500),
        },
        set(),
    ),
    "a slot that grew for half an hour, and was released": (
        {
            capture("log_retained_bytes"): at_each_minute(released),
            capture("slot_safe_bytes"): always(8 * GB),
        },
        set(),
    ),
    "a slot without a limit that grows": (
        {
            capture("log_retained_bytes"): growing(20 * GB, GB / 5),
            capture("slot_safe_bytes"): NOTHING,
        },
        {"WalGrowth"},
    ),
    "a slot that holds back much log": (
        {capture("log_retained_bytes"): always(71 * GB), capture("slot_safe_bytes"): NOTHING},
        {"WalLimit"},
    ),
    "a slot that holds back more log": (
        {capture("log_retained_bytes"): always(91 * GB), capture("slot_safe_bytes"): NOTHING},
        {"WalLimitCritical"},
    ),
    "a slot whose log no limit bounds": (
        {
            capture("log_retained_bytes"): always(500 * GB),
            capture("slot_safe_bytes"): NOTHING,
            limit("warn"): NOTHING,
            limit("alarm"): NOTHING,
        },
        set(),
    ),
    "binlogs, which have no slot, that grow": (
        {
            capture("log_retained_bytes"): growing(20 * GB, GB / 5),
            capture("slot_safe_bytes"): NOTHING,
            capture("slot_active"): NOTHING,
            limit("warn"): NOTHING,
            limit("alarm"): NOTHING,
        },
        set(),
    ),
    "a capture with another problem": ({capture("capture_problem"): always(1)}, {"Errors"}),
    "Kafka that is away": (
        {
            up("kafka"): always(0),
            capture("capture_problem"): always(1),
            capture("heartbeat_timestamp_seconds"): NOTHING,
        },
        {"Errors"},
    ),
    "a source that is away": (
        {
            up("source", "shop"): always(0),
            capture("capture_problem"): always(1),
            capture("slot_active"): NOTHING,
            capture("slot_safe_bytes"): NOTHING,
            capture("log_retained_bytes"): NOTHING,
        },
        {"Errors"},
    ),
    "a state store that is away": (
        {
            **dict.fromkeys(HEALTHY, NOTHING),
            SUCCESS: always(0),
            up("state_store"): always(0),
        },
        {"Errors", "MetricsAbsent"},
    ),
    "a file that nobody renews": ({READ_AT: f"0+60x60 {always(3600)}"}, {"MetricsAbsent"}),
    "nothing that shows metrics": (dict.fromkeys(HEALTHY, NOTHING), {"MetricsAbsent"}),
    "two processes": ({OTHER: always(1)}, set()),
    "one of two processes that is gone": ({OTHER: "1x60 _x120"}, {"MetricsAbsent"}),
    "one of two processes whose state store is away": ({OTHER: "1x60 0x120"}, {"MetricsAbsent"}),
    "one of two processes that never had its state store": ({OTHER: always(0)}, {"MetricsAbsent"}),
    "facts that cannot be read each third minute": (
        {SUCCESS: at_each_minute(lambda minute: minute % 3 > 0)},
        {"MetricsAbsent"},
    ),
    "facts that could not be read once": (
        {SUCCESS: at_each_minute(lambda minute: minute != MINUTES - 6)},
        set(),
    ),
    "facts that take five minutes to read": (
        {
            READ_AT: at_each_minute(read_slowly),
            capture("heartbeat_timestamp_seconds"): at_each_minute(lambda m: read_slowly(m) - 20),
        },
        set(),
    ),
    "a state store that lost its tables": ({**LOST_STORE, UNUSED: "_x90 2x90"}, {"NoTables"}),
    "a process that never saw the tables of its state store": (
        {**LOST_STORE, TABLES: always(0), UNUSED: always(1)},
        {"NoTables"},
    ),
    "a state store that lost its tables while Connect is away": (LOST_STORE, {"NoTables"}),
    "tables that were all offboarded": ({**LOST_STORE, UNUSED: "_x90 0x90"}, set()),
    "a project without tables": ({**LOST_STORE, TABLES: always(0), UNUSED: always(0)}, set()),
}


def alarms() -> list[str]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule["alert"].removeprefix("Tributary") for group in groups for rule in group["rules"]]


def case(name: str, changes: Mapping[str, str], raised: set[str]) -> dict[str, Any]:
    """A test case for promtool: at the end of the series, exactly these alarms are raised."""
    values = {**HEALTHY, **changes}
    return {
        "name": name,
        "interval": "1m",
        "input_series": [
            {"series": series, "values": text} for series, text in values.items() if text != NOTHING
        ],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{MINUTES - 2}m",
                "exp_samples": [
                    {"labels": f'{{alertname="Tributary{one}"}}', "value": 1}
                    for one in sorted(raised)
                ],
            }
        ],
    }


def overdue() -> dict[str, Any]:
    """A test case for promtool: a table that was last verified nine days ago.

    Its series have one value per hour instead of one per minute.
    """
    return {
        **case("a table that is not verified any more", {}, set()),
        "interval": "1h",
        "input_series": [
            {"series": series, "values": text.replace(f"x{MINUTES}", "x220")}
            for series, text in HEALTHY.items()
            if "heartbeat" not in series and "period" not in series and series != READ_AT
        ],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": hours,
                "exp_samples": expected,
            }
            for hours, expected in (
                ("190h", []),
                ("200h", [{"labels": '{alertname="TributaryVerifyOverdue"}', "value": 1}]),
            )
        ],
    }


def test_each_fault_raises_its_alarms_and_no_other(tmp_path: Path) -> None:
    cases = [case(fault, changes, raised) for fault, (changes, raised) in FAULTS.items()]
    code, said = run_promtool(tmp_path, [*cases, overdue()])
    assert code == 0, said


def test_each_alarm_has_a_fault_and_a_wrong_expectation_fails(tmp_path: Path) -> None:
    raised = {one for _, alarms_ in FAULTS.values() for one in alarms_} | {"VerifyOverdue"}
    assert raised == set(alarms())
    code, said = run_promtool(tmp_path, [case("nothing", {}, {"Stale"})])
    assert code != 0
    assert "TributaryStale" in said
